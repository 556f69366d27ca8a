#include "core/network/egress_log.h"
#include "base/cleanup.h"
#include "core/network/egress.h"
#include "core/host/event.h"
#include "core/sandbox/object.h"
#include "gate/log.h"
#include "json/read.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LOG_DIR  "log/egress"
#define CHUNK    500u
#define SCAN_MAX 50000u /* lines looked at for one page; the next goes on from there */

struct job {
    int home;
    char sandbox[22];
    char *kind, *verdict, *name;
    struct egress_query q;
    struct egress_last last; /* seq 0: not known */
    struct core *core;
    struct egress_page page;
    int rc;
    struct err err;
    egress_page_cb *cb;
    void *arg;
};

static bool text_is(struct json *o, const char *key, const char *want)
{
    struct str s = {0};
    return !want || (!json_str(o, key, &s, false, NULL) && s.p && str_eqz(s, want));
}

static bool name_is(struct json *o, const char *want)
{
    struct str s = {0};
    if (!want || text_is(o, "addr", want))
        return true;
    if (json_str(o, "name", &s, false, NULL) || !s.p)
        return false;
    if (strncmp(want, "*.", 2))
        return str_ieqz(s, want);
    size_t n = strlen(want + 1);
    return s.n > n && str_ieqz((struct str){s.p + s.n - n, n}, want + 1);
}

static void take(struct job *j, struct json *o)
{
    if (!text_is(o, "kind", j->kind) || !text_is(o, "verdict", j->verdict) || !name_is(o, j->name))
        return;
    if (j->page.n++)
        buf_putc(&j->page.lines, ',');
    json_dump(o, &j->page.lines);
}

/* One chunk of the file; false: it was the last. */
static bool chunk(struct job *j, int dir, uint64_t *after, unsigned *seen)
{
    auto_buf raw = {0};
    buf_putc(&raw, '[');
    long n = egress_log_read(dir, j->sandbox, *after, CHUNK, &raw, &j->err);
    buf_putc(&raw, ']');
    if (n <= 0) {
        j->rc = n < 0 ? -1 : 0;
        return false;
    }
    auto_json arr = json_parse(raw.p, raw.n, &j->err);
    if (!arr) {
        j->rc = -1;
        return false;
    }
    for (size_t i = 0; i < json_len(arr); i++) {
        struct json *o = json_at(arr, i);
        int64_t seq = 0;
        (void)json_i64(o, "seq", 0, INT64_MAX, 0, &seq, NULL);
        *after = (uint64_t)seq;
        ++*seen;
        take(j, o);
        if (j->page.n == j->q.limit) {
            j->page.next = *after;
            return false;
        }
    }
    if (*seen < SCAN_MAX)
        return n == (long)CHUNK;
    j->page.next = *after;
    return false;
}

static void work(void *arg)
{
    struct job *j = arg;
    uint64_t after = j->q.after;
    unsigned seen = 0;
    auto_fd dir = openat(j->home, LOG_DIR, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0) {
        j->rc = errno == ENOENT ? 0 : err_sys(&j->err, errno, "egress log");
        return;
    }
    while (chunk(j, dir, &after, &seen))
        ;
    if (!j->rc && j->q.verify)
        j->rc = egress_log_verify(dir, j->sandbox, j->last.seq ? &j->last : NULL, &j->page.verified,
                                  &j->err);
}

static void done(void *arg)
{
    struct job *j = arg;
    j->cb(j->arg, j->rc ? &j->err : NULL, &j->page);
    buf_free(&j->page.lines);
    free(j->kind), free(j->verdict), free(j->name);
    (void)close(j->home);
    free(j);
}

/* What its writer says, if it is still at it. */
static void asked(void *arg, const struct err *e, const struct gate_stat *s, size_t n)
{
    struct job *j = arg;
    if (!e && n && strlen(s->hash) == sizeof j->last.hash - 1) {
        j->last.seq = s->seq;
        memcpy(j->last.hash, s->hash, sizeof j->last.hash);
    }
    job_run(j->core->jobs, work, done, j);
}

void egress_log_query(struct core *c, const struct egress_query *q, egress_page_cb *cb, void *arg)
{
    struct job *j = xcalloc(1, sizeof *j);
    j->q = *q, j->cb = cb, j->arg = arg, j->core = c;
    (void)snprintf(j->sandbox, sizeof j->sandbox, "%s", q->sandbox);
    j->kind = q->kind ? xstrdup(q->kind) : NULL;
    j->verdict = q->verdict ? xstrdup(q->verdict) : NULL;
    j->name = q->name ? xstrdup(q->name) : NULL;
    j->home = fcntl(c->home_fd, F_DUPFD_CLOEXEC, 0);
    struct sandbox *sb = q->verify ? sandbox_at(c, q->sandbox) : NULL;
    if (sb && sb->state == SB_RUNNING && egress_up(c))
        gate_stats(egress_client(c), sb->box_id, asked, j);
    else
        job_run(c->jobs, work, done, j);
}
