#include "core/sandbox/files.h"
#include "base/buf.h"
#include "core/agent/agent.h"
#include "core/sandbox/sandbox.h"
#include <string.h>

#define WINDOW (256 * 1024)

/* ---- entries ---- */
#define XATTR_MAX 64
struct entry_box {
    struct file_entry en;
    char *strings[5];
    char *xattr[XATTR_MAX + 1];
};

static char *dup_or(struct rec r, uint8_t tag, const char *otherwise)
{
    char *s = rec_dup(r, tag);
    return s || !otherwise ? s : xstrdup(otherwise);
}

static void entry_read(struct entry_box *b, struct rec r)
{
    memset(b, 0, sizeof *b);
    struct file_entry *en = &b->en;
    en->name = b->strings[0] = dup_or(r, T_NAME, "");
    en->path = b->strings[1] = dup_or(r, T_PATH, "");
    en->owner = b->strings[2] = dup_or(r, T_OWNER, "");
    en->group = b->strings[3] = dup_or(r, T_GROUP, "");
    en->target = b->strings[4] = dup_or(r, T_TARGET, NULL);
    en->type = (char)rec_u64_or(r, T_TYPE, 'o');
    en->target_type = (char)rec_u64_or(r, T_TARGET_TYPE, 0);
    en->target_mode = (uint32_t)rec_u64_or(r, T_TARGET_MODE, 0);
    en->size = rec_u64_or(r, T_SIZE, 0);
    en->mode = (uint32_t)rec_u64_or(r, T_MODE, 0);
    en->uid = (uint32_t)rec_u64_or(r, T_UID, 0), en->gid = (uint32_t)rec_u64_or(r, T_GID, 0);
    en->mtime_ns = (int64_t)rec_u64_or(r, T_MTIME_NS, 0);
    en->atime_ns = (int64_t)rec_u64_or(r, T_ATIME_NS, 0),
    en->ctime_ns = (int64_t)rec_u64_or(r, T_CTIME_NS, 0);
    size_t n = 0;
    struct field f;
    while (n < XATTR_MAX && rec_next(&r, &f))
        if (f.tag == T_XATTR && !memchr(f.v.p, 0, f.v.n))
            b->xattr[n++] = xstrndup(f.v.p, f.v.n);
    en->xattr = n ? (const char *const *)b->xattr : NULL;
}

static void entry_done(struct entry_box *b)
{
    for (int i = 0; i < 5; i++)
        free(b->strings[i]);
    for (char **p = b->xattr; *p; p++)
        free(*p);
}

static bool first_entry(struct rec r, struct entry_box *b)
{
    struct field f = {.tag = T_ENTRY};
    if (!rec_get(r, T_ENTRY, &f.v))
        return false;
    entry_read(b, field_rec(f));
    return true;
}

/* ---- unary calls that answer with at most one entry ---- */
struct one {
    files_entry_cb *cb;
    void *arg;
};

static void one_done(void *arg, const struct err *e, struct rec r)
{
    struct one o = *(struct one *)arg;
    free(arg);
    struct entry_box b;
    if (!e && first_entry(r, &b)) {
        b.en.remote = rec_u64_or(r, T_FLAGS, 0) & STAT_REMOTE;
        o.cb(o.arg, NULL, &b.en);
        entry_done(&b);
    } else {
        o.cb(o.arg, e, NULL);
    }
}

static int one_call(struct agent *a, enum agent_op op, const struct buf *body, files_entry_cb *cb,
                    void *arg, struct err *e)
{
    static const struct call_ops ops = {.done = one_done};
    if (!a)
        return -1; /* who could not find one has said why */
    struct one *o = xcalloc(1, sizeof *o);
    *o = (struct one){cb, arg};
    if (!agent_call(a, op, body, &ops, o, e)) {
        free(o);
        return -1;
    }
    return 0;
}

static void put_path(struct buf *b, const char *path, const char *user)
{
    rec_put_str(b, T_PATH, path);
    rec_put_str(b, T_USER, user);
}

