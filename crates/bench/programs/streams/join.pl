# Records of a long string pass by, and the key of each is looked up in a hash.
use strict;
my %weight = map { $_ => $_ * 7919 % 1000 } 0 .. 4999;
my $facts = pack('V*', map { ($_ * 104729) % 5000 } 0 .. (4 << 20) - 1) x 4;
my $total = 0;
for my $turn (1 .. 3) {
    for (my $at = 0; $at < length $facts; $at += 1 << 16) {
        $total += $weight{$_} for unpack('V*', substr($facts, $at, 1 << 16));
    }
}
print "$total\n";
