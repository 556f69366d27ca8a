#include "jail/seccomp.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/sysnr.h"
#include "jail/sys.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#define NR_MAX   1024u      /* the table's end; everything above gets the default */
#define NR_X32   0x40000000u
#define RULES_MAX 1024
#define INSN_MAX 4096       /* BPF_MAXINSNS */

struct rule { int next; /* of the same call, -1: none */ uint32_t action; int arg; /* -1: unconditional */ bool equal; uint64_t mask, value; };

struct unit {
    struct rule rule[RULES_MAX];
    int nrules;
    int first[NR_MAX], last[NR_MAX];
    uint32_t fallback;
    struct sock_filter out[INSN_MAX];
    unsigned n;
    bool full;
};

/* ---- text -> rules -------------------------------------------------------------------------------------------- */

static int parse_errno(const char *s)
{
    static const struct { const char *name; int v; } e[] = {{"EPERM", EPERM}, {"ENOSYS", ENOSYS}, {"EACCES", EACCES}, {"EINVAL", EINVAL},
                                                            {"EAFNOSUPPORT", EAFNOSUPPORT}, {"EPROTONOSUPPORT", EPROTONOSUPPORT}};
    for (size_t i = 0; i < sizeof e / sizeof *e; i++)
        if (!strcmp(e[i].name, s))
            return e[i].v;
    return -1;
}

static bool parse_u64(const char *s, uint64_t *ret)
{
    char *end;
    *ret = strtoull(s, &end, 0);
    return end != s && !*end;
}

static char *word(char **save) { return strtok_r(NULL, " \t", save); }

/* "a0 == 5", "a0 & 0xff != 3" */
static int parse_condition(char **save, struct rule *r, struct err *e)
{
    char *a = word(save), *op = word(save), *v = word(save);
    r->mask = ~0ull;
    if (a && op && v && !strcmp(op, "&")) {
        if (!parse_u64(v, &r->mask))
            return err_set(e, E_INVALID, "bad mask %s", v);
        op = word(save), v = word(save);
    }
    if (!a || !op || !v || a[0] != 'a' || a[1] < '0' || a[1] > '5' || a[2] || !parse_u64(v, &r->value) || word(save))
        return err_set(e, E_INVALID, "bad condition");
    r->arg = a[1] - '0';
    r->equal = !strcmp(op, "==");
    if (!r->equal && strcmp(op, "!="))
        return err_set(e, E_INVALID, "bad operator %s", op);
    return 0;
}

static int add_rule(struct unit *u, int nr, const struct rule *r, struct err *e)
{
    if (u->nrules == RULES_MAX || nr >= (int)NR_MAX)
        return err_set(e, E_INVALID, "too many rules");
    int i = u->nrules++;
    u->rule[i] = *r;
    u->rule[i].next = -1;
    if (u->first[nr] < 0)
        u->first[nr] = i;
    else
        u->rule[u->last[nr]].next = i;
    u->last[nr] = i;
    return 0;
}

static int parse_action(char *act, char **save, uint32_t *ret, struct err *e)
{
    int en;
    char *w;
    if (!strcmp(act, "allow"))
        *ret = SECCOMP_RET_ALLOW;
    else if (!strcmp(act, "kill"))
        *ret = SECCOMP_RET_KILL_PROCESS;
    else if (!strcmp(act, "trap"))
        *ret = SECCOMP_RET_TRAP;
    else if (!strcmp(act, "errno") && (w = word(save)) && (en = parse_errno(w)) >= 0)
        *ret = SECCOMP_RET_ERRNO | (uint32_t)en;
    else
        return err_set(e, E_INVALID, "bad action %s", act);
    return 0;
}

static int parse_line(struct unit *u, char *line, struct err *e)
{
    char *save = NULL, *w = strtok_r(line, " \t", &save);
    struct rule r = {.arg = -1};
    int nr[128], n = 0;
    bool maybe = false;
    if (!w)
        return 0;
    if (!strcmp(w, "default"))
        return (w = word(&save)) ? parse_action(w, &save, &u->fallback, e) : err_set(e, E_INVALID, "default what?");
    if (!strcmp(w, "maybe")) {
        maybe = true;
        if (!(w = word(&save)))
            return err_set(e, E_INVALID, "maybe what?");
    }
    if (parse_action(w, &save, &r.action, e))
        return -1;
    while ((w = word(&save)) && strcmp(w, "if")) {
        int k = sysnr(w);
        if (k < 0 && !maybe)
            return err_set(e, E_INVALID, "unknown system call %s", w);
        if (n == 128)
            return err_set(e, E_INVALID, "line too long");
        if (k >= 0)
            nr[n++] = k;
    }
    if (w && parse_condition(&save, &r, e))
        return -1;
    for (int i = 0; i < n; i++)
        if (add_rule(u, nr[i], &r, e))
            return -1;
    return 0;
}

