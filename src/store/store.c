/* The connection, the store thread and group commit.
 *
 * Thread picture: the loop thread appends ops to `todo` (mu), the store thread
 * takes the whole list, runs it in one transaction (dbmu) and moves it to
 * `done` (mu), then rings an eventfd that the loop watches. An eventfd of our
 * own rather than loop_post: it can be silenced in store_close, so no callback
 * outlives the store and no posted message has to.
 *
 * One connection for the life of the process. Debian's SQLite 3.40 lacks the
 * fix for a WAL-reset race that needs two connections; locking_mode=EXCLUSIVE
 * makes a second one impossible and saves the shared-memory file as well.
 *
 * synchronous: NORMAL for ordinary batches (no fsync at commit, the WAL keeps
 * order), FULL for a batch that holds a durable op. A WAL fsync covers all the
 * frames before it, so a durable row never gets ahead of an earlier one. */
#include "store/store.h"
#include "base/buf.h"
#include "base/log.h"
#include "loop/loop.h"
#include "store/db.h"
#include "store/migrate.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define EVENT_CAP_DEFAULT 100000
#define PRUNE_EVERY 512 /* events between two prunings */

struct store {
    sqlite3 *db;
    sqlite3_stmt *st[ST_MAX];
    pthread_mutex_t dbmu;        /* the connection and statements */
    bool full;                   /* synchronous is FULL now */
    int64_t unpruned;            /* events since the last pruning */

    pthread_mutex_t mu;          /* below */
    pthread_cond_t work, idle;
    struct list todo, done;
    size_t depth;                /* queued, not called back */
    size_t undone;               /* queued, not yet in done */
    int64_t cap;
    bool stop;

    pthread_t thread;
    bool threaded;
    int efd;
    struct io io;
    int64_t seq;                 /* loop thread */
};

int db_err(struct err *e, sqlite3 *db, int rc, const char *what)
{
    log_error("store: cannot %s: %s (%d)", what, db ? sqlite3_errmsg(db) : sqlite3_errstr(rc), rc);
    switch (rc & 0xff) {
    case SQLITE_BUSY: case SQLITE_LOCKED:
        return err_set(e, E_CONFLICT, "the state database is in use by another hutchd");
    case SQLITE_CORRUPT: case SQLITE_NOTADB:
        return err_set(e, E_INTERNAL, "the state database is damaged: cannot %s; move it away to start empty", what);
    case SQLITE_FULL:
        return err_set(e, E_QUOTA, "the disk of the state database is full: cannot %s", what);
    case SQLITE_READONLY: case SQLITE_PERM: case SQLITE_AUTH: case SQLITE_CANTOPEN:
        return err_set(e, E_DENIED, "no access to the state database: cannot %s", what);
    case SQLITE_CONSTRAINT:
        return err_set(e, E_CONFLICT, "the state database refuses the row: cannot %s", what);
    default:
        return err_set(e, E_INTERNAL, "the state database fails: cannot %s", what);
    }
}

/* -- the store thread -- */

static int step_reset(struct store *s, enum stmt_id id)
{
    int rc = sqlite3_step(s->st[id]);
    (void)sqlite3_reset(s->st[id]); /* repeats the code of the step */
    return rc == SQLITE_DONE || rc == SQLITE_ROW ? SQLITE_OK : rc;
}

static void bind_all(sqlite3_stmt *st, const struct op *o)
{
    for (int i = 0; i < o->nval; i++) /* cannot fail: indexes are right and texts static for the step */
        if (!o->val[i].is_text)
            (void)sqlite3_bind_int64(st, i + 1, o->val[i].num);
        else
            (void)sqlite3_bind_text(st, i + 1, o->val[i].text, -1, SQLITE_STATIC);
}