int files_stat_on(struct agent *a, const char *path, const char *user, files_entry_cb *cb,
                  void *arg, struct err *e)
{
    auto_buf b = {0};
    put_path(&b, path, user);
    return one_call(a, OP_STAT, &b, cb, arg, e);
}
int files_stat(struct sandbox *sb, const char *path, const char *user, files_entry_cb *cb,
               void *arg, struct err *e)
{
    return files_stat_on(sandbox_agent(sb, e), path, user, cb, arg, e);
}
int files_mkdir_on(struct agent *a, const char *path, const char *user, uint32_t mode, bool parents,
                   files_entry_cb *cb, void *arg, struct err *e)
{
    auto_buf b = {0};
    put_path(&b, path, user);
    rec_put_u64(&b, T_MODE, mode);
    rec_put_u64(&b, T_FLAGS, parents ? FILE_PARENTS : 0);
    return one_call(a, OP_MKDIR, &b, cb, arg, e);
}
int files_mkdir(struct sandbox *sb, const char *path, const char *user, uint32_t mode, bool parents,
                files_entry_cb *cb, void *arg, struct err *e)
{
    return files_mkdir_on(sandbox_agent(sb, e), path, user, mode, parents, cb, arg, e);
}
int files_move_on(struct agent *a, const char *from, const char *to, const char *user,
                  files_entry_cb *cb, void *arg, struct err *e)
{
    auto_buf b = {0};
    put_path(&b, from, user);
    rec_put_str(&b, T_DEST, to);
    rec_put_u64(&b, T_FLAGS, FILE_PARENTS);
    return one_call(a, OP_MOVE, &b, cb, arg, e);
}
int files_move(struct sandbox *sb, const char *from, const char *to, const char *user,
               files_entry_cb *cb, void *arg, struct err *e)
{
    return files_move_on(sandbox_agent(sb, e), from, to, user, cb, arg, e);
}
int files_remove_on(struct agent *a, const char *path, const char *user, bool recursive,
                    files_entry_cb *cb, void *arg, struct err *e)
{
    auto_buf b = {0};
    put_path(&b, path, user);
    rec_put_u64(&b, T_FLAGS, recursive ? FILE_RECURSIVE : 0);
    return one_call(a, OP_REMOVE, &b, cb, arg, e);
}
int files_remove(struct sandbox *sb, const char *path, const char *user, bool recursive,
                 files_entry_cb *cb, void *arg, struct err *e)
{
    return files_remove_on(sandbox_agent(sb, e), path, user, recursive, cb, arg, e);
}
int files_setattr_on(struct agent *a, const char *path, const char *user, const uint32_t *mode,
                     const char *owner, const char *group, files_entry_cb *cb, void *arg,
                     struct err *e)
{
    auto_buf b = {0};
    put_path(&b, path, user);
    if (mode)
        rec_put_u64(&b, T_MODE, *mode);
    rec_put_str(&b, T_OWNER, owner);
    rec_put_str(&b, T_GROUP, group);
    return one_call(a, OP_SETATTR, &b, cb, arg, e);
}
int files_setattr(struct sandbox *sb, const char *path, const char *user, const uint32_t *mode,
                  const char *owner, const char *group, files_entry_cb *cb, void *arg,
                  struct err *e)
{
    return files_setattr_on(sandbox_agent(sb, e), path, user, mode, owner, group, cb, arg, e);
}
int files_symlink_on(struct agent *a, const char *target, const char *path, const char *user,
                     files_entry_cb *cb, void *arg, struct err *e)
{
    auto_buf b = {0};
    put_path(&b, path, user);
    rec_put_str(&b, T_TARGET, target);
    return one_call(a, OP_SYMLINK, &b, cb, arg, e);
}
int files_symlink(struct sandbox *sb, const char *target, const char *path, const char *user,
                  files_entry_cb *cb, void *arg, struct err *e)
{
    return files_symlink_on(sandbox_agent(sb, e), target, path, user, cb, arg, e);
}

/* ---- list ---- */
struct listing {
    struct files_list_ops ops;
    void *arg;
};