/* ---- rules -> BPF --------------------------------------------------------------------------------------------- */

static void put(struct unit *u, uint16_t code, uint8_t jt, uint8_t jf, uint32_t k)
{
    if (u->n == INSN_MAX) {
        u->full = true;
        return;
    }
    u->out[u->n++] = (struct sock_filter){code, jt, jf, k};
}
#define LOAD(u, off)     put(u, BPF_LD | BPF_W | BPF_ABS, 0, 0, off)
#define RET(u, k)        put(u, BPF_RET | BPF_K, 0, 0, k)

/* (arg & mask) == value ? pass on : skip `miss` instructions counted from the end of this block. The block is laid out
 * as half, half, so the distance of each jump is known by construction. */
static void put_half(struct unit *u, uint32_t off, uint32_t mask, uint32_t value, uint8_t jt, uint8_t jf)
{
    LOAD(u, off);
    if (mask != ~0u)
        put(u, BPF_ALU | BPF_AND | BPF_K, 0, 0, mask);
    put(u, BPF_JMP | BPF_JEQ | BPF_K, jt, jf, value);
}

static void put_rule(struct unit *u, const struct rule *r)
{
    if (r->arg < 0) {
        RET(u, r->action);
        return;
    }
    uint32_t lo = 16 + 8 * (uint32_t)r->arg, hi = lo + 4, mlo = (uint32_t)r->mask, mhi = (uint32_t)(r->mask >> 32);
    uint8_t second = (uint8_t)(mlo != ~0u ? 3 : 2); /* length of the low half */
    if (r->equal) { /* both halves equal -> RET, else jump over it */
        put_half(u, hi, mhi, (uint32_t)(r->value >> 32), 0, (uint8_t)(second + 1));
        put_half(u, lo, mlo, (uint32_t)r->value, 0, 1);
    } else { /* either half differs -> RET */
        put_half(u, hi, mhi, (uint32_t)(r->value >> 32), 0, second);
        put_half(u, lo, mlo, (uint32_t)r->value, 1, 0);
    }
    RET(u, r->action);
}

/* Calls with the same single answer side by side become one leaf. */
static bool plain(const struct unit *u, unsigned nr, uint32_t *action)
{
    int i = u->first[nr];
    *action = i < 0 ? u->fallback : u->rule[i].action;
    return i < 0 || u->rule[i].arg < 0;
}

static bool same_leaf(const struct unit *u, unsigned a, unsigned b)
{
    uint32_t x, y;
    return plain(u, a, &x) && plain(u, b, &y) && x == y;
}

static void put_leaf(struct unit *u, unsigned nr)
{
    uint32_t action;
    if (plain(u, nr, &action)) {
        RET(u, action);
        return;
    }
    for (int i = u->first[nr]; i >= 0; i = u->rule[i].next) {
        put_rule(u, &u->rule[i]);
        if (u->rule[i].arg < 0)
            return;
    }
    RET(u, u->fallback);
}

/* Leaves lo..hi-1 of the sorted list of leaf starts; the number is in A. */
static void put_tree(struct unit *u, const unsigned *start, unsigned lo, unsigned hi)
{
    if (hi - lo == 1) {
        put_leaf(u, start[lo]);
        return;
    }
    unsigned mid = lo + (hi - lo) / 2, at = u->n;
    put(u, BPF_JMP | BPF_JGE | BPF_K, 0, 1, start[mid]); /* true: the long jump, false: into the left part */
    put(u, BPF_JMP | BPF_JA, 0, 0, 0);
    put_tree(u, start, lo, mid);
    if (u->full)
        return;
    u->out[at + 1].k = u->n - (at + 2);
    put_tree(u, start, mid, hi);
}

