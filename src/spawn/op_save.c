/* SP_VM_SAVE: which pages a VM has made its own, and their content. That takes
 * the right to look into another user's process, which the daemon does not have.
 *
 * A child of ours does it, with that one capability left, so that a large guest
 * does not hold up other requests. QEMU is not trusted: its mappings must cover
 * the RAM exactly once, sizes come from the request, and what is read is only
 * ever written to the caller's file. The pid cannot have been given to another
 * process if the pidfd still says "alive" at the end. */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/crc.h"
#include "base/fd.h"
#include "base/log.h"
#include "jail/fds.h"
#include "jail/privs.h"
#include "jail/sys.h"
#include "spawn/pages.h"
#include "spawn/server_child.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>

#define SAVE_SECONDS  300
#define MAPPINGS_MAX  64
#define MAPS_MAX      (4u << 20)
#define BATCH         256u /* pages per read and write */
#define RAM_NAME      "/memfd:hutch-ram"
#define CAP_PTRACE    19
#define PM_PRESENT    (1ull << 63)
#define PM_SWAPPED    (1ull << 62)
#define PM_FILE       (1ull << 61)

struct mapping { uint64_t start, pages, first; /* address, length, page number of the RAM */ };

struct task { /* of the child */
    pid_t pid;
    int pidfd, proc, pagemap, out, index, also;
    uint32_t ram_pages;
    bool skip_zero;
    struct mapping map[MAPPINGS_MAX];
    int nmap;
    unsigned char *entries; /* of the index file */
    uint32_t count;
    unsigned char *wanted;  /* bit per page */
};

/* ---- which pages ------------------------------------------------------------------------------------------------ */

static int by_first(const void *a, const void *b)
{
    const struct mapping *x = a, *y = b;
    return x->first < y->first ? -1 : x->first > y->first;
}

static int find_ram(struct task *t, struct err *e)
{
    auto_free char *maps = fd_slurp_at(t->proc, "maps", MAPS_MAX, NULL);
    if (!maps)
        return err_sys(e, errno, "mappings of the emulator");
    char *save = NULL;
    for (char *line = strtok_r(maps, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        unsigned long long from, to, off;
        int at = 0;
        if (sscanf(line, "%llx-%llx %*4s %llx %*s %*s %n", &from, &to, &off, &at) < 3 || !at || strncmp(line + at, RAM_NAME, sizeof RAM_NAME - 1))
            continue;
        if (t->nmap == MAPPINGS_MAX || to <= from || (from | to | off) % PAGE_BYTES)
            return err_set(e, E_GUEST, "the emulator has mapped its RAM in an odd way");
        t->map[t->nmap++] = (struct mapping){from, (to - from) / PAGE_BYTES, off / PAGE_BYTES};
    }
    qsort(t->map, (size_t)t->nmap, sizeof *t->map, by_first);
    uint64_t at = 0;
    for (int i = 0; i < t->nmap; i++) {
        if (t->map[i].first != at)
            return err_set(e, E_GUEST, "the emulator has mapped its RAM in an odd way");
        at += t->map[i].pages;
    }
    return at == t->ram_pages ? 0 : err_set(e, E_GUEST, "the emulator's RAM has the wrong size");
}

static void want(struct task *t, uint64_t page) { t->wanted[page / 8] |= (unsigned char)(1u << page % 8); }
static bool wants(const struct task *t, uint64_t page) { return t->wanted[page / 8] >> page % 8 & 1; }

/* proc(5): a page is the process's own if it is in memory and not of the file, or swapped out. */
static int find_private(struct task *t, struct err *e)
{
    enum { CHUNK = 16384 };
    auto_free uint64_t *word = xmalloc(CHUNK * sizeof *word);
    for (int m = 0; m < t->nmap; m++) {
        for (uint64_t at = 0; at < t->map[m].pages;) {
            uint64_t n = t->map[m].pages - at < CHUNK ? t->map[m].pages - at : CHUNK;
            ssize_t got = pread(t->pagemap, word, n * 8, (off_t)((t->map[m].start / PAGE_BYTES + at) * 8));
            if (got <= 0 || got % 8)
                return err_sys(e, got < 0 ? errno : EIO, "pages of the emulator");
            n = (uint64_t)got / 8;
            for (uint64_t i = 0; i < n; i++)
                if ((word[i] & (PM_PRESENT | PM_FILE)) == PM_PRESENT || word[i] & PM_SWAPPED)
                    want(t, t->map[m].first + at + i);
            at += n;
        }
    }
    return 0;
}

static int add_given(struct task *t, struct err *e)
{
    struct stat st;
    uint32_t count;
    if (t->also < 0)
        return 0;
    if (fstat(t->also, &st) || st.st_size < PAGES_INDEX || st.st_size > (off_t)PAGES_INDEX + (off_t)t->ram_pages * 8)
        return err_set(e, E_INVALID, "the given index has an impossible size");
    auto_free unsigned char *p = xmalloc((size_t)st.st_size);
    if (pread(t->also, p, (size_t)st.st_size, 0) != st.st_size)
        return err_sys(e, errno, "the given index");
    if (pages_index_check(p, (size_t)st.st_size, t->ram_pages, &count, e))
        return -1;
    for (uint32_t i = 0; i < count; i++)
        want(t, pages_entry_get(p + PAGES_INDEX + (size_t)i * 8).page);
    return 0;
}

/* ---- their content ---------------------------------------------------------------------------------------------- */

static bool is_zero(const unsigned char *p) { return !p[0] && !memcmp(p, p + 1, PAGE_BYTES - 1); }

struct batch {
    uint32_t page[BATCH];
    uint32_t n;
    unsigned char *mem; /* records, room for 13 bytes before each page */
    struct iovec local[BATCH], remote[BATCH];
};

static uint64_t address(const struct task *t, uint32_t page)
{
    for (int m = 0; m < t->nmap; m++)
        if (page < t->map[m].first + t->map[m].pages)
            return t->map[m].start + (page - t->map[m].first) * PAGE_BYTES;
    return 0; /* not reached: the mappings cover every page */
}

static int read_batch(const struct task *t, struct batch *b, struct err *e)
{
    unsigned long runs = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        uint64_t at = address(t, b->page[i]);
        struct iovec *last = runs ? &b->remote[runs - 1] : NULL;
        b->local[i] = (struct iovec){b->mem + 13 + (size_t)i * PAGES_RECORD, PAGE_BYTES};
        if (last && (uint64_t)(uintptr_t)last->iov_base + last->iov_len == at)
            last->iov_len += PAGE_BYTES;
        else
            b->remote[runs++] = (struct iovec){(void *)(uintptr_t)at, PAGE_BYTES};
    }
    ssize_t want_bytes = (ssize_t)b->n * PAGE_BYTES;
    ssize_t got = process_vm_readv(t->pid, b->local, b->n, b->remote, runs, 0);
    if (got != want_bytes)
        return err_sys(e, got < 0 ? errno : EFAULT, "reading the emulator's memory");
    return 0;
}

