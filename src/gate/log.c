#include "gate/log.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "crypto/digest.h"
#include "json/write.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_MAX_BYTES 4096u /* every field is bounded well below */
#define TAIL_BYTES     (2u * LINE_MAX_BYTES)
#define FILES_MAX      100u
static const char mark[] = ",\"hash\":\"";
#define MARK_LEN (sizeof mark - 1)

struct egress_log {
    int dirfd, fd;
    char sandbox[22], hash[SHA256_HEX];
    uint64_t seq, bytes, max_bytes;
    unsigned files;
    uint64_t unwritten; /* lines the disk did not take since the last that it took */
};

static void file_name(const char *sandbox, unsigned part, char out[64])
{
    (void)snprintf(out, 64, part ? "%.21s.log.%u" : "%.21s.log", sandbox, part);
}

/* ---- lines ------------------------------------------------------------------------------------------------------ */

static void chain(const char *prev, const char *line, size_t n, char out[SHA256_HEX])
{
    unsigned char d[SHA256_BYTES];
    struct sha256 *h = sha256_new();
    sha256_add(h, prev, strlen(prev));
    sha256_add(h, line, n);
    sha256_end(h, d);
    static const char hex[] = "0123456789abcdef";
    for (int i = 0; i < SHA256_BYTES; i++)
        out[2 * i] = hex[d[i] >> 4], out[2 * i + 1] = hex[d[i] & 15];
    out[2 * SHA256_BYTES] = 0;
}

/* Splits a line (without newline) at its hash; false if it has none at its end. */
static bool split(struct str line, size_t *ret_body, char hash[SHA256_HEX])
{
    size_t tail = MARK_LEN + 64 + 2;
    if (line.n < tail || memcmp(line.p + line.n - tail, mark, MARK_LEN) || memcmp(line.p + line.n - 2, "\"}", 2))
        return false;
    memcpy(hash, line.p + line.n - 66, 64);
    hash[64] = 0;
    *ret_body = line.n - tail;
    return true;
}
static uint64_t line_seq(struct str line)
{
    static const char head[] = "{\"seq\":";
    uint64_t v = 0;
    if (line.n < sizeof head || memcmp(line.p, head, sizeof head - 1))
        return 0;
    size_t n = sizeof head - 1, from = n;
    while (n < line.n && line.p[n] >= '0' && line.p[n] <= '9')
        n++;
    return str_u64((struct str){line.p + from, n - from}, &v) ? v : 0;
}

static void kv_text(struct jw *w, const char *key, const char *v, size_t max)
{
    if (v && *v)
        jw_kv_strn(w, key, (struct str){v, strnlen(v, max)});
}
static void kv_num(struct jw *w, const char *key, uint64_t v, bool always)
{
    if (v || always)
        jw_kv_u64(w, key, v);
}
static void line_write(struct buf *out, const struct gate_record *r)
{
    struct jw w;
    char when[32];
    bool moved = r->kind == GATE_K_CLOSE || r->kind == GATE_K_CUT || r->kind == GATE_K_HTTP;
    clock_rfc3339(r->time_ns, when);
    jw_init(&w, out);
    jw_obj(&w);
    jw_kv_u64(&w, "seq", r->seq);
    jw_kv_str(&w, "time", when);
    kv_text(&w, "box", r->box, 32);
    kv_text(&w, "sandbox", r->sandbox, 32);
    jw_kv_str(&w, "kind", gate_kind_name(r->kind));
    kv_num(&w, "conn", r->conn, false);
    kv_text(&w, "name", r->name, 256);
    kv_text(&w, "type", r->type, 16);
    kv_text(&w, "addr", r->addr, 64);
    kv_num(&w, "port", r->port, false);
    kv_text(&w, "method", r->method, 32);
    kv_text(&w, "path", r->path, 512);
    kv_num(&w, "status", r->status, false);
    kv_num(&w, "in", r->in, moved);
    kv_num(&w, "out", r->out, moved);
    kv_num(&w, "ms", r->ms, moved);
    jw_kv_str(&w, "verdict", r->allowed ? "allow" : "deny");
    kv_text(&w, "rule", r->rule, 128);
    kv_text(&w, "reason", r->reason, 256);
    kv_text(&w, "secret", r->secret, 128);
    kv_num(&w, "lost", r->lost, false);
    jw_end(&w);
}