static int generate(struct unit *u, struct err *e)
{
    unsigned start[NR_MAX + 1], n = 0;
    for (unsigned i = 0; i < NR_MAX; i++)
        if (!i || !same_leaf(u, i - 1, i))
            start[n++] = i;
    if (u->first[NR_MAX - 1] >= 0)
        return err_set(e, E_INTERNAL, "system call table too small");
    LOAD(u, 4); /* arch */
    put(u, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, AUDIT_ARCH_X86_64);
    RET(u, SECCOMP_RET_KILL_PROCESS);
    LOAD(u, 0); /* number */
    /* -1 is what a tracer writes to skip a call (gdb does); the rest above bit 30 is x32 */
    put(u, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, ~0u);
    RET(u, SECCOMP_RET_ERRNO | ENOSYS);
    put(u, BPF_JMP | BPF_JGE | BPF_K, 0, 1, NR_X32);
    RET(u, SECCOMP_RET_KILL_PROCESS);
    put_tree(u, start, 0, n);
    return u->full ? err_set(e, E_TOO_LARGE, "profile compiles to more than %d instructions", INSN_MAX) : 0;
}

int seccomp_compile(const char *text, size_t n, struct seccomp_prog *ret, struct err *e)
{
    auto_free struct unit *u = calloc(1, sizeof *u);
    auto_free char *copy = malloc(n + 1);
    if (!u || !copy)
        return err_sys(e, ENOMEM, "seccomp");
    memcpy(copy, text, n);
    copy[n] = 0;
    for (unsigned i = 0; i < NR_MAX; i++)
        u->first[i] = u->last[i] = -1;
    u->fallback = SECCOMP_RET_ERRNO | EPERM;
    int no = 0;
    for (char *line = copy, *next; line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = 0;
        no++;
        line[strcspn(line, "#")] = 0;
        if (parse_line(u, line, e))
            return err_wrap(e, "seccomp line %d", no);
    }
    if (generate(u, e))
        return -1;
    void *insn = malloc(u->n * sizeof *u->out);
    if (!insn)
        return err_sys(e, ENOMEM, "seccomp");
    memcpy(insn, u->out, u->n * sizeof *u->out);
    *ret = (struct seccomp_prog){insn, u->n};
    return 0;
}

int seccomp_load(const char *path, struct seccomp_prog *ret, struct err *e)
{
    size_t n;
    auto_free char *text = fd_slurp_at(AT_FDCWD, path, 1 << 20, &n);
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    if (!text)
        return err_sys(e, errno, "seccomp profile %s", base);
    return seccomp_compile(text, n, ret, e) ? err_wrap(e, "%s", base) : 0;
}

void seccomp_free(struct seccomp_prog *p)
{
    free(p->insn);
    *p = (struct seccomp_prog){0};
}

int seccomp_install(const struct seccomp_prog *p, struct err *e)
{
    struct sock_fprog f = {(unsigned short)p->n, p->insn};
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &f, 0, 0) < 0 ? err_sys(e, errno, "PR_SET_SECCOMP") : 0;
}

/* ---- an interpreter for the handful of instructions above, so tests can ask without being confined ------------- */

uint32_t seccomp_eval(const struct seccomp_prog *p, uint32_t arch, uint32_t nr, const uint64_t args[6])
{
    struct seccomp_data d = {.nr = (int)nr, .arch = arch};
    const struct sock_filter *f = p->insn;
    uint32_t a = 0;
    memcpy(d.args, args, sizeof d.args);
    for (unsigned pc = 0; pc < p->n; pc++) {
        switch (f[pc].code) {
        case BPF_LD | BPF_W | BPF_ABS:
            memcpy(&a, (const char *)&d + f[pc].k, 4);
            break;
        case BPF_ALU | BPF_AND | BPF_K:
            a &= f[pc].k;
            break;
        case BPF_JMP | BPF_JA:
            pc += f[pc].k;
            break;
        case BPF_JMP | BPF_JEQ | BPF_K:
            pc += a == f[pc].k ? f[pc].jt : f[pc].jf;
            break;
        case BPF_JMP | BPF_JGE | BPF_K:
            pc += a >= f[pc].k ? f[pc].jt : f[pc].jf;
            break;
        case BPF_RET | BPF_K:
            return f[pc].k;
        default:
            return 0;
        }
    }
    return 0;
}
