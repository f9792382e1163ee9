/* A statically linked program for huepage's benchmarks: sieves, sorts and multiplies in
 * memory from malloc and in its bss, with output that depends on nothing but this text. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned char sieve[8 << 20];

static int compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static unsigned primes(void) {
    unsigned count = 0;
    memset(sieve, 1, sizeof sieve);
    for (unsigned i = 2; i < sizeof sieve; i++) {
        if (!sieve[i]) continue;
        count++;
        for (uint64_t j = (uint64_t)i * i; j < sizeof sieve; j += i) sieve[j] = 0;
    }
    return count;
}

static uint64_t sorted(size_t n) {
    uint64_t *v = malloc(n * sizeof *v), x = 1, sum = 0;
    if (!v) exit(1);
    for (size_t i = 0; i < n; i++) v[i] = x = x * 6364136223846793005u + 1442695040888963407u;
    qsort(v, n, sizeof *v, compare);
    for (size_t i = 0; i < n; i++) sum = sum * 31 + v[i];
    free(v);
    return sum;
}

static double multiplied(int n) {
    double *a = malloc(sizeof *a * n * n * 3), *b = a + n * n, *c = b + n * n, trace = 0;
    if (!a) exit(1);
    for (int i = 0; i < n * n; i++) a[i] = i % 7, b[i] = i % 11, c[i] = 0;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++)
            for (int j = 0; j < n; j++) c[i * n + j] += a[i * n + k] * b[k * n + j];
    for (int i = 0; i < n; i++) trace += c[i * n + i];
    free(a);
    return trace;
}

int main(void) {
    for (int round = 0; round < 9; round++)
        printf("%u %llu %.0f\n", primes(), (unsigned long long)sorted(1000000 + round),
               multiplied(500));
    return 0;
}
