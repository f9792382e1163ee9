/* Stands in for a qemu-x86_64 of version 9.0 or later that takes plugins, as Debian 12 has none: it offers what the
 * versions 2 to 5 of the interface have in common, in the way of the version that INTERFACE names, loads a plugin with
 * all its symbols, and has it see one program: a block of three instructions of which the second stores eight bytes,
 * entered N times (the first argument of the "program"). With --load it only loads a plugin. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t id_t_;
enum { INSTRUCTIONS = 3, LENGTH = 4, STORES = 1 };
static const uint64_t CODE = 0x401000, DATA = 0x601000;
static uint8_t code[INSTRUCTIONS * LENGTH];
static int interface = 5;

static void (*started)(id_t_, unsigned), (*ended)(id_t_, unsigned), (*translated)(id_t_, void *);
static void (*executed)(unsigned, void *), (*accessed)(unsigned, uint32_t, uint64_t, void *);
static void *executed_with, *accessed_with;

void qemu_plugin_register_vcpu_init_cb(id_t_ id, void *call) { started = call; }
void qemu_plugin_register_vcpu_exit_cb(id_t_ id, void *call) { ended = call; }
void qemu_plugin_register_vcpu_tb_trans_cb(id_t_ id, void *call) { translated = call; }
void qemu_plugin_register_vcpu_syscall_cb(id_t_ id, void *call) {}
void qemu_plugin_register_vcpu_syscall_ret_cb(id_t_ id, void *call) {}
void qemu_plugin_register_atexit_cb(id_t_ id, void *call, void *with) {}
void qemu_plugin_register_flush_cb(id_t_ id, void *call) {}
void qemu_plugin_reset(id_t_ id, void (*again)(id_t_)) { again(id); }
void qemu_plugin_register_vcpu_tb_exec_cb(void *block, void *call, int flags, void *with) {
    executed = call, executed_with = with;
}
void qemu_plugin_register_vcpu_insn_exec_cb(void *insn, void *call, int flags, void *with) {}
void qemu_plugin_register_vcpu_mem_cb(void *insn, void *call, int flags, int rw, void *with) {
    if (insn == code + STORES * LENGTH) accessed = call, accessed_with = with;
}
size_t qemu_plugin_tb_n_insns(const void *block) { return INSTRUCTIONS; }
void *qemu_plugin_tb_get_insn(const void *block, size_t at) { return code + at * LENGTH; }
uint64_t qemu_plugin_insn_vaddr(const void *insn) { return CODE + ((const uint8_t *)insn - code); }
void *qemu_plugin_insn_haddr(const void *insn) { return (void *)insn; }
size_t qemu_plugin_insn_size(const void *insn) { return LENGTH; }
/* Copies from version 3 on; before, it takes one argument and points. */
uintptr_t qemu_plugin_insn_data(const void *insn, void *to, size_t most) {
    if (interface < 3) return (uintptr_t)insn;
    memcpy(to, insn, most < LENGTH ? most : LENGTH);
    return LENGTH;
}
unsigned qemu_plugin_mem_size_shift(uint32_t info) { return info & 7; }
bool qemu_plugin_mem_is_store(uint32_t info) { return info & 1 << 17; }
void *qemu_plugin_get_hwaddr(uint32_t info, uint64_t address) { return NULL; }
bool qemu_plugin_hwaddr_is_io(const void *address) { return false; }
uint64_t qemu_plugin_hwaddr_phys_addr(const void *address) { return 0; }

struct info { const char *target; int least, now; bool system; int cpus[2]; };

static void *load(const char *file) {
    void *plugin = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!plugin) fprintf(stderr, "%s\n", dlerror()), exit(3);
    int version = *(int *)dlsym(plugin, "qemu_plugin_version");
    if (version < 2 || version > interface) fprintf(stderr, "the plugin is for version %d\n", version), exit(4);
    return plugin;
}

int main(int count, char **words) {
    interface = getenv("INTERFACE") ? atoi(getenv("INTERFACE")) : 5;
    if (count > 1 && !strcmp(words[1], "--version"))
        return printf("qemu-x86_64 version %s\n", interface < 3 ? "9.0.2" : "10.1.0"), 0;
    if (count > 2 && !strcmp(words[1], "--load")) return load(words[2]), 0;
    char *ring = strstr(words[2], ",ring="), *argument = ring + 1;
    *ring = 0;
    int (*install)(id_t_, const struct info *, int, char **) = dlsym(load(words[2]), "qemu_plugin_install");
    struct info info = { "x86_64", 2, interface, false, { 1, 1 } };
    if (install(7, &info, 1, &argument)) return 5;
    started(7, 0);
    translated(7, code);
    for (int i = 0; i < atoi(words[6]); i++) {
        executed(0, executed_with);
        accessed(0, 3 | 2 << 16, DATA + 8 * i, accessed_with);
    }
    ended(7, 0);
    return 0;
}
