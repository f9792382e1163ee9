# What systemd starts in a guest of `lab_systemd`, in place of a login: drives the service and says what it sees.
/bin/busybox --install -s /bin 2>/dev/null
export PATH=/bin HOME=/root NO_COLOR=1
for cpu in /lab/caches/*; do
    mount -o bind "$cpu" "/sys/devices/system/cpu/${cpu##*/}/cache"
done
cp "${0%/*}/groups.toml" /etc/huepage.toml

share() { huepage inspect --json "$(pidof walks)" | grep -A 3 compliance | grep share | tr -d ' '; }
# Seconds of the guest pass at once where nothing runs.
inside() {
    for _ in $(seq 100); do
        [ "$(share)" = '"share":1.0' ] && break
        sleep 1
    done
    echo "inside $1: $(share)"
}

systemctl start victim huepage
echo "started: $? $(systemctl is-active huepage)"
inside started
huepage ctl groups
systemctl reload huepage
echo "reloaded: $? $(systemctl is-active huepage)"
inside reloaded

# It hangs: systemd ends it after three minutes, and starts it again.
kill -STOP "$(systemctl show -P MainPID huepage)"
sleep 300
echo "restarts: $(systemctl show -P NRestarts huepage) $(systemctl is-active huepage victim | tr '\n' ' ')"
inside restarted

systemctl stop huepage
echo "stopped: $? $(systemctl is-active huepage victim | tr '\n' ' ')"
huepage inspect "$(pidof walks)" | head -n 1

# A file that cannot be obeyed: systemd does not try for ever.
echo "[nonsense]" >/etc/huepage.toml
systemctl start huepage
sleep 100
echo "nonsense: $(systemctl is-active huepage)"
cat /run/huepage.log
echo 0 >/dev/ttyS1
poweroff -f