static void list_event(void *arg, uint8_t ev, struct rec r)
{
    struct listing *l = arg;
    struct field f;
    if (ev != EV_ENTRIES)
        return;
    while (rec_next(&r, &f))
        if (f.tag == T_ENTRY) {
            struct entry_box b;
            entry_read(&b, field_rec(f));
            l->ops.entries(l->arg, &b.en, 1);
            entry_done(&b);
        }
}
static void list_done(void *arg, const struct err *e, struct rec r)
{
    (void)r;
    struct listing l = *(struct listing *)arg;
    free(arg);
    l.ops.done(l.arg, e);
}
int files_list(struct sandbox *sb, const char *path, const char *user, unsigned depth,
               const struct files_list_ops *o, void *arg, struct err *e)
{
    return files_list_on(sandbox_agent(sb, e), path, user, depth, o, arg, e);
}
int files_list_on(struct agent *a, const char *path, const char *user, unsigned depth,
                  const struct files_list_ops *o, void *arg, struct err *e)
{
    static const struct call_ops ops = {.event = list_event, .done = list_done};
    if (!a)
        return -1;
    auto_buf b = {0};
    put_path(&b, path, user);
    rec_put_u64(&b, T_DEPTH, depth);
    struct listing *l = xcalloc(1, sizeof *l);
    *l = (struct listing){*o, arg};
    if (!agent_call(a, OP_LIST, &b, &ops, l, e)) {
        free(l);
        return -1;
    }
    return 0;
}

/* ---- read ---- */
struct file_read {
    struct loop *loop;
    struct call *call;
    struct file_read_ops ops;
    void *arg;
    size_t owed;
    bool opened;
};

static void read_event(void *arg, uint8_t ev, struct rec r)
{
    struct file_read *f = arg;
    struct entry_box b;
    if (ev == EV_ENTRIES && !f->opened && first_entry(r, &b)) {
        f->opened = true;
        f->ops.opened(f->arg, &b.en);
        entry_done(&b);
    }
}
static void read_data(void *arg, uint8_t chan, const unsigned char *p, size_t n)
{
    struct file_read *f = arg;
    if (chan == CH_FILE && f->opened)
        f->ops.data(f->arg, p, n);
    else
        file_read_consumed(f, n);
}
static void read_done(void *arg, const struct err *e, struct rec r)
{
    struct file_read *f = arg;
    struct err bad;
    f->call = NULL;
    if (!e && !f->opened) {
        err_set(&bad, E_GUEST, "the agent answered a read without opening the file");
        e = &bad;
    }
    f->ops.done(f->arg, e, rec_u64_or(r, T_SIZE, 0));
    free(f);
}
struct file_read *file_read_start(struct sandbox *sb, const char *path, const char *user,
                                  uint64_t offset, uint64_t size, const struct file_read_ops *o,
                                  void *arg, struct err *e)
{
    return file_read_start_on(sandbox_agent(sb, e), path, user, offset, size, o, arg, e);
}
struct file_read *file_read_start_on(struct agent *a, const char *path, const char *user,
                                     uint64_t offset, uint64_t size, const struct file_read_ops *o,
                                     void *arg, struct err *e)
{
    static const struct call_ops ops = {.event = read_event, .data = read_data, .done = read_done};
    if (!a)
        return NULL;
    auto_buf b = {0};
    put_path(&b, path, user);
    rec_put_u64(&b, T_OFFSET, offset);
    if (size != UINT64_MAX)
        rec_put_u64(&b, T_SIZE, size);
    rec_put_u64(&b, T_CREDIT, WINDOW);
    struct file_read *f = xcalloc(1, sizeof *f);
    *f = (struct file_read){.loop = agent_loop(a), .ops = *o, .arg = arg};
    f->call = agent_call(a, OP_READ, &b, &ops, f, e);
    if (!f->call) {
        free(f);
        return NULL;
    }
    return f;
}
void file_read_consumed(struct file_read *f, size_t n)
{
    f->owed += n;
    if (f->call && f->owed >= WINDOW / 4) {
        call_credit(f->call, f->owed);
        f->owed = 0;
    }
}
void file_read_cancel(struct file_read *f)
{
    if (!f->call)
        return; /* inside its own done */
    call_cancel(f->call);
    f->call = NULL;
    loop_defer(f->loop, free, f);
}

/* ---- write ---- */
struct file_write {
    struct loop *loop;
    struct call *call;
    struct file_write_ops ops;
    void *arg;
};

