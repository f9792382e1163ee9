"""A Python program for huepage's benchmarks: dictionaries, strings, sorting and recursion,
with output that depends on nothing but this text (and PYTHONHASHSEED=0)."""

import json
import zlib


def numbers(seed, count):
    for _ in range(count):
        seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
        yield seed >> 33


def words(count):
    counts = {}
    for number in numbers(1, count):
        word = f"w{number % 40000}"
        counts[word] = counts.get(word, 0) + 1
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def queens(size, row=0, columns=0, left=0, right=0):
    if row == size:
        return 1
    total = 0
    free = ((1 << size) - 1) & ~(columns | left | right)
    while free:
        place = free & -free
        free ^= place
        total += queens(size, row + 1, columns | place, (left | place) << 1, (right | place) >> 1)
    return total


def main():
    for part in range(3):
        top = words(500_000 + part)
        text = json.dumps(top)
        print(part, top[:3], zlib.crc32(text.encode()), len(zlib.compress(text.encode())))
    print("queens", queens(9))
    matrix = [[number % 100 for number in numbers(row, 120)] for row in range(120)]
    product = [[sum(a * b for a, b in zip(r, c)) for c in zip(*matrix)] for r in matrix]
    print("product", sum(map(sum, product)))


main()
