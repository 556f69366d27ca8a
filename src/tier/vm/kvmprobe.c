#include "tier/vm/kvmprobe.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>

/* Guest memory: 8 MiB, identity mapped by 2 MiB pages. */
enum {
    G_SIZE = 8 << 20,
    G_PML4 = 0x1000,
    G_PDPT = 0x2000,
    G_PD = 0x3000,
    G_GDT = 0x4000,
    G_IDT = 0x5000,
    G_CODE = 0x8000,
    G_DATA = 0x9000,
    G_STACK = 0x10000,
    G_FILL = 0x200000,
    G_FILL_SIZE = 0x200000,
    GOOD = 0x600d,
};

/* The guests. Position independent, copied to G_CODE, started there in 64-bit mode at CPL 0 with every register 0. */
#define GUEST(name, body) \
    extern const unsigned char name[], name##_end[]; \
    __asm__(".pushsection .rodata\n" #name ":\n" body "\n" #name "_end:\n.popsection\n")
#define PASS "mov $0x600d, %eax\n hlt\n"
#define FAIL "mov $0xbad, %eax\n hlt\n"

GUEST(kp_cmpxchg16b,
      "mov $0x9000, %edi\n mov $1, %eax\n mov $2, %edx\n mov $3, %ebx\n mov $4, %ecx\n"
      "lock cmpxchg16b (%rdi)\n jnz 1f\n" PASS "1:" FAIL);
GUEST(
    kp_xsave,
    "xor %ecx, %ecx\n xor %edx, %edx\n mov $3, %eax\n xsetbv\n"
    "mov $0x9000, %edi\n movabs $0x1122334455667788, %rsi\n movq %rsi, %xmm3\n"
    "mov $3, %eax\n xor %edx, %edx\n xsave (%rdi)\n pxor %xmm3, %xmm3\n mov $3, %eax\n xrstor (%rdi)\n"
    "movq %xmm3, %rbx\n cmp %rsi, %rbx\n jne 1f\n" PASS "1:" FAIL);
extern const unsigned char kp_int3_handler[];
GUEST(kp_int3, "xor %r8d, %r8d\n int3\n cmp $0x77, %r8d\n jne 1f\n" PASS "1:" FAIL
               "kp_int3_handler: mov $0x77, %r8d\n iretq\n");
GUEST(kp_loop, "mov $1000000, %ecx\n 1: dec %ecx\n jnz 1b\n" PASS);
GUEST(kp_cr3, "mov $1000, %ecx\n mov %cr3, %rbx\n 1: mov %rbx, %cr3\n dec %ecx\n jnz 1b\n" PASS);
GUEST(kp_out, "mov $1000, %ecx\n 1: out %al, $0x10\n dec %ecx\n jnz 1b\n" PASS);
GUEST(
    kp_stosq,
    "mov $0x200000, %edi\n mov $0x40000, %ecx\n movabs $0x5a5a5a5a5a5a5a5a, %rax\n rep stosq\n" PASS);

static bool check_cmpxchg(const unsigned char *ram)
{
    uint64_t v[2];
    memcpy(v, ram + G_DATA, sizeof v);
    return v[0] == 3 && v[1] == 4;
}
static bool check_fill(const unsigned char *ram)
{
    return ram[G_FILL] == 0x5a && ram[G_FILL + G_FILL_SIZE / 2] == 0x5a &&
           ram[G_FILL + G_FILL_SIZE - 1] == 0x5a && !ram[G_FILL + G_FILL_SIZE];
}

static const struct guest {
    const char *name;
    const unsigned char *code, *end;
    int limit_ms;
    bool (*check)(const unsigned char *ram);
} guests[KT_MAX] = {
    [KT_CMPXCHG16B] = {"lock cmpxchg16b", kp_cmpxchg16b, kp_cmpxchg16b_end, 20, check_cmpxchg},
    [KT_XSAVE] = {"xsave/xrstor", kp_xsave, kp_xsave_end, 20, NULL},
    [KT_INT3] = {"int3 through the IDT", kp_int3, kp_int3_end, 20, NULL},
    [KT_LOOP] = {"a loop of a million", kp_loop, kp_loop_end, 20, NULL},
    [KT_CR3] = {"1000 page table switches", kp_cr3, kp_cr3_end, 20, NULL},
    [KT_OUT] = {"1000 port writes", kp_out, kp_out_end, 50, NULL},
    [KT_STOSQ] = {"filling 2 MiB", kp_stosq, kp_stosq_end, 20, check_fill},
};
#define KICK_MS  60   /* a test that still runs then is interrupted */
#define TOTAL_MS 1000 /* the child is killed then, whatever it does in the kernel */

const char *kvm_test_name(enum kvm_test t) { return t < KT_MAX ? guests[t].name : "?"; }
const char *kvm_result_name(enum kvm_result r)
{
    static const char *const name[] = {"not run",  "ok",        "wrong answer",
                                       "too slow", "timed out", "refused"};
    return r < sizeof name / sizeof *name ? name[r] : "?";
}

static struct kvm_run *volatile running; /* for the signal handler only */
static volatile sig_atomic_t kicked;
static void on_alarm(int sig)
{
    (void)sig;
    kicked = 1;
    if (running)
        running->immediate_exit = 1; /* a signal just before KVM_RUN must not be lost */
}
static void kick_after(int ms)
{
    struct itimerval it = {.it_value = {.tv_usec = ms * 1000},
                           .it_interval = {.tv_usec = ms ? 5000 : 0}};
    (void)setitimer(ITIMER_REAL, &it, NULL); /* cannot fail with these values */
}

static void put64(unsigned char *ram, uint32_t at, uint64_t v) { memcpy(ram + at, &v, 8); }

static void build_guest(unsigned char *ram, enum kvm_test t)
{
    const struct guest *g = &guests[t];
    put64(ram, G_PML4, G_PDPT | 3);
    put64(ram, G_PDPT, G_PD | 3);
    for (uint32_t i = 0; i < G_SIZE >> 21; i++)
        put64(ram, G_PD + 8 * i, (uint64_t)i << 21 | 0x83);
    put64(ram, G_GDT + 8, 0x00af9b000000ffffULL);  /* 64-bit code */
    put64(ram, G_GDT + 16, 0x00cf93000000ffffULL); /* data */
    put64(ram, G_DATA, 1);
    put64(ram, G_DATA + 8, 2);
    if (t == KT_XSAVE) /* the save area's header must be zero */
        memset(ram + G_DATA, 0, 16);
    memcpy(ram + G_CODE, g->code, (size_t)(g->end - g->code));
    uint32_t handler = G_CODE + (uint32_t)(kp_int3_handler - kp_int3);
    put64(ram, G_IDT + 3 * 16,
          (uint64_t)(handler & 0xffff) | 8ULL << 16 | 0x8e00ULL << 32 |
              (uint64_t)(handler >> 16) << 48);
}

static int set_registers(int kvm, int vcpu)
{
    uint64_t room[(sizeof(struct kvm_cpuid2) + 256 * sizeof(struct kvm_cpuid_entry2)) / 8 + 1] = {
        0};
    struct kvm_cpuid2 *cpuid = (struct kvm_cpuid2 *)room;
    cpuid->nent = 256;
    if (ioctl(kvm, KVM_GET_SUPPORTED_CPUID, cpuid) || ioctl(vcpu, KVM_SET_CPUID2, cpuid))
        return -1;
    struct kvm_sregs s;
    if (ioctl(vcpu, KVM_GET_SREGS, &s))
        return -1;
    struct kvm_segment code = {
        .limit = 0xffffffff, .selector = 8, .type = 11, .present = 1, .s = 1, .l = 1, .g = 1};
    struct kvm_segment data = {
        .limit = 0xffffffff, .selector = 16, .type = 3, .present = 1, .s = 1, .db = 1, .g = 1};
    s.cs = code;
    s.ds = s.es = s.fs = s.gs = s.ss = data;
    s.gdt.base = G_GDT, s.gdt.limit = 23;
    s.idt.base = G_IDT, s.idt.limit = 16 * 16 - 1;
    s.cr0 = 0x80050033, s.cr3 = G_PML4, s.cr4 = 0x40620, s.efer = 0x500;
    struct kvm_regs r = {.rip = G_CODE, .rsp = G_STACK, .rflags = 2};
    return ioctl(vcpu, KVM_SET_SREGS, &s) || ioctl(vcpu, KVM_SET_REGS, &r) ? -1 : 0;
}

/* Run to HLT. `why` gets the exit reason when it is another one. */
static enum kvm_result run_guest(int vcpu, struct kvm_run *run, char *why, size_t cap)
{
    for (;;) {
        if (ioctl(vcpu, KVM_RUN, 0)) {
            if (errno == EINTR && kicked)
                return KR_TIMEOUT;
            if (errno == EINTR)
                continue;
            (void)snprintf(why, cap, " (KVM_RUN: %s)", strerror(errno));
            return KR_REFUSED;
        }
        if (run->exit_reason == KVM_EXIT_HLT)
            return KR_OK;
        if (run->exit_reason == KVM_EXIT_IO && !kicked)
            continue;
        if (kicked)
            return KR_TIMEOUT;
        if (run->exit_reason == KVM_EXIT_INTERNAL_ERROR)
            (void)snprintf(why, cap, " (internal error %u)", run->internal.suberror);
        else
            (void)snprintf(why, cap, " (exit reason %u)", run->exit_reason);
        return KR_WRONG;
    }
}

static enum kvm_result test_one(int kvm, size_t run_size, enum kvm_test t, int64_t *ret_ns,
                                char *why, size_t cap)
{
    auto_fd vm = ioctl(kvm, KVM_CREATE_VM, 0);
    if (vm < 0)
        return KR_REFUSED;
    unsigned char *ram =
        mmap(NULL, G_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ram == MAP_FAILED)
        return KR_REFUSED;
    enum kvm_result res = KR_REFUSED;
    struct kvm_run *run = MAP_FAILED;
    auto_fd vcpu = -1;
    build_guest(ram, t);
    (void)ioctl(vm, KVM_SET_TSS_ADDR, 0xfffbd000UL); /* Intel wants one; others may refuse */
    struct kvm_userspace_memory_region mem = {.memory_size = G_SIZE,
                                              .userspace_addr = (uintptr_t)ram};
    if (ioctl(vm, KVM_SET_USER_MEMORY_REGION, &mem))
        goto out;
    vcpu = ioctl(vm, KVM_CREATE_VCPU, 0);
    if (vcpu < 0 || set_registers(kvm, vcpu))
        goto out;
    run = mmap(NULL, run_size, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu, 0);
    if (run == MAP_FAILED)
        goto out;
    running = run;
    kicked = 0;
    int64_t t0 = clock_mono();
    kick_after(KICK_MS);
    res = run_guest(vcpu, run, why, cap);
    kick_after(0);
    *ret_ns = clock_mono() - t0;
    running = NULL;
    struct kvm_regs r;
    if (res == KR_OK && (ioctl(vcpu, KVM_GET_REGS, &r) || (uint32_t)r.rax != GOOD ||
                         (guests[t].check && !guests[t].check(ram))))
        res = KR_WRONG;
    if (res == KR_OK && *ret_ns > guests[t].limit_ms * NS_PER_MS)
        res = KR_SLOW;
out:
    if (run != MAP_FAILED)
        (void)munmap(run, run_size);
    (void)munmap(ram, G_SIZE);
    return res;
}

void kvm_probe_here(struct kvm_verdict *ret)
{
    *ret = (struct kvm_verdict){0};
    int64_t t0 = clock_mono();
    struct sigaction sa = {.sa_handler = on_alarm}, old; /* no SA_RESTART: KVM_RUN must return */
    (void)sigaction(SIGALRM, &sa, &old);
    auto_fd kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
    int run_size = 0;
    if (kvm < 0)
        (void)snprintf(ret->reason, sizeof ret->reason, "/dev/kvm: %s", strerror(errno));
    else if (ioctl(kvm, KVM_GET_API_VERSION, 0) != KVM_API_VERSION)
        (void)snprintf(ret->reason, sizeof ret->reason, "/dev/kvm has another API version");
    else if ((run_size = ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0)) < (int)sizeof(struct kvm_run))
        (void)snprintf(ret->reason, sizeof ret->reason, "/dev/kvm cannot create a vCPU");
    else
        ret->usable = true;
    for (int t = 0; ret->usable && t < KT_MAX; t++) {
        char why[64] = "";
        enum kvm_result r =
            test_one(kvm, (size_t)run_size, t, &ret->test[t].took_ns, why, sizeof why);
        if (r == KR_SLOW ||
            r == KR_TIMEOUT) /* a busy host gets a second chance; a wrong answer does not */
            r = test_one(kvm, (size_t)run_size, t, &ret->test[t].took_ns, why, sizeof why);
        ret->test[t].result = r;
        if (r == KR_OK)
            continue;
        ret->usable = false;
        (void)snprintf(ret->reason, sizeof ret->reason,
                       "KVM fails the test \"%s\": %s after %.1f ms%s", guests[t].name,
                       kvm_result_name(r), (double)ret->test[t].took_ns / 1e6, why);
    }
    if (ret->usable)
        (void)snprintf(ret->reason, sizeof ret->reason, "KVM passed %d tests", KT_MAX);
    (void)sigaction(SIGALRM, &old, NULL);
    ret->took_ns = clock_mono() - t0;
}