/* ---- writing ------------------------------------------------------------------------------------------------------ */

/* The last whole line of a file into hash and seq. A torn last line (power cut) is cut off. 0: nothing there. */
static int resume(struct egress_log *l, int fd, bool repair, struct err *e)
{
    struct stat st;
    char tail[TAIL_BYTES];
    if (fstat(fd, &st))
        return err_sys(e, errno, "egress log");
    off_t from = st.st_size > (off_t)sizeof tail ? st.st_size - (off_t)sizeof tail : 0;
    ssize_t n = pread(fd, tail, sizeof tail, from);
    if (n < 0)
        return err_sys(e, errno, "egress log");
    size_t end = (size_t)n;
    while (end && tail[end - 1] != '\n')
        end--;
    if (repair && end != (size_t)n && ftruncate(fd, from + (off_t)end))
        return err_sys(e, errno, "egress log");
    l->bytes = (uint64_t)from + end;
    if (!end)
        return 0;
    size_t begin = end - 1, body;
    while (begin && tail[begin - 1] != '\n')
        begin--;
    struct str line = {tail + begin, end - 1 - begin};
    char hash[SHA256_HEX];
    uint64_t seq = line_seq(line);
    if (!seq || !split(line, &body, hash))
        return err_set(e, E_INTERNAL, "the egress log of %s ends with an incomplete line", l->sandbox);
    memcpy(l->hash, hash, sizeof hash);
    l->seq = seq;
    return 1;
}

struct egress_log *egress_log_open(int dirfd, const char *sandbox, uint64_t max_bytes, unsigned files, struct err *e)
{
    char name[64];
    if (!id_ok(str_of(sandbox))) {
        (void)err_set(e, E_INVALID, "not a sandbox id");
        return NULL;
    }
    struct egress_log *l = xcalloc(1, sizeof *l);
    l->dirfd = dirfd;
    l->max_bytes = max_bytes < 4 * LINE_MAX_BYTES ? 4 * LINE_MAX_BYTES : max_bytes;
    l->files = files > FILES_MAX ? FILES_MAX : files;
    (void)stpncpy(l->sandbox, sandbox, sizeof l->sandbox - 1);
    (void)stpncpy(l->hash, sandbox, sizeof l->hash - 1);
    file_name(sandbox, 0, name);
    l->fd = openat(dirfd, name, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);
    int got = l->fd < 0 ? err_sys(e, errno, "egress log") : resume(l, l->fd, true, e);
    if (!got) { /* empty: rotated just now? then the chain goes on from the part before */
        uint64_t bytes = l->bytes;
        file_name(sandbox, 1, name);
        auto_fd old = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (old >= 0)
            got = resume(l, old, false, e);
        l->bytes = bytes;
    }
    if (got < 0) {
        egress_log_close(l);
        return NULL;
    }
    return l;
}

void egress_log_close(struct egress_log *l)
{
    if (!l)
        return;
    if (l->fd >= 0)
        (void)close(l->fd);
    free(l);
}

static void rotate(struct egress_log *l)
{
    char from[64], to[64];
    for (unsigned i = l->files; i > 0; i--) {
        file_name(l->sandbox, i - 1, from);
        file_name(l->sandbox, i, to);
        (void)renameat(l->dirfd, from, l->dirfd, to); /* a part that is not there yet */
    }
    file_name(l->sandbox, 0, from);
    if (!l->files)
        (void)unlinkat(l->dirfd, from, 0);
    int fd = openat(l->dirfd, from, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (fd < 0)
        return; /* the old one goes on; tried again with the next line */
    (void)close(l->fd);
    l->fd = fd;
    l->bytes = 0;
}

/* "<id>.log", "<id>.log.N", "<id>.count" or a group's count */
static bool is_part(const char *name, struct str *ret_sandbox, bool *ret_newest)
{
    struct str id = {name, 21};
    uint64_t n;
    *ret_sandbox = (struct str){0};
    *ret_newest = false;
    if (!strncmp(name, EGRESS_GROUP, sizeof EGRESS_GROUP - 1))
        return true;
    if (strlen(name) < 25 || !id_ok(id))
        return false;
    *ret_sandbox = id;
    *ret_newest = !strcmp(name + 21, EGRESS_COUNT);
    if (*ret_newest || strncmp(name + 21, ".log", 4) != 0)
        return *ret_newest;
    *ret_newest = !name[25];
    return *ret_newest || (name[25] == '.' && str_u64(str_of(name + 26), &n));
}

/* NULL: tried again with the next sweep. */
static DIR *open_logs(int dirfd)
{
    int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d && fd >= 0)
        (void)close(fd);
    return d;
}
static int64_t written_at(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * NS_PER_S + st->st_mtim.tv_nsec;
}