static void write_room(void *arg)
{
    struct file_write *f = arg;
    if (f->ops.room)
        f->ops.room(f->arg);
}
static void write_done(void *arg, const struct err *e, struct rec r)
{
    struct file_write *f = arg;
    struct entry_box b;
    struct err bad;
    f->call = NULL;
    if (!e && first_entry(r, &b)) {
        f->ops.done(f->arg, NULL, &b.en);
        entry_done(&b);
    } else {
        if (!e) {
            err_set(&bad, E_GUEST, "the agent answered a write without an entry");
            e = &bad;
        }
        f->ops.done(f->arg, e, NULL);
    }
    free(f);
}
struct file_write *file_write_start(struct sandbox *sb, const struct file_write_spec *s,
                                    const struct file_write_ops *o, void *arg, struct err *e)
{
    return file_write_start_on(sandbox_agent(sb, e), s, o, arg, e);
}
struct file_write *file_write_start_on(struct agent *a, const struct file_write_spec *s,
                                       const struct file_write_ops *o, void *arg, struct err *e)
{
    static const struct call_ops ops = {.room = write_room, .done = write_done};
    if (!a)
        return NULL;
    auto_buf b = {0};
    put_path(&b, s->path, s->user);
    if (s->mode)
        rec_put_u64(&b, T_MODE, s->mode);
    rec_put_u64(&b, T_FLAGS,
                (s->no_parents ? 0u : FILE_PARENTS) | (s->append ? FILE_APPEND : 0u) |
                    (s->excl ? FILE_EXCL : 0u) | (s->own ? FILE_OWN : 0u));
    rec_put_str(&b, T_NAME, s->xattr_clear);
    for (const char *const *x = s->xattr; x && *x; x++)
        rec_put_str(&b, T_XATTR, *x);
    struct file_write *f = xcalloc(1, sizeof *f);
    *f = (struct file_write){.loop = agent_loop(a), .ops = *o, .arg = arg};
    f->call = agent_call(a, OP_WRITE, &b, &ops, f, e);
    if (!f->call) {
        free(f);
        return NULL;
    }
    return f;
}
size_t file_write_room(const struct file_write *f) { return f->call ? call_room(f->call) : 0; }
size_t file_write_send(struct file_write *f, const void *p, size_t n)
{
    return f->call ? call_send(f->call, CH_FILE, p, n) : 0;
}
void file_write_eof(struct file_write *f)
{
    if (f->call)
        call_eof(f->call, CH_FILE);
}
void file_write_cancel(struct file_write *f)
{
    if (!f->call)
        return;
    call_cancel(f->call);
    f->call = NULL;
    loop_defer(f->loop, free, f);
}

/* ---- watch ---- */
struct watch {
    struct loop *loop;
    struct call *call;
    struct watch_ops ops;
    void *arg;
};

static void watch_event(void *arg, uint8_t ev, struct rec r)
{
    struct watch *w = arg;
    if (ev == EV_STARTED) {
        w->ops.ready(w->arg);
    } else if (ev == EV_WATCH) {
        struct entry_box b;
        bool has = first_entry(r, &b);
        char *name = dup_or(r, T_NAME, "");
        w->ops.change(w->arg, (char)rec_u64_or(r, T_TYPE, 'o'), name, rec_u64_or(r, T_SEQ, 0),
                      has ? &b.en : NULL);
        free(name);
        if (has)
            entry_done(&b);
    }
}
static void watch_done(void *arg, const struct err *e, struct rec r)
{
    (void)r;
    struct watch *w = arg;
    w->call = NULL;
    w->ops.done(w->arg, e);
    free(w);
}
struct watch *watch_start(struct sandbox *sb, const char *path, const char *user, bool recursive,
                          bool entries, const struct watch_ops *o, void *arg, struct err *e)
{
    static const struct call_ops ops = {.event = watch_event, .done = watch_done};
    struct agent *a = sandbox_agent(sb, e);
    if (!a)
        return NULL;
    auto_buf b = {0};
    put_path(&b, path, user);
    rec_put_u64(&b, T_FLAGS, (recursive ? WATCH_RECURSIVE : 0u) | (entries ? WATCH_ENTRY : 0u));
    struct watch *w = xcalloc(1, sizeof *w);
    *w = (struct watch){.loop = agent_loop(a), .ops = *o, .arg = arg};
    w->call = agent_call(a, OP_WATCH, &b, &ops, w, e);
    if (!w->call) {
        free(w);
        return NULL;
    }
    return w;
}
void watch_cancel(struct watch *w)
{
    if (!w->call)
        return;
    call_cancel(w->call);
    w->call = NULL;
    loop_defer(w->loop, free, w);
}