static void probe_in_child(struct kvm_verdict *ret)
{
    int64_t t0 = clock_mono();
    *ret = (struct kvm_verdict){.reason = "the KVM probe could not be started"};
    int p[2];
    if (pipe2(p, O_CLOEXEC))
        return;
    auto_fd rd = p[0], wr = p[1];
    pid_t pid = fork();
    if (pid < 0)
        return;
    if (!pid) {
        struct kvm_verdict v;
        kvm_probe_here(&v);
        _exit(fd_write_all(wr, &v, sizeof v) ? 0 : 1);
    }
    (void)close(take_fd(&wr));
    struct pollfd pf = {.fd = rd, .events = POLLIN};
    int64_t left;
    int n = 0;
    while ((left = t0 + TOTAL_MS * NS_PER_MS - clock_mono()) > 0 &&
           (n = poll(&pf, 1, (int)(left / NS_PER_MS) + 1)) < 0 && errno == EINTR)
        ;
    struct kvm_verdict v;
    if (n == 1 && fd_read_all(rd, &v, sizeof v) == (ssize_t)sizeof v)
        *ret = v;
    else
        (void)snprintf(ret->reason, sizeof ret->reason,
                       n == 1 ? "the KVM probe crashed" : "the KVM probe hung for %d ms", TOTAL_MS);
    (void)kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    ret->took_ns = clock_mono() - t0;
}

