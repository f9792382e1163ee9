/* Locks its memory and works in it until its input ends; then it checks that nothing was changed or unlocked.
 *
 *   locks MIB future|current|area|none [KIB]
 *
 * future: all memory, also what comes later; current: all that there is; area: its array alone; none: nothing. KIB: it gives up
 * root first, and may lock so much. Prints "locked" once it has, and at the end "sound" or what is not. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/poll.h>
#include <sys/resource.h>
#include <unistd.h>

/* KiB of the mappings from start on, up to end, that are locked. */
static unsigned long locked_kib(char *start, char *end)
{
    unsigned long from, to, kib, sum = 0;
    int inside = 0;
    char line[512];
    FILE *file = fopen("/proc/self/smaps", "r");
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            inside = from < (unsigned long)end && (unsigned long)start < to;
        if (inside && sscanf(line, "Locked: %lu", &kib) == 1)
            sum += kib;
    }
    fclose(file);
    return sum;
}

/* The same, of the reading with most: a page that is moving to another frame just then counts nowhere. */
static unsigned long most_locked_kib(char *start, char *end)
{
    unsigned long most = 0, wanted = (end - start) >> 10;
    for (int reading = 0; most < wanted && reading < 200; reading++) {
        unsigned long kib = locked_kib(start, end);
        most = kib > most ? kib : most;
        poll(0, 0, reading ? 10 : 0);
    }
    return most;
}

int main(int count, char **words)
{
    size_t bytes = strtoul(words[1], 0, 10) << 20;
    const char *what = words[2];
    if (count > 3) {
        rlim_t most = strtoul(words[3], 0, 10) << 10;
        struct rlimit limit = { most, most };
        if (setrlimit(RLIMIT_MEMLOCK, &limit) || setgid(65534) || setuid(65534))
            return perror("limit"), 3;
    }
    if (!strcmp(what, "future") && mlockall(MCL_CURRENT | MCL_FUTURE))
        return 4;
    unsigned *array = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (array == MAP_FAILED)
        return 5;
    size_t n = bytes / sizeof *array;
    for (size_t i = 0; i < n; i++)
        array[i] = i;
    if (!strcmp(what, "current") && mlockall(MCL_CURRENT))
        return 6;
    if (!strcmp(what, "area") && mlock(array, bytes))
        return 7;
    char *start = (char *)array, *end = start + bytes;
    puts("locked");
    fflush(stdout);
    unsigned added = 0;
    struct pollfd input = { 0, POLLIN, 0 };
    for (; poll(&input, 1, 1) == 0; added++)
        for (size_t i = 0; i < n; i += 256)
            array[i]++;
    for (size_t i = 0; i < n; i++)
        if (array[i] != i + (i % 256 ? 0 : added))
            return printf("word %zu is %u\n", i, array[i]), 1;
    unsigned long wanted = strcmp(what, "none") ? bytes >> 10 : 0, kib = most_locked_kib(start, end);
    if (kib < wanted)
        return printf("%lu KiB locked of %lu\n", kib, wanted), 1;
    puts("sound");
    return 0;
}
