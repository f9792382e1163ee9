/* Fills memory, waits, makes a userfaultfd, waits again, registers that memory, drops it, and has a
   thread serve its faults with pages of known content. Says what came of each step; exits with 0 if
   every page had the content that was served. Arguments: milliseconds before and after the opening. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGES = 2048, PAGE = 4096 };
static int uffd;
static volatile unsigned long served, odd;
static char *memory;

static void *serve(void *unused) {
    static unsigned long page[PAGE / sizeof(long)];
    struct uffd_msg message;
    for (;;) {
        struct pollfd ready = {uffd, POLLIN, 0};
        poll(&ready, 1, -1);
        if (read(uffd, &message, sizeof message) != sizeof message) continue;
        if (message.event != UFFD_EVENT_PAGEFAULT) { odd++; continue; }
        unsigned long at = message.arg.pagefault.address & ~(PAGE - 1UL);
        if (at < (unsigned long)memory || at >= (unsigned long)memory + PAGES * PAGE) odd++;
        for (int i = 0; i < PAGE / (int)sizeof(long); i++) page[i] = at + i;
        struct uffdio_copy copy = {at, (unsigned long)page, PAGE, 0, 0};
        if (ioctl(uffd, UFFDIO_COPY, &copy) == 0) served++; else odd++;
    }
    return unused;
}

int main(int count, char **words) {
    memory = mmap(0, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (count < 3 || memory == MAP_FAILED) return 2;
    memset(memory, 7, PAGES * PAGE);
    usleep(atoi(words[1]) * 1000);
    uffd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    struct uffdio_api api = {UFFD_API, 0, 0};
    if (uffd < 0 || ioctl(uffd, UFFDIO_API, &api)) { perror("userfaultfd"); return 3; }
    usleep(atoi(words[2]) * 1000);
    struct uffdio_register area = {{(unsigned long)memory, PAGES * PAGE}, UFFDIO_REGISTER_MODE_MISSING, 0};
    if (ioctl(uffd, UFFDIO_REGISTER, &area)) { perror("register"); return 4; }
    pthread_t thread;
    pthread_create(&thread, 0, serve, 0);
    unsigned long wrong = 0;
    for (int round = 0; round < 40; round++) {
        madvise(memory, PAGES * PAGE, MADV_DONTNEED);
        for (unsigned long i = 0; i < PAGES; i++) {
            unsigned long *page = (unsigned long *)(memory + i * PAGE);
            wrong += page[0] != (unsigned long)page || page[511] != (unsigned long)page + 511;
        }
        usleep(50000);
    }
    printf("served %lu, odd %lu, wrong %lu\n", served, odd, wrong);
    return served != 40UL * PAGES || odd || wrong;
}