int kvm_probe(struct kvm_verdict *ret, struct err *e)
{
    const char *want = getenv("HUTCH_ACCEL");
    if (!want || !*want || !strcmp(want, "auto")) {
        probe_in_child(ret);
        return 0;
    }
    struct kvm_verdict v = {.forced = true};
    if (!strcmp(want, "tcg")) {
        (void)snprintf(v.reason, sizeof v.reason, "HUTCH_ACCEL=tcg asks for emulation");
    } else if (!strcmp(want, "kvm")) {
        auto_fd kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
        if (kvm < 0)
            return err_sys(e, errno, "HUTCH_ACCEL=kvm, but /dev/kvm does not open");
        v.usable = true;
        (void)snprintf(v.reason, sizeof v.reason,
                       "HUTCH_ACCEL=kvm asks for KVM; it was not tested");
    } else {
        return err_set(e, E_INVALID, "HUTCH_ACCEL must be kvm, tcg or auto");
    }
    *ret = v;
    return 0;
}

/* ---- TSC --------------------------------------------------------------------------------------------------------- */

#if defined(__x86_64__)
/* A pair (clock, counter) read as close together as the machine lets us: of some tries the one with the narrowest window. */
static void tsc_pair(int64_t *ns, uint64_t *tsc)
{
    int64_t best = INT64_MAX;
    for (int i = 0; i < 64; i++) {
        uint64_t a = __builtin_ia32_rdtsc();
        int64_t t = clock_read(CLOCK_MONOTONIC_RAW);
        uint64_t b = __builtin_ia32_rdtsc();
        if ((int64_t)(b - a) < best)
            best = (int64_t)(b - a), *ns = t, *tsc = a + (b - a) / 2;
    }
}

uint32_t tsc_khz_measure(void)
{
    int64_t t0 = 0, t1 = 0;
    uint64_t c0 = 0, c1 = 0;
    tsc_pair(&t0, &c0);
    struct timespec nap = {.tv_nsec = 50 * NS_PER_MS};
    while (nanosleep(&nap, &nap) && errno == EINTR)
        ;
    tsc_pair(&t1, &c1);
    if (t1 <= t0 || c1 <= c0)
        return 0;
    double khz = (double)(c1 - c0) * 1e6 / (double)(t1 - t0);
    return khz < 1e5 || khz > 1e7 ? 0 : (uint32_t)(khz + 0.5);
}
#else
uint32_t tsc_khz_measure(void) { return 0; }
#endif
