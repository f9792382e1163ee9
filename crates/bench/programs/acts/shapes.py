"""Programs of unusual shape for huepage's benchmarks: `shapes.py KIND SECONDS [NUMBER]`.

Each lives for SECONDS or until SIGTERM, uses its memory all the while and prints a line that depends on nothing
but its arguments, so that a run under huepage can be compared with one without.
"""
import ctypes
import mmap
import os
import signal
import sys
import threading
import time

PAGE = 4096
PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
NORESERVE = 0x4000
MADV_PAGEOUT = 21

kind, seconds = sys.argv[1], float(sys.argv[2])
number = int(sys.argv[3]) if len(sys.argv) > 3 else 0
started = time.monotonic()
asked = threading.Event()


def more():
    return time.monotonic() - started < seconds and not asked.is_set()


def stamp(place, round_):
    return (place * 2654435761 + round_ * 40503 + 12345) % (1 << 64)


def mappings():
    """Single pages whose neighbours have other flags: the kernel merges none of them."""
    areas = [mmap.mmap(-1, PAGE, PRIVATE | (NORESERVE if i % 2 else 0)) for i in range(number)]
    for place, area in enumerate(areas):
        area[:8] = stamp(place, 0).to_bytes(8, "little")
    wrong = 0
    while more():
        for place in range(0, number, 97):
            wrong += int.from_bytes(areas[place][:8], "little") != stamp(place, 0)
        time.sleep(0.01)
    for place, area in enumerate(areas):
        wrong += int.from_bytes(area[:8], "little") != stamp(place, 0)
    print("mappings", number, "wrong", wrong)


def threads():
    """Threads that wait, each with something of its own to add up at the end."""
    threading.stack_size(64 << 10)
    ends, sums = threading.Event(), [0] * number

    def wait(me):
        own = [me + i for i in range(20)]
        ends.wait()
        sums[me] = sum(own)

    all_ = [threading.Thread(target=wait, args=(i,)) for i in range(number)]
    for thread in all_:
        thread.start()
    while more():
        time.sleep(0.01)
    ends.set()
    for thread in all_:
        thread.join()
    print("threads", number, "wrong", sum(s != 20 * i + 190 for i, s in enumerate(sums)))


def terabyte():
    """An address space of a terabyte, of which a few pages are used."""
    size, pages = 1 << 40, 4096
    area = mmap.mmap(-1, size, PRIVATE | NORESERVE)
    step = size // pages
    for page in range(pages):
        area[page * step : page * step + 8] = stamp(page, 0).to_bytes(8, "little")
    wrong, round_ = 0, 0
    while more():
        for page in range(pages):
            at = page * step
            wrong += int.from_bytes(area[at : at + 8], "little") != stamp(page, round_)
            area[at : at + 8] = stamp(page, round_ + 1).to_bytes(8, "little")
        round_ += 1
    print("terabyte wrong", wrong)


def swap():
    """Pages that are taken out again and again, and must come back as they were."""
    area = mmap.mmap(-1, number * PAGE, PRIVATE)
    for page in range(number):
        area[page * PAGE : page * PAGE + 8] = stamp(page, 0).to_bytes(8, "little")
    wrong, round_ = 0, 0
    while more():
        area.madvise(MADV_PAGEOUT)
        for page in range(number):
            at = page * PAGE
            wrong += int.from_bytes(area[at : at + 8], "little") != stamp(page, round_)
            area[at : at + 8] = stamp(page, round_ + 1).to_bytes(8, "little")
        round_ += 1
    print("swap wrong", wrong)


def bomb():
    """Children as fast as they can be made: short ones, ones that wait, ones that have a child."""

    def child(place):
        own = bytearray((place + i) % 251 for i in range(2 * PAGE))
        if place % 50 == 0:
            time.sleep(0.3)
        if place % 7 == 0:
            grandchild = os.fork()
            if grandchild == 0:
                os._exit(0)
            if os.waitpid(grandchild, 0)[1] != 0:
                os._exit(255)
        right = all(own[i] == (place + i) % 251 for i in range(0, 2 * PAGE, 512))
        os._exit(place % 200 if right else 254)

    expected, wrong = {}, 0

    def collect():
        pid, status = os.wait()
        return os.waitstatus_to_exitcode(status) != expected.pop(pid)

    for place in range(number):
        pid = os.fork()
        if pid == 0:
            child(place)
        expected[pid] = place % 200
        while len(expected) > 300:
            wrong += collect()
    while expected:
        wrong += collect()
    print("children", number, "wrong", wrong)


def eater():
    """Takes memory until somebody ends it."""
    time.sleep(min(seconds, 1))
    eaten = []
    while True:
        eaten.append(bytearray(b"x") * (1 << 20))


def dump():
    """A known pattern, and a core dump at the end; says first where the pattern is."""
    size = number * PAGE
    area = mmap.mmap(-1, size, PRIVATE)
    for page in range(number):
        area[page * PAGE : (page + 1) * PAGE] = stamp(page, 0).to_bytes(8, "little") * (PAGE // 8)
    print(ctypes.addressof(ctypes.c_char.from_buffer(area)), flush=True)
    while more():
        area[0] = area[0]
        time.sleep(0.001)
    os.abort()


if kind in ("mappings", "threads", "terabyte", "swap"):
    signal.signal(signal.SIGTERM, lambda number, frame: asked.set())
{f.__name__: f for f in (mappings, threads, terabyte, swap, bomb, eater, dump)}[kind]()
