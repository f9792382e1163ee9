/* An allocation-heavy program for huepage's benchmarks: its time goes into mmap, munmap, brk
 * and first touches. Blocks of every size come and go; each is checked when it goes. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { SLOTS = 256, ROUNDS = 150000, MAPS = 15000 };
static unsigned char *slot[SLOTS];
static size_t size[SLOTS];
static uint64_t state = 1;

static uint64_t next(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 33;
}

static uint64_t release(unsigned i) {
    if (!slot[i]) return 0;
    uint64_t sum = slot[i][0] + slot[i][size[i] / 2] + slot[i][size[i] - 1];
    free(slot[i]);
    slot[i] = NULL;
    return sum;
}

static uint64_t heap(void) {
    uint64_t sum = 0;
    for (int round = 0; round < ROUNDS; round++) {
        unsigned i = next() % SLOTS;
        sum += release(i);
        size[i] = 1 + next() % (next() % 16 ? 20000 : 600000);
        slot[i] = malloc(size[i]);
        if (!slot[i]) exit(1);
        memset(slot[i], round, size[i]);
    }
    for (unsigned i = 0; i < SLOTS; i++) sum += release(i);
    return sum;
}

static uint64_t maps(void) {
    uint64_t sum = 0;
    for (int round = 0; round < MAPS; round++) {
        size_t length = (1 + next() % 64) * 4096;
        unsigned char *at = mmap(NULL, length, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) exit(1);
        for (size_t o = 0; o < length; o += 4096) sum += at[o], at[o] = round;
        for (size_t o = 0; o < length; o += 4096) sum += at[o];
        munmap(at, length);
    }
    return sum;
}

int main(void) {
    unsigned long long a = heap(), b = maps();
    printf("%llu %llu\n", a, b);
    return 0;
}
