#include "tls/files.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define PEM_MAX  (1u << 20)
#define LOOK_NS  (5 * NS_PER_S)
#define DAY_S    86400
#define DAILY_NS (DAY_S * NS_PER_S)

/* A file as it was: if none of this changed, nothing did. */
struct trace {
    dev_t dev;
    ino_t ino;
    off_t size;
    struct timespec changed;
};

struct tls_files {
    char *cert, *key;
    struct trace seen[2]; /* of the last attempt, good or bad */
    struct tls_pair *pair;
    struct x509_facts facts;
    struct timer timer;
    int64_t warned_at; /* 0: not yet */
};

static struct trace trace_of(const char *path)
{
    struct stat st;
    if (stat(path, &st))
        return (struct trace){0};
    return (struct trace){st.st_dev, st.st_ino, st.st_size, st.st_ctim};
}
static bool same(const struct trace *a, const struct trace *b)
{
    return a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
           a->changed.tv_sec == b->changed.tv_sec && a->changed.tv_nsec == b->changed.tv_nsec;
}

static char *slurp(const char *path, struct err *e)
{
    char *text = fd_slurp_at(AT_FDCWD, path, PEM_MAX, NULL);
    if (!text)
        (void)err_sys(e, errno, "%.150s", path);
    return text;
}
int tls_files_facts(const char *cert, struct x509_facts *ret, struct err *e)
{
    auto_free char *text = slurp(cert, e);
    return !text ? -1 : x509_look(str_of(text), ret, e) ? err_wrap(e, "%.120s", cert) : 0;
}
int tls_days_left(const struct x509_facts *f)
{
    int64_t left = f->until_s - time(NULL);
    return (int)((left < 0 ? left - DAY_S + 1 : left) / DAY_S);
}

static int load(struct tls_files *f, struct err *e)
{
    auto_free char *cert = slurp(f->cert, e), *key = cert ? slurp(f->key, e) : NULL;
    if (!key)
        return -1;
    struct tls_pair *p = tls_pair_new(str_of(cert), str_of(key), e);
    explicit_bzero(key, strlen(key));
    if (!p)
        return err_wrap(e, "%.80s, %.80s", f->cert, f->key);
    struct x509_facts facts;
    if (x509_look(str_of(cert), &facts, e)) {
        tls_pair_free(p);
        return -1;
    }
    tls_pair_free(f->pair);
    f->pair = p;
    f->facts = facts;
    f->warned_at = 0;
    return 0;
}

static void warn_of_end(struct tls_files *f)
{
    int left = tls_days_left(&f->facts);
    if (left >= TLS_SOON_DAYS || (f->warned_at && clock_mono() - f->warned_at < DAILY_NS))
        return;
    f->warned_at = clock_mono();
    if (left < 0)
        log_warn("the certificate in %s ended on %s: clients refuse it", f->cert, f->facts.to);
    else
        log_warn("the certificate in %s ends on %s, in %d days", f->cert, f->facts.to, left);
}

void tls_files_look(struct tls_files *f)
{
    struct trace now[2] = {trace_of(f->cert), trace_of(f->key)};
    struct err e;
    if (!same(&now[0], &f->seen[0]) || !same(&now[1], &f->seen[1])) {
        memcpy(f->seen, now, sizeof now);
        if (load(f, &e))
            log_warn("the new certificate is not used, the old one stays: %s", e.msg);
        else
            log_info("a new certificate is in force: %s, for %s, until %s", f->facts.subject,
                     f->facts.names, f->facts.to);
    }
    warn_of_end(f);
}
static void on_timer(void *arg)
{
    struct tls_files *f = arg;
    tls_files_look(f);
    timer_arm(&f->timer, LOOK_NS);
}
void tls_files_watch(struct tls_files *f, struct loop *l)
{
    log_info("TLS with the certificate %s, for %s, until %s", f->facts.subject, f->facts.names,
             f->facts.to);
    warn_of_end(f);
    timer_init(&f->timer, l, on_timer, f);
    timer_arm(&f->timer, LOOK_NS);
}
struct tls_pair *tls_files_pair(struct tls_files *f) { return f->pair; }

struct tls_files *tls_files_new(const char *cert, const char *key, struct err *e)
{
    struct tls_files *f = xcalloc(1, sizeof *f);
    f->cert = xstrdup(cert), f->key = xstrdup(key);
    f->seen[0] = trace_of(cert),
    f->seen[1] = trace_of(key); /* before reading: what changes meanwhile is seen later */
    if (!load(f, e))
        return f;
    tls_files_free(f);
    return NULL;
}
void tls_files_free(struct tls_files *f)
{
    if (!f)
        return;
    timer_stop(&f->timer);
    tls_pair_free(f->pair);
    free(f->cert), free(f->key);
    free(f);
}
