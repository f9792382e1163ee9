/* Stores N words, loads them again; no library: what else it does is a handful of accesses. */
static volatile long words[1 << 16];
static long number(const char *s) { long n = 0; while (*s) n = n * 10 + *s++ - '0'; return n; }
__attribute__((noreturn)) static void leave(long status) {
    __asm__ volatile("syscall" : : "a"(231L), "D"(status)); __builtin_unreachable();
}
__attribute__((used, noreturn)) static void begin(long *stack) {
    long n = stack[0] > 1 ? number((char *)stack[2]) : 65536;
    for (long i = 0; i < n; i++) words[i & 65535] = i;
    long sum = 0;
    for (long i = 0; i < n; i++) sum += words[i & 65535];
    leave(sum == n * (n - 1) / 2 ? 0 : 1);
}
__asm__(".globl _start\n_start: mov %rsp,%rdi\n and $-16,%rsp\n call begin\n");