struct ended {
    char id[22];
    int64_t written;
};
static int oldest_first(const void *a, const void *b)
{
    const struct ended *x = a, *y = b;
    return x->written < y->written ? -1 : x->written > y->written ? 1 : strcmp(x->id, y->id);
}
/* The newest log of each says when it was written to last. */
static size_t list_ended(DIR *d, struct ended **ret, bool (*in_use)(void *arg, struct str sandbox),
                         void *arg)
{
    size_t n = 0, cap = 0;
    struct str sandbox;
    struct stat st;
    bool newest;
    *ret = NULL;
    for (struct dirent *de; (de = readdir(d));) {
        if (!is_part(de->d_name, &sandbox, &newest) || !sandbox.n ||
            strcmp(de->d_name + sandbox.n, ".log") != 0 || in_use(arg, sandbox) ||
            fstatat(dirfd(d), de->d_name, &st, AT_SYMLINK_NOFOLLOW))
            continue;
        if (n == cap)
            *ret = xrealloc(*ret, (cap = cap ? 2 * cap : 64) * sizeof **ret);
        struct ended *e = &(*ret)[n++];
        *e = (struct ended){.written = written_at(&st)};
        memcpy(e->id, sandbox.p, sandbox.n);
    }
    if (n) /* there is no array otherwise */
        qsort(*ret, n, sizeof **ret, oldest_first);
    return n;
}
void egress_logs_trim(int at, size_t most, bool (*in_use)(void *arg, struct str sandbox), void *arg)
{
    DIR *d = open_logs(at);
    struct ended *all;
    if (!d)
        return;
    size_t n = list_ended(d, &all, in_use, arg);
    for (size_t i = 0; i + most < n; i++) {
        char name[64];
        for (unsigned part = FILES_MAX + 1;
             part-- > 0;) { /* the newest last: it is what a sweep that was cut short finds again */
            file_name(all[i].id, part, name);
            (void)unlinkat(at, name, 0);
        }
    }
    free(all);
    (void)closedir(d);
}