/* Writes the records of a batch; the mark of each page goes into the room before it. */
static int write_batch(struct task *t, struct batch *b, struct err *e)
{
    unsigned char *from = NULL, *to = NULL;
    for (uint32_t i = 0; i < b->n; i++) {
        unsigned char *page = b->mem + 13 + (size_t)i * PAGES_RECORD, mark[13];
        if (t->skip_zero && is_zero(page)) {
            if (from && !fd_write_all(t->out, from, (size_t)(to - from)))
                return err_sys(e, errno, "writing memory");
            from = NULL;
            continue;
        }
        size_t n = pages_mark(mark, b->page[i], !t->count);
        memcpy(page - n, mark, n); /* the first one's mark is longer: it has the room of its own at the front */
        pages_entry_put(t->entries + (size_t)t->count * 8, (struct page_entry){b->page[i], crc32c(0, page, PAGE_BYTES)});
        t->count++;
        if (!from)
            from = page - n;
        to = page + PAGE_BYTES;
    }
    if (from && !fd_write_all(t->out, from, (size_t)(to - from)))
        return err_sys(e, errno, "writing memory");
    b->n = 0;
    /* the disk begins while we go on: who publishes this waits for the rest only */
    (void)sync_file_range(t->out, 0, 0, SYNC_FILE_RANGE_WRITE);
    return 0;
}

static int write_pages(struct task *t, struct err *e)
{
    unsigned char head[PAGES_HEAD], tail[PAGES_TAIL];
    auto_free struct batch *b = xcalloc(1, sizeof *b);
    auto_free unsigned char *mem = xmalloc(13 + (size_t)BATCH * PAGES_RECORD);
    b->mem = mem;
    pages_head(head, t->ram_pages);
    if (!fd_write_all(t->out, head, sizeof head))
        return err_sys(e, errno, "writing memory");
    for (uint32_t p = 0; p < t->ram_pages; p++) {
        if (p % 8 == 0 && !t->wanted[p / 8]) {
            p += 7;
            continue;
        }
        if (!wants(t, p))
            continue;
        b->page[b->n++] = p;
        if (b->n == BATCH && (read_batch(t, b, e) || write_batch(t, b, e)))
            return -1;
    }
    if (b->n && (read_batch(t, b, e) || write_batch(t, b, e)))
        return -1;
    pages_tail(tail);
    return fd_write_all(t->out, tail, sizeof tail) ? 0 : err_sys(e, errno, "writing memory");
}