static void set_sync(struct store *s, bool full)
{
    if (s->full == full)
        return;
    if (sqlite3_exec(s->db, full ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL", NULL, NULL, NULL) == SQLITE_OK)
        s->full = full;
    else
        log_error("store: cannot change the sync level: %s", sqlite3_errmsg(s->db));
}

static void fail_writes(struct list *batch, const struct err *e)
{
    struct op *o;
    list_each(o, batch, node)
        if (!o->on_rows)
            o->err = *e;
}

static void write_batch(struct store *s, struct list *batch, int64_t cap)
{
    struct op *o;
    struct err e = {0};
    int rc, writes = 0;
    bool durable = false;
    list_each(o, batch, node)
        writes += !o->on_rows, durable |= o->durable;
    if (!writes)
        return;
    set_sync(s, durable);
    if ((rc = step_reset(s, ST_BEGIN)) != SQLITE_OK) {
        db_err(&e, s->db, rc, "begin a transaction");
        fail_writes(batch, &e);
        return;
    }
    list_each(o, batch, node) {
        if (o->on_rows)
            continue;
        bind_all(s->st[o->st], o);
        if ((rc = step_reset(s, o->st)) != SQLITE_OK)
            db_err(&o->err, s->db, rc, "store a row");
        else if (o->st == ST_EVENT_ADD)
            s->unpruned++;
        (void)sqlite3_clear_bindings(s->st[o->st]);
        if (sqlite3_get_autocommit(s->db)) { /* full disk, I/O error, no memory: SQLite rolled everything back */
            e = o->err;
            fail_writes(batch, &e);
            return;
        }
    }
    if (s->unpruned >= PRUNE_EVERY || s->unpruned >= cap) {
        (void)sqlite3_bind_int64(s->st[ST_EVENT_PRUNE], 1, cap);
        if (step_reset(s, ST_EVENT_PRUNE) != SQLITE_OK)
            log_warn("store: cannot prune events: %s", sqlite3_errmsg(s->db));
        s->unpruned = 0;
    }
    if ((rc = step_reset(s, ST_COMMIT)) != SQLITE_OK) {
        db_err(&e, s->db, rc, "commit");
        fail_writes(batch, &e);
        if (!sqlite3_get_autocommit(s->db))
            (void)step_reset(s, ST_ROLLBACK); /* the commit's error is the one that was told */
    }
}

static void run_batch(struct store *s, struct list *batch, int64_t cap)
{
    struct op *o;
    pthread_mutex_lock(&s->dbmu);
    write_batch(s, batch, cap);
    list_each(o, batch, node) { /* after the commit: a read never shows what may still be rolled back */
        if (!o->on_rows)
            continue;
        bind_all(s->st[o->st], o);
        store_read_events(s, s->st[o->st], o);
        (void)sqlite3_reset(s->st[o->st]);
        (void)sqlite3_clear_bindings(s->st[o->st]);
    }
    pthread_mutex_unlock(&s->dbmu);
}

static void move_all(struct list *to, struct list *from)
{
    while (!list_empty(from)) {
        struct list *n = from->next;
        list_del(n);
        list_add_tail(to, n);
    }
}

static void *store_main(void *arg)
{
    struct store *s = arg;
    pthread_mutex_lock(&s->mu);
    for (;;) {
        while (list_empty(&s->todo) && !s->stop)
            pthread_cond_wait(&s->work, &s->mu);
        if (list_empty(&s->todo))
            break;
        struct list batch = LIST_INIT(batch);
        move_all(&batch, &s->todo);
        int64_t cap = s->cap;
        pthread_mutex_unlock(&s->mu);
        run_batch(s, &batch, cap);
        pthread_mutex_lock(&s->mu);
        struct list *n = batch.next;
        for (; n != &batch; n = n->next)
            s->undone--;
        move_all(&s->done, &batch);
        if (!s->undone)
            pthread_cond_signal(&s->idle);
        (void)!write(s->efd, &(uint64_t){1}, sizeof(uint64_t)); /* only fails when it already rings */
    }
    pthread_mutex_unlock(&s->mu);
    return NULL;
}

/* -- the loop thread -- */

static void call_back(struct store *s)
{
    struct list l = LIST_INIT(l);
    pthread_mutex_lock(&s->mu);
    move_all(&l, &s->done);
    pthread_mutex_unlock(&s->mu);
    while (!list_empty(&l)) {
        struct op *o = container_of(l.next, struct op, node);
        list_del(&o->node);
        pthread_mutex_lock(&s->mu);
        s->depth--;
        pthread_mutex_unlock(&s->mu);
        const struct err *e = o->err.code == E_OK ? NULL : &o->err;
        if (o->on_rows)
            o->on_rows(o->arg, o->rows, o->nrows, e);
        else if (o->done)
            o->done(o->arg, e);
        op_free(o);
    }
}

static void on_ring(void *arg, int events)
{
    struct store *s = arg;
    uint64_t n;
    (void)events;
    (void)!read(s->efd, &n, sizeof n); /* silence it; the list says what there is */
    call_back(s);
}

void store_queue(struct store *s, struct op *o)
{
    pthread_mutex_lock(&s->mu);
    list_add_tail(&s->todo, &o->node);
    s->depth++, s->undone++;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->mu);
}

void store_flush(struct store *s)
{
    pthread_mutex_lock(&s->mu);
    while (s->undone)
        pthread_cond_wait(&s->idle, &s->mu);
    pthread_mutex_unlock(&s->mu);
    call_back(s);
}

size_t store_depth(struct store *s)
{
    pthread_mutex_lock(&s->mu);
    size_t n = s->depth;
    pthread_mutex_unlock(&s->mu);
    return n;
}

void store_event_cap(struct store *s, int64_t cap)
{
    pthread_mutex_lock(&s->mu);
    s->cap = cap > 0 ? cap : 1;
    pthread_mutex_unlock(&s->mu);
}

int64_t store_last_seq(const struct store *s) { return s->seq; }
int64_t store_next_seq(struct store *s) { return ++s->seq; }

sqlite3_stmt *store_lock_stmt(struct store *s, enum stmt_id st)
{
    pthread_mutex_lock(&s->dbmu);
    return s->st[st];
}

int store_unlock_stmt(struct store *s, sqlite3_stmt *st, int rc, struct err *e)
{
    int ret = rc == SQLITE_DONE || rc == SQLITE_ROW ? 0 : db_err(e, s->db, rc, "read rows");
    (void)sqlite3_reset(st);
    (void)sqlite3_clear_bindings(st);
    pthread_mutex_unlock(&s->dbmu);
    return ret;
}

/* -- open and close -- */

static int quick_check(sqlite3 *db, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(db, "PRAGMA quick_check(1)", -1, &st, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(st);
    if (rc == SQLITE_ROW && strcmp((const char *)sqlite3_column_text(st, 0), "ok") != 0) {
        log_error("store: quick_check: %s", (const char *)sqlite3_column_text(st, 0));
        rc = SQLITE_CORRUPT;
    }
    sqlite3_finalize(st);
    return rc == SQLITE_ROW ? 0 : db_err(e, db, rc, "check it");
}

static int open_db(struct store *s, const char *path, struct err *e)
{
    /* Made here so that the file, and the WAL that copies its mode, are never readable by others. */
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_sys(e, errno, "cannot open the state database");
    (void)close(fd); /* before SQLite opens it: closing later would drop its POSIX locks */
    int rc = sqlite3_open_v2(path, &s->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_FULLMUTEX | SQLITE_OPEN_NOFOLLOW, NULL);
    if (rc != SQLITE_OK)
        return db_err(e, s->db, rc, "open it");
    (void)sqlite3_extended_result_codes(s->db, 1);
    (void)sqlite3_db_config(s->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    static const char *const pragma[] = {
        "PRAGMA locking_mode=EXCLUSIVE", "PRAGMA journal_mode=WAL", "PRAGMA synchronous=NORMAL", "PRAGMA foreign_keys=ON",
        "PRAGMA temp_store=MEMORY",      "PRAGMA trusted_schema=OFF", "PRAGMA journal_size_limit=16777216",
    };
    for (size_t i = 0; i < sizeof pragma / sizeof *pragma; i++)
        if ((rc = sqlite3_exec(s->db, pragma[i], NULL, NULL, NULL)) != SQLITE_OK)
            return db_err(e, s->db, rc, "set it up");
    if (quick_check(s->db, e) || migrate(s->db, e))
        return -1;
    for (int i = 0; i < ST_MAX; i++)
        if ((rc = sqlite3_prepare_v3(s->db, store_sql[i], -1, SQLITE_PREPARE_PERSISTENT, &s->st[i], NULL)) != SQLITE_OK)
            return db_err(e, s->db, rc, "prepare statements");
    if ((rc = sqlite3_step(s->st[ST_EVENT_LAST])) != SQLITE_ROW)
        return db_err(e, s->db, rc, "read the last event");
    s->seq = sqlite3_column_int64(s->st[ST_EVENT_LAST], 0);
    (void)sqlite3_reset(s->st[ST_EVENT_LAST]);
    return 0;
}

struct store *store_open(struct loop *l, const char *path, struct err *e)
{
    struct store *s = xcalloc(1, sizeof *s);
    s->efd = -1;
    s->cap = EVENT_CAP_DEFAULT;
    list_init(&s->todo);
    list_init(&s->done);
    pthread_mutex_init(&s->mu, NULL);
    pthread_mutex_init(&s->dbmu, NULL);
    pthread_cond_init(&s->work, NULL);
    pthread_cond_init(&s->idle, NULL);
    if (open_db(s, path, e))
        goto fail;
    if ((s->efd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0) {
        (void)err_sys(e, errno, "eventfd");
        goto fail;
    }
    io_init(&s->io, l, s->efd, on_ring, s);
    io_want(&s->io, IO_READ);
    sigset_t all, old; /* signals belong to the loop thread */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(&s->thread, NULL, store_main, s);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc) {
        (void)err_sys(e, rc, "cannot start the store thread");
        goto fail;
    }
    s->threaded = true;
    return s;
fail:
    store_close(s);
    return NULL;
}

void store_close(struct store *s)
{
    if (!s)
        return;
    if (s->threaded) {
        store_flush(s); /* callbacks may queue more; what they queue is committed below, and called back too */
        pthread_mutex_lock(&s->mu);
        s->stop = true;
        pthread_cond_signal(&s->work);
        pthread_mutex_unlock(&s->mu);
        pthread_join(s->thread, NULL);
        call_back(s);
    }
    struct op *o;
    list_each(o, &s->todo, node) /* queued by a callback of the very last batch: nobody is left to store it */
        list_del(&o->node), op_free(o);
    io_stop(&s->io);
    if (s->efd >= 0)
        (void)close(s->efd);
    for (int i = 0; i < ST_MAX; i++)
        sqlite3_finalize(s->st[i]);
    sqlite3_close(s->db); /* checkpoints and removes the WAL */
    pthread_cond_destroy(&s->idle);
    pthread_cond_destroy(&s->work);
    pthread_mutex_destroy(&s->dbmu);
    pthread_mutex_destroy(&s->mu);
    free(s);
}