void egress_logs_sweep(int dirfd, int64_t older, bool (*in_use)(void *arg, struct str sandbox),
                       void *arg)
{
    DIR *d = open_logs(dirfd);
    if (!d)
        return;
    for (struct dirent *de; (de = readdir(d));) {
        struct str sandbox;
        struct stat st;
        bool newest;
        if (!is_part(de->d_name, &sandbox, &newest) || fstatat(dirfd, de->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
            continue;
        if (written_at(&st) < older && !(newest && in_use(arg, sandbox)))
            (void)unlinkat(dirfd, de->d_name, 0);
    }
    (void)closedir(d);
}

void egress_log_put(struct egress_log *l, struct gate_record *r)
{
    auto_buf b = {0};
    char hash[SHA256_HEX];
    if (l->bytes >= l->max_bytes)
        rotate(l);
    r->seq = l->seq + 1;
    r->time_ns = clock_wall();
    uint64_t lost = r->lost;
    r->lost = l->unwritten;
    line_write(&b, r);
    r->lost = lost;
    b.n--; /* the closing brace comes after the hash */
    chain(l->hash, b.p, b.n, hash);
    buf_printf(&b, "%s%s\"}\n", mark, hash);
    off_t at = (off_t)l->bytes;
    ssize_t n = write(l->fd, b.p, b.n);
    if (n != (ssize_t)b.n) { /* all or nothing: half a line would break the chain */
        if (n > 0)
            (void)!ftruncate(l->fd, at);
        l->unwritten++;
        return;
    }
    l->unwritten = 0;
    l->bytes += b.n;
    l->seq++;
    memcpy(l->hash, hash, sizeof hash);
}
uint64_t egress_log_seq(const struct egress_log *l) { return l->seq; }
const char *egress_log_hash(const struct egress_log *l) { return l->hash; }

/* ---- reading ------------------------------------------------------------------------------------------------------ */

/* Each line of every part, oldest first; fn returns false to stop. */
static int each_line(int dirfd, const char *sandbox, bool (*fn)(void *, struct str), void *arg, struct err *e)
{
    if (!id_ok(str_of(sandbox)))
        return err_set(e, E_INVALID, "not a sandbox id");
    for (int part = FILES_MAX; part >= 0; part--) {
        char name[64], line[2 * LINE_MAX_BYTES];
        file_name(sandbox, (unsigned)part, name);
        int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0 && errno == ENOENT)
            continue;
        auto_file f = fd < 0 ? NULL : fdopen(fd, "r");
        if (!f)
            return err_sys(e, errno, "egress log");
        while (fgets(line, sizeof line, f)) {
            size_t n = strlen(line);
            if (!n || line[n - 1] != '\n')
                break; /* being written */
            if (!fn(arg, (struct str){line, n - 1}))
                return 0;
        }
    }
    return 0;
}

struct reading { uint64_t after; size_t left; long n; struct buf *out; };
static bool read_line(void *arg, struct str line)
{
    struct reading *r = arg;
    if (line_seq(line) <= r->after)
        return true;
    if (!r->left)
        return false;
    if (r->n)
        buf_putc(r->out, ',');
    buf_put(r->out, line.p, line.n);
    r->n++, r->left--;
    return true;
}
long egress_log_read(int dirfd, const char *sandbox, uint64_t after, size_t max, struct buf *out, struct err *e)
{
    struct reading r = {after, max, 0, out};
    return each_line(dirfd, sandbox, read_line, &r, e) ? -1 : r.n;
}

struct checking { char hash[SHA256_HEX]; uint64_t lines, seq; const struct egress_last *last; bool bad; struct err *e; };
static bool check_line(void *arg, struct str line)
{
    struct checking *c = arg;
    char want[SHA256_HEX], has[SHA256_HEX];
    size_t body;
    uint64_t seq = line_seq(line);
    bool first = !c->lines;
    if (!seq || !split(line, &body, has) || (!first && seq != c->seq + 1)) {
        c->bad = true;
        (void)err_set(c->e, E_CONFLICT, "the line after number %llu of the egress log is not its successor", (unsigned long long)c->seq);
        return false;
    }
    c->lines++;
    c->seq = seq;
    chain(c->hash, line.p, body, want);
    /* Older parts may be gone: then the first line that is kept is the anchor. */
    if ((!(first && seq > 1) && memcmp(want, has, 64)) || (c->last && c->last->seq == seq && memcmp(c->last->hash, has, 64) != 0)) {
        c->bad = true;
        (void)err_set(c->e, E_CONFLICT, "line %llu of the egress log was changed, or one before it", (unsigned long long)seq);
        return false;
    }
    memcpy(c->hash, has, sizeof has);
    return true;
}
int egress_log_verify(int dirfd, const char *sandbox, const struct egress_last *last, uint64_t *ret_lines, struct err *e)
{
    struct checking c = {.last = last, .e = e};
    (void)stpncpy(c.hash, sandbox, sizeof c.hash - 1);
    if (each_line(dirfd, sandbox, check_line, &c, e) || c.bad)
        return -1;
    if (last && last->seq > c.seq)
        return err_set(e, E_CONFLICT, "the egress log ends with line %llu; lines up to %llu were removed", (unsigned long long)c.seq, (unsigned long long)last->seq);
    *ret_lines = c.lines;
    return 0;
}