static int write_index(struct task *t, struct err *e)
{
    unsigned char head[PAGES_INDEX];
    pages_index_head(head, t->entries, t->count, t->ram_pages);
    if (!fd_write_all(t->index, head, sizeof head) || !fd_write_all(t->index, t->entries, (size_t)t->count * 8))
        return err_sys(e, errno, "writing the index of memory");
    return 0;
}

static int save(struct task *t, struct err *e)
{
    struct pollfd dead = {.fd = t->pidfd, .events = POLLIN};
    size_t wanted = 0;
    t->wanted = xcalloc((t->ram_pages + 7) / 8 + 1, 1);
    if (find_ram(t, e) || find_private(t, e) || add_given(t, e))
        return -1;
    for (uint32_t i = 0; i < (t->ram_pages + 7) / 8; i++)
        wanted += (size_t)__builtin_popcount(t->wanted[i]);
    t->entries = xmalloc(wanted * 8 + 8);
    if (write_pages(t, e) || write_index(t, e))
        return -1;
    return poll(&dead, 1, 0) ? err_set(e, E_GONE, "the VM ended while it was saved") : 0;
}

/* ---- the child and its answer ----------------------------------------------------------------------------------- */

static int open_pagemap(struct task *t, struct err *e) /* its owner's file: takes more rights than reading it does */
{
    t->pagemap = openat(t->proc, "pagemap", O_RDONLY | O_CLOEXEC);
    return t->pagemap < 0 ? err_sys(e, errno, "pages of the emulator") : 0;
}

static void child(void *arg, int sock) __attribute__((noreturn));
static void child(void *arg, int sock)
{
    struct task *t = arg;
    struct fd_keep k = {0};
    struct child_answer a = {0};
    int64_t begun = clock_mono();
    int mine[] = {0, 1, 2, t->pidfd, t->proc, t->out, t->index, t->also, sock};
    for (unsigned i = 0; i < sizeof mine / sizeof *mine; i++)
        fds_keep(&k, mine[i]);
    (void)prctl(PR_SET_NAME, "hutch-save", 0, 0, 0);
    (void)alarm(SAVE_SECONDS);
    a.rc = privs_death_signal(&a.err) || fds_close_others(&k, &a.err) || open_pagemap(t, &a.err) || privs_caps(CAP_BIT(CAP_PTRACE), &a.err) ||
           privs_no_new(&a.err) || save(t, &a.err) ? -1 : 0;
    a.saved = (struct sp_saved){.pages = t->count, .ns = (uint64_t)(clock_mono() - begun)};
    child_end(sock, &a);
}

static int check_file(int fd, bool empty, const char *what, struct err *e)
{
    struct stat st;
    int fl = fcntl(fd, F_GETFL);
    if (fl < 0 || fl & O_PATH || fstat(fd, &st) || !S_ISREG(st.st_mode) || (empty && ((fl & O_ACCMODE) != O_RDWR || st.st_size)))
        return err_set(e, E_INVALID, "%s: not %s", what, empty ? "an empty file open for writing" : "a file");
    return 0;
}

int op_save(struct server *s, struct request *r, struct err *e)
{
    const struct sp_save *q = &r->q->u.save;
    if (!sp_id_ok(q->id))
        return err_set(e, E_INVALID, "not an id");
    struct box *b = box_find(s, q->id);
    if (!b || b->kind != SP_KIND_VM)
        return err_set(e, E_NOT_FOUND, "no VM %s", q->id);
    if (b->state != BX_ALIVE)
        return err_set(e, E_GONE, "%s does not run", q->id);
    if (q->ram_mib < SP_MEM_MIN || q->ram_mib > SP_MEM_MAX)
        return err_set(e, E_INVALID, "impossible RAM size");
    if (r->nfds < 2 || r->nfds > 3)
        return err_set(e, E_INVALID, "two or three descriptors are needed");
    if (check_file(r->fds[0], true, "page file", e) || check_file(r->fds[1], true, "index file", e) ||
        (r->nfds == 3 && check_file(r->fds[2], false, "given index", e)))
        return -1;
    char path[32];
    (void)snprintf(path, sizeof path, "/proc/%d", (int)b->pid);
    auto_fd proc = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (proc < 0)
        return err_sys(e, errno, "saving memory");
    struct task t = {.pid = b->pid, .pidfd = b->pidfd,  .proc = proc, .pagemap = -1, .out = r->fds[0], .index = r->fds[1], .also = r->nfds == 3 ? r->fds[2] : -1,
                     .ram_pages = q->ram_mib * (1048576u / PAGE_BYTES), .skip_zero = q->skip_zero};
    return child_run(s, r, &(struct child_work){.body = child, .arg = &t}, e); /* t is copied with us */
}
