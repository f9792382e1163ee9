/* A victim and its neighbour for the lab: `walks chase KIB` follows a random cycle through every line of its
 * memory, `walks stream KIB` reads it from end to end, `walks hold KIB` only has it; for ever. With `huge` behind that
 * it asks for pages of 2 MiB. None reads a clock, whose page the kernel shares among all programs: each access in the
 * loop is to memory of its own. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LINE = 64 };

static void link_lines(char *memory, size_t lines)
{
    uint32_t *order = malloc(lines * sizeof *order);
    uint64_t dice = 88172645463325252u;
    for (size_t i = 0; i < lines; i++)
        order[i] = i;
    for (size_t i = lines - 1; i > 0; i--) {
        dice ^= dice << 13, dice ^= dice >> 7, dice ^= dice << 17;
        size_t j = dice % i;
        uint32_t other = order[i];
        order[i] = order[j], order[j] = other;
    }
    for (size_t i = 0; i < lines; i++)
        *(void **)(memory + (size_t)order[i] * LINE) = memory + (size_t)order[(i + 1) % lines] * LINE;
    free(order);
}

int main(int count, char **words)
{
    if (count != 3 && (count != 4 || strcmp(words[3], "huge")))
        return 2;
    size_t bytes = strtoul(words[2], 0, 10) << 10;
    char *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    /* Kernels without large pages know neither. */
    if (madvise(memory, bytes, count == 4 ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) && count == 4)
        return 1;
    if (!strcmp(words[1], "chase")) {
        link_lines(memory, bytes / LINE);
        for (void *volatile *at = (void *volatile *)memory;;)
            at = *at;
    }
    memset(memory, 1, bytes);
    while (!strcmp(words[1], "hold"))
        pause();
    for (;;)
        for (size_t i = 0; i < bytes; i += LINE)
            (void)*(volatile char *)(memory + i);
}
