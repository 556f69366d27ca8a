/* A core that does what the test says, in place of libcore: every core function
 * the API calls is here, so the linker never looks for the real ones (except
 * kv and state, which are pure). Plus a server on a socket pair, turned by hand. */
#pragma once
#include "api/api.h"
#include "base/clock.h"
#include "core/host/auth.h"
#include "core/code/context.h"
#include "core/life/pause.h"
#include "core/build/build.h"
#include "core/core.h"
#include "core/doctor.h"
#include "core/host/event.h"
#include "core/host/note.h"
#include "core/sandbox/exec.h"
#include "core/sandbox/files.h"
#include "core/network/egress_log.h"
#include "core/network/network.h"
#include "core/network/secret.h"
#include "core/isolate/isolate.h"
#include "core/sandbox/sandbox.h"
#include "core/life/fork.h"
#include "core/pack/pack.h"
#include "core/network/preset.h"
#include "core/pack/signer.h"
#include "core/catalog/snapshot.h"
#include "core/catalog/template.h"
#include "core/host/tenant.h"
#include "core/life/usage.h"
#include "core/volume/volume.h"
#include "core/sandbox/tunnel.h"
#include "http/server.h"
#include "http/ws.h"
#include "test.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#define ID "i0000000000000000abcd"
struct core { struct loop *loop; struct config cfg; struct sandbox sb; struct list followers; struct event ev[600]; size_t nev; };

/* What the API asked for, and what the test decides. */
struct exec { struct exec_ops ops; void *arg; bool dead; };
struct file_read { struct file_read_ops ops; void *arg; };
struct file_write { struct file_write_ops ops; void *arg; };
struct watch { struct watch_ops ops; void *arg; };
struct build { struct build_ops ops; void *arg; };
static struct fake {
    struct err refuse; /* code set: the next start is refused with it */
    struct exec *x;
    struct buf argv, env, input, cwd, tag, user;
    bool stdin_pipe, detached, eof;
    unsigned cols, rows, kills, detaches;
    uint64_t timeout_ms, offset;
    size_t room, consumed;
    struct { exec_cb *cb; void *arg; int signo; bool group; char who[64]; unsigned cols, rows; } unary;
    struct buf pieces; /* "61440,38560,close," */
    struct { sandbox_cb *cb; void *arg; struct sandbox_spec spec; struct buf name, metadata, tenant; } create, kill;
    unsigned sandbox_kills, wakes;
    struct pause_spec pause;
    struct resume_spec resume;
    struct file_read *rd;
    struct file_write *wr;
    unsigned rd_cancels, wr_cancels, watch_cancels, build_cancels;
    struct buf path;
    size_t rd_consumed;
    bool wr_eof;
    uint32_t mode;
    files_entry_cb *entry_cb;
    const struct files_list_ops *list_ops;
    void *cb_arg;
    struct watch *watch;
    struct build *build;
    struct buf recipe, upload;
    void (*metrics_cb)(void *, const struct err *, const struct sandbox_metrics *);
    void (*console_cb)(void *, struct str, const struct err *);
    void (*list_cb)(void *, const struct err *, const struct proc_info *, size_t);
    struct { network_cb *cb; void *arg; struct buf text; } network;
    struct { egress_page_cb *cb; void *arg; uint64_t after; unsigned limit; bool verify; struct buf filter; } egress;
    int down, keep;
    struct { isolate_done *done; void *arg; struct isolate_spec spec; struct buf code, input, language, template, function; unsigned cancels; } eval;
} F;

static inline void fake_set(struct buf *b, const char *z) { b->n = 0; buf_puts(b, z ? z : "-"); }
static inline bool fake_refuses(struct err *e)
{
    if (!F.refuse.code)
        return false;
    if (e)
        *e = F.refuse;
    F.refuse.code = E_OK;
    return true;
}

/* core.h, auth.h */
struct loop *core_loop(struct core *c) { return c->loop; }
const struct config *core_config(struct core *c) { return &c->cfg; }
void core_counts(struct core *c, struct core_counts *r) { (void)c, *r = (struct core_counts){.creates = 7, .templates = 1}; r->sandboxes[SB_RUNNING] = 1; }
void doctor_ask_root(struct core *c, doctor_root_done *done, void *arg)
{
    (void)c;
    done(arg, &(struct doctor_root){0});
}
size_t doctor_run(const struct config *cfg, const struct doctor_root *root, struct doctor_check *ret, size_t max)
{
    (void)root;
    (void)cfg, (void)max;
    ret[0] = (struct doctor_check){.name = "kvm", .status = "warn", .found = "no", .lost = "speed", .fix = "buy"};
    return 1;
}
size_t presets_names(struct core *c, const char **ret, size_t max)
{
    (void)c, (void)max;
    ret[0] = "pip";
    return 1;
}
void presets_load(struct core *c, const char *const *names, size_t n, void (*done)(void *arg, const struct err *e), void *arg)
{
    (void)c, (void)names, (void)n;
    done(arg, NULL);
}
size_t presets_report(struct core *c, struct doctor_check *ret, size_t max)
{
    (void)c, (void)max;
    ret[0] = (struct doctor_check){.name = "preset pip", .status = "ok", .found = "index.example.org (built in)"};
    return 1;
}
#define KEY "e2b_0123456789012345678901234567890123456789"
static struct key fake_key = {.id = "k00000000000000000001", .name = (char *)(uintptr_t)"ci", .tenant = (char *)(uintptr_t)"owner", .role = ROLE_ADMIN, .prefix = "e2b_01234567", .created_ns = 1000000000};
/* The key that the test sends. Its role and tenant are the test's to change; put them back. */
static struct key fake_sent = {.id = "k00000000000000000002", .name = (char *)(uintptr_t)"owner", .tenant = (char *)(uintptr_t)"owner", .role = ROLE_ADMIN};
const struct key *auth_check(struct core *c, struct str key, struct err *e)
{
    (void)c;
    if (str_eqz(key, KEY))
        return &fake_sent;
    err_set(e, E_UNAUTHENTICATED, "the API key is unknown or was revoked");
    return NULL;
}
bool auth_expired(const struct key *k)
{
    (void)k;
    return false;
}
struct caller auth_caller(const struct key *k)
{
    return k ? (struct caller){.role = k->role, .tenant = k->tenant, .scope = &k->scope, .key = k}
             : (struct caller){.role = ROLE_NONE, .tenant = ""};
}
const struct key *auth_find(struct core *c, struct str key) { return auth_check(c, key, NULL); }
static struct {
    enum role role;
    char tenant[TENANT_NAME_MAX + 1];
} fake_key_spec;
int auth_create(struct core *c, struct key_spec *spec, char plain[AUTH_PLAIN], struct key **ret,
                struct err *e)
{
    (void)c, (void)e;
    scope_free(&spec->scope);
    fake_key_spec.role = spec->role;
    (void)snprintf(fake_key_spec.tenant, sizeof fake_key_spec.tenant, "%s",
                   spec->tenant ? spec->tenant : "");
    memcpy(plain, KEY, 45);
    *ret = &fake_key;
    return 0;
}
struct key *auth_key_for(struct core *c, const struct caller *who, const char *id, struct err *e)
{
    (void)c, (void)who;
    if (!strcmp(id, fake_key.id))
        return &fake_key;
    err_set(e, E_NOT_FOUND, "no such key");
    return NULL;
}
void auth_revoke(struct core *c, struct key *k) { (void)c, (void)k; }
size_t auth_list(struct core *c, struct key **ret, size_t max) { (void)c, (void)max; ret[0] = &fake_key; return 1; }

/* note.h */
void core_note(struct core *c, const char *name, const char *text)
{
    (void)c, (void)name, (void)text;
}
char *core_noted(struct core *c, const char *name)
{
    (void)c, (void)name;
    return NULL;
}
int core_keyfile(struct core *c, const char *file, unsigned char ret[KEYFILE_BYTES], struct err *e)
{
    (void)c, (void)file, (void)e;
    memset(ret, 7, KEYFILE_BYTES);
    return 0;
}

/* sandbox.h */
static inline void fake_copy(struct buf *b, const char *p, size_t n)
{
    b->n = 0;
    buf_put(b, p ? p : "", p ? n : 0);
}
static inline void fake_copyz(struct buf *b, const char *z) { fake_copy(b, z, z ? strlen(z) : 0); }
bool isolate_language_ok(const char *n) { return !strcmp(n, "python") || !strcmp(n, "js"); }
const char *isolate_end_name(enum isolate_end x) { return x == ISOLATE_FORBIDDEN ? "forbidden" : x == ISOLATE_EXCEPTION ? "exception" : "timeout"; }
struct isolate_call *isolate_eval(struct core *c, const struct isolate_spec *s, isolate_done *done, void *arg, struct err *e)
{
    (void)c;
    if (F.refuse.code) {
        *e = F.refuse;
        F.refuse.code = 0;
        return NULL;
    }
    F.eval.done = done, F.eval.arg = arg, F.eval.spec = *s;
    fake_copy(&F.eval.code, s->code.p, s->code.n), fake_copy(&F.eval.input, s->input.p, s->input.n);
    fake_copyz(&F.eval.language, s->language), fake_copyz(&F.eval.template, s->template), fake_copyz(&F.eval.function, s->function);
    return (struct isolate_call *)&F.eval;
}
void isolate_cancel(struct isolate_call *k) { (void)k, F.eval.cancels++; }
const char *sandbox_boundary(const struct sandbox *sb) { (void)sb; return "own kernel"; }
const char *sandbox_accel(const struct sandbox *sb) { (void)sb; return "tcg"; }
struct sandbox *sandbox_find(struct core *c, const char *id, struct err *e)
{
    if (!strcmp(id, ID) || !strcmp(id, "box"))
        return &c->sb;
    err_set(e, E_NOT_FOUND, "sandbox '%s' does not exist", id);
    return NULL;
}
struct sandbox *sandbox_find_for(struct core *c, const struct caller *who, const char *id,
                                 struct err *e)
{
    struct sandbox *sb = sandbox_find(c, id, e);
    if (!sb || caller_sees(who, "owner"))
        return sb;
    err_set(e, E_NOT_FOUND, "sandbox '%s' does not exist", id);
    return NULL;
}
int sandbox_create(struct core *c, const struct sandbox_spec *spec, sandbox_cb *done, void *arg, struct err *e)
{
    (void)c;
    if (fake_refuses(e))
        return -1;
    F.create.cb = done, F.create.arg = arg, F.create.spec = *spec;
    fake_set(&F.network.text, spec->network ? spec->network->text : NULL);
    fake_set(&F.create.name, spec->name);
    fake_set(&F.create.tenant, spec->tenant);
    fake_set(&F.create.metadata, spec->metadata.n ? spec->metadata.at[0].v : NULL);
    return 0;
}
int sandbox_kill(struct sandbox *sb, enum end_reason why, const char *message, sandbox_cb *done, void *arg, struct err *e)
{
    (void)sb, (void)why, (void)message, (void)e;
    F.sandbox_kills++;
    F.kill.cb = done, F.kill.arg = arg;
    return 0;
}
int sandbox_recover(struct sandbox *sb, uint32_t s, recover_cb *done, void *arg, struct err *e) { (void)s, (void)e; done(arg, sb, LOST_MEMORY, NULL); return 0; }
void recover_put_lost(struct jw *w, unsigned lost) { if (lost) jw_strz(w, "memory"); }
int sandbox_keep_alive(struct sandbox *sb, uint32_t s, struct err *e) { (void)e; if (s > sb->timeout_s) sb->timeout_s = s; return 0; }
void sandbox_set_idle(struct sandbox *sb, uint32_t s, enum on_timeout what) { sb->life.idle_s = s; sb->life.on_idle = what; }
int64_t sandbox_lifetime_end(const struct sandbox *sb) { (void)sb; return INT64_MAX; }
int sandbox_set_timeout(struct sandbox *sb, uint32_t s, struct err *e) { (void)e; sb->timeout_s = s; return 0; }
static const char *fake_tenant = "owner";
const char *sandbox_tenant(const struct sandbox *sb) { (void)sb; return fake_tenant; }
int sandbox_rename(struct sandbox *sb, const char *name, struct err *e) { (void)sb; return name && !strcmp(name, "taken") ? err_set(e, E_CONFLICT, "taken") : 0; }
void sandbox_keep(struct sandbox *sb, const char *k, const char *v) { kv_set(&sb->kept.dialect, str_of(k), str_of(v)); }
struct agent *sandbox_agent(struct sandbox *sb, struct err *e)
{
    if (sb->state == SB_RUNNING)
        return (struct agent *)(void *)sb; /* not NULL is all that is asked of it */
    err_set(e, E_GONE, "sandbox %s is gone", sb->id);
    return NULL;
}
void sandbox_set_on_timeout(struct sandbox *sb, enum on_timeout what) { sb->on_timeout = what; }
/* pause.h */
int sandbox_pause(struct sandbox *sb, const struct pause_spec *how, sandbox_cb *done, void *arg, struct err *e)
{
    (void)sb;
    if (fake_refuses(e))
        return -1;
    F.pause = *how, F.kill.cb = done, F.kill.arg = arg;
    return 0;
}
int sandbox_resume(struct sandbox *sb, const struct resume_spec *how, sandbox_cb *done, void *arg, struct err *e)
{
    (void)sb;
    if (fake_refuses(e))
        return -1;
    F.resume = *how, F.kill.cb = done, F.kill.arg = arg;
    return 0;
}
void sandbox_wake(struct sandbox *sb, sandbox_cb *done, void *arg) { (void)sb, F.kill.cb = done, F.kill.arg = arg, F.wakes++; }
int sandbox_set_metadata(struct sandbox *sb, const struct kv *m, struct err *e) { (void)sb, (void)m, (void)e; return 0; }
size_t sandbox_list(struct core *c, const struct sandbox_filter *f, struct sandbox **ret, size_t max, bool *more, struct err *e)
{
    (void)max;
    if (fake_refuses(e))
        return SIZE_MAX;
    ret[0] = &c->sb;
    *more = !f->cursor; /* of two pages, the second is the last */
    return 1;
}
int sandbox_metrics(struct sandbox *sb, void (*cb)(void *, const struct err *, const struct sandbox_metrics *), void *arg, struct err *e)
{
    (void)sb;
    F.metrics_cb = cb, F.cb_arg = arg;
    return fake_refuses(e) ? -1 : 0;
}

int sandbox_console(struct sandbox *sb, void (*cb)(void *, struct str, const struct err *), void *arg, struct err *e)
{
    (void)sb;
    F.console_cb = cb, F.cb_arg = arg;
    return fake_refuses(e) ? -1 : 0;
}

/* network.h, secret.h, egress_log.h: what the API itself does with them */
int network_parse(struct core *c, const struct caller *who, const char *tenant, struct json *obj,
                  struct network_spec *ret, struct err *e)
{
    (void)who, (void)tenant;
    struct str mode = {0};
    struct buf text = {0};
    (void)c;
    *ret = (struct network_spec){0};
    if (obj && json_str(obj, "mode", &mode, false, e))
        return -1;
    if (obj)
        json_dump(obj, &text);
    if (mode.p && str_eqz(mode, "allow") && !json_get(obj, "allow"))
        return buf_free(&text), err_set(e, E_INVALID, "network.allow: missing");
    ret->text = obj ? buf_take(&text) : xstrdup("{}");
    return 0;
}
void network_spec_free(struct network_spec *s) { free(s->text), kv_free(&s->values), *s = (struct network_spec){0}; }
const char *network_limited(const struct sandbox *sb, char say[NETWORK_LIMITED_TEXT]) { (void)sb, (void)say; return NULL; }
void network_put(struct jw *w, const struct sandbox *sb)
{
    (void)sb;
    jw_obj(w);
    jw_kv_str(w, "mode", "none");
    jw_end(w);
}
enum policy_mode network_mode(const struct sandbox *sb)
{
    (void)sb;
    return POLICY_NONE;
}
int network_set(struct sandbox *sb, const struct network_spec *s, network_cb *cb, void *arg, struct err *e)
{
    (void)sb;
    if (fake_refuses(e))
        return -1;
    fake_set(&F.network.text, s->text);
    F.network.cb = cb, F.network.arg = arg;
    return 0;
}
void egress_log_query(struct core *c, const struct egress_query *q, egress_page_cb *cb, void *arg)
{
    (void)c;
    F.egress.cb = cb, F.egress.arg = arg, F.egress.after = q->after, F.egress.limit = q->limit, F.egress.verify = q->verify;
    fake_set(&F.egress.filter, q->verdict);
}
static struct secret fake_secret = {.id = "s00000000000000000009", .name = (char *)(uintptr_t)"token@owner", .label = (char *)(uintptr_t)"token", .tenant = (char *)(uintptr_t)"owner", .created_ns = 1000000000, .updated_ns = 1000000000, .calls = 3};
int secret_put(struct core *c, const struct secret_spec *s, void (*done)(void *, const struct err *), void *arg, struct err *e)
{
    (void)c, (void)s;
    if (fake_refuses(e))
        return -1;
    F.unary.cb = done, F.unary.arg = arg;
    return 0;
}
void secret_delete(struct core *c, struct secret *s) { (void)c, (void)s; }
struct secret *secret_find(struct core *c, const char *name) { (void)c; return strcmp(name, fake_secret.name) ? NULL : &fake_secret; }
struct secret *secret_of_tenant(struct core *c, const char *tenant, const char *name) { (void)c, (void)tenant; return strcmp(name, "token") ? NULL : &fake_secret; }
struct secret *secret_find_for(struct core *c, const struct caller *who, const char *id, struct err *e)
{
    (void)c;
    if (caller_sees(who, "owner") && (!strcmp(id, fake_secret.id) || !strcmp(id, "token")))
        return &fake_secret;
    err_set(e, E_NOT_FOUND, "no such secret");
    return NULL;
}
bool secret_name_ok(const char *name) { return *name != 0; }
size_t secret_list(struct core *c, const struct caller *who, struct secret **ret, size_t max) { (void)c, (void)max, (void)who; ret[0] = &fake_secret; return 1; }
void secret_refresh(struct core *c, void (*done)(void *arg), void *arg) { loop_defer(c->loop, done, arg); }

/* exec.h */
static inline struct exec *fake_exec(const struct exec_ops *o, void *arg, struct err *e)
{
    if (fake_refuses(e))
        return NULL;
    F.x = xcalloc(1, sizeof *F.x);
    F.x->ops = *o, F.x->arg = arg;
    F.consumed = F.kills = F.detaches = 0;
    F.input.n = 0, F.eof = false;
    return F.x;
}
static inline void fake_done(const struct err *e) /* the last callback frees, as in core */
{
    struct exec *x = F.x;
    F.x = NULL;
    x->ops.done(x->arg, e);
    free(x);
}
static inline void fake_join(struct buf *b, char *const *v)
{
    b->n = 0;
    for (; v && *v; v++)
        buf_printf(b, "%s|", *v);
    buf_reserve(b, 0);
    b->p[b->n] = 0;
}
struct exec *exec_start(struct sandbox *sb, const struct exec_spec *s, const struct exec_ops *o, void *arg, struct err *e)
{
    (void)sb;
    fake_join(&F.argv, s->argv);
    fake_join(&F.env, s->env);
    fake_set(&F.cwd, s->cwd), fake_set(&F.tag, s->tag), fake_set(&F.user, s->user);
    F.stdin_pipe = s->stdin_pipe, F.detached = s->detached, F.cols = s->cols, F.rows = s->rows, F.timeout_ms = s->timeout_ms;
    return fake_exec(o, arg, e);
}
struct exec *exec_attach(struct sandbox *sb, const char *who, uint64_t offset, const struct exec_ops *o, void *arg, struct err *e)
{
    (void)sb;
    snprintf(F.unary.who, sizeof F.unary.who, "%s", who);
    F.offset = offset;
    return fake_exec(o, arg, e);
}
void exec_consumed(struct exec *x, size_t n) { CHECK(x == F.x); F.consumed += n; }
size_t exec_input_room(const struct exec *x) { (void)x; return F.room; }
size_t exec_input(struct exec *x, const void *p, size_t n)
{
    CHECK(x == F.x);
    n = n < F.room ? n : F.room;
    buf_put(&F.input, p, n);
    F.room -= n;
    return n;
}
void exec_input_eof(struct exec *x) { CHECK(x == F.x); F.eof = true; }
void exec_detach(struct exec *x) { CHECK(x == F.x); F.detaches++; F.x = NULL; free(x); }
void exec_kill(struct exec *x) { CHECK(x == F.x); F.kills++; F.x = NULL; free(x); }
int exec_list(struct sandbox *sb, void (*cb)(void *, const struct err *, const struct proc_info *, size_t), void *arg, struct err *e)
{
    (void)sb;
    F.list_cb = cb, F.cb_arg = arg;
    return fake_refuses(e) ? -1 : 0;
}
static inline int fake_unary(const char *who, exec_cb *cb, void *arg, struct err *e)
{
    snprintf(F.unary.who, sizeof F.unary.who, "%s", who);
    F.unary.cb = cb, F.unary.arg = arg;
    return fake_refuses(e) ? -1 : 0;
}
static inline void fake_answer(const struct err *e)
{
    exec_cb *cb = F.unary.cb;
    CHECK(cb != NULL);
    F.unary.cb = NULL;
    cb(F.unary.arg, e);
}
int exec_signal(struct sandbox *sb, const char *who, int signo, bool group, exec_cb *cb, void *arg, struct err *e)
{
    (void)sb;
    F.unary.signo = signo, F.unary.group = group;
    return fake_unary(who, cb, arg, e);
}
int exec_resize(struct sandbox *sb, const char *who, unsigned cols, unsigned rows, exec_cb *cb, void *arg, struct err *e)
{
    (void)sb;
    F.unary.cols = cols, F.unary.rows = rows;
    return fake_unary(who, cb, arg, e);
}
int exec_write(struct sandbox *sb, const char *who, const void *p, size_t n, exec_cb *cb, void *arg, struct err *e)
{
    (void)sb;
    CHECK(!F.unary.cb); /* one at a time */
    buf_put(&F.input, p, n);
    buf_printf(&F.pieces, "%zu,", n);
    return fake_unary(who, cb, arg, e);
}
int exec_close_stdin(struct sandbox *sb, const char *who, exec_cb *cb, void *arg, struct err *e)
{
    (void)sb;
    CHECK(!F.unary.cb);
    buf_puts(&F.pieces, "close,");
    return fake_unary(who, cb, arg, e);
}
const char *signal_name(int n) { return n == 9 ? "SIGKILL" : "SIG?"; }
int signal_number(const char *s) { return !strcmp(s, "SIGTERM") || !strcmp(s, "TERM") ? 15 : -1; }

/* files.h */
static const struct file_entry fake_entry = {.name = "f", .path = "/home/user/f", .owner = "user", .group = "user", .type = 'f', .size = 5, .mode = 0644, .uid = 1000, .gid = 1000, .mtime_ns = 1000000000};
static inline int fake_entry_call(const char *path, files_entry_cb *cb, void *arg, struct err *e)
{
    fake_set(&F.path, path);
    F.entry_cb = cb, F.cb_arg = arg;
    return fake_refuses(e) ? -1 : 0;
}
int files_stat(struct sandbox *sb, const char *p, const char *u, files_entry_cb *cb, void *arg, struct err *e) { (void)sb, (void)u; return fake_entry_call(p, cb, arg, e); }
int files_mkdir(struct sandbox *sb, const char *p, const char *u, uint32_t mode, bool par, files_entry_cb *cb, void *arg, struct err *e)
{
    (void)sb, (void)u, (void)par;
    F.mode = mode;
    return fake_entry_call(p, cb, arg, e);
}
int files_move(struct sandbox *sb, const char *p, const char *to, const char *u, files_entry_cb *cb, void *arg, struct err *e) { (void)sb, (void)u, (void)to; return fake_entry_call(p, cb, arg, e); }
int files_remove(struct sandbox *sb, const char *p, const char *u, bool r, files_entry_cb *cb, void *arg, struct err *e) { (void)sb, (void)u, (void)r; return fake_entry_call(p, cb, arg, e); }
int files_setattr(struct sandbox *sb, const char *p, const char *u, const uint32_t *m, const char *o, const char *g, files_entry_cb *cb, void *arg, struct err *e)
{
    (void)sb, (void)u, (void)o, (void)g;
    F.mode = m ? *m : 0;
    return fake_entry_call(p, cb, arg, e);
}
int files_symlink(struct sandbox *sb, const char *t, const char *p, const char *u, files_entry_cb *cb, void *arg, struct err *e) { (void)sb, (void)u, (void)t; return fake_entry_call(p, cb, arg, e); }
int files_list(struct sandbox *sb, const char *p, const char *u, unsigned d, const struct files_list_ops *ops, void *arg, struct err *e)
{
    (void)sb, (void)u, (void)d;
    fake_set(&F.path, p);
    F.list_ops = ops, F.cb_arg = arg;
    return fake_refuses(e) ? -1 : 0;
}
struct file_read *file_read_start(struct sandbox *sb, const char *p, const char *u, uint64_t off, uint64_t size, const struct file_read_ops *ops, void *arg, struct err *e)
{
    (void)sb, (void)u, (void)off, (void)size;
    fake_set(&F.path, p);
    if (fake_refuses(e))
        return NULL;
    F.rd = xcalloc(1, sizeof *F.rd);
    F.rd->ops = *ops, F.rd->arg = arg;
    F.rd_consumed = F.rd_cancels = 0;
    return F.rd;
}
void file_read_consumed(struct file_read *f, size_t n) { CHECK(f == F.rd); F.rd_consumed += n; }
void file_read_cancel(struct file_read *f) { CHECK(f == F.rd); F.rd_cancels++; F.rd = NULL; free(f); }
static inline void fake_read_done(const struct err *e)
{
    struct file_read *f = F.rd;
    F.rd = NULL;
    f->ops.done(f->arg, e, 0);
    free(f);
}
struct file_write *file_write_start(struct sandbox *sb, const struct file_write_spec *s, const struct file_write_ops *ops, void *arg, struct err *e)
{
    (void)sb;
    fake_set(&F.path, s->path);
    F.mode = s->mode;
    if (fake_refuses(e))
        return NULL;
    F.wr = xcalloc(1, sizeof *F.wr);
    F.wr->ops = *ops, F.wr->arg = arg;
    F.wr_eof = false, F.wr_cancels = 0, F.input.n = 0;
    return F.wr;
}
size_t file_write_room(const struct file_write *f) { (void)f; return F.room; }
size_t file_write_send(struct file_write *f, const void *p, size_t n)
{
    CHECK(f == F.wr);
    CHECK(!F.wr_eof);
    n = n < F.room ? n : F.room;
    buf_put(&F.input, p, n);
    F.room -= n;
    return n;
}
void file_write_eof(struct file_write *f) { CHECK(f == F.wr); F.wr_eof = true; }
void file_write_cancel(struct file_write *f) { CHECK(f == F.wr); F.wr_cancels++; F.wr = NULL; free(f); }
static inline void fake_write_done(const struct err *e)
{
    struct file_write *f = F.wr;
    F.wr = NULL;
    f->ops.done(f->arg, e, e ? NULL : &fake_entry);
    free(f);
}
/* The _on forms, on a channel: the same fakes, whoever's channel it is. */
#define FAKE_SB(a) ((struct sandbox *)(void *)(a))
int files_stat_on(struct agent *a, const char *p, const char *u, files_entry_cb *cb, void *arg, struct err *e) { return files_stat(FAKE_SB(a), p, u, cb, arg, e); }
int files_mkdir_on(struct agent *a, const char *p, const char *u, uint32_t mode, bool par, files_entry_cb *cb, void *arg, struct err *e) { return files_mkdir(FAKE_SB(a), p, u, mode, par, cb, arg, e); }
int files_move_on(struct agent *a, const char *p, const char *to, const char *u, files_entry_cb *cb, void *arg, struct err *e) { return files_move(FAKE_SB(a), p, to, u, cb, arg, e); }
int files_remove_on(struct agent *a, const char *p, const char *u, bool r, files_entry_cb *cb, void *arg, struct err *e) { return files_remove(FAKE_SB(a), p, u, r, cb, arg, e); }
int files_setattr_on(struct agent *a, const char *p, const char *u, const uint32_t *m, const char *o, const char *g, files_entry_cb *cb, void *arg, struct err *e) { return files_setattr(FAKE_SB(a), p, u, m, o, g, cb, arg, e); }
int files_symlink_on(struct agent *a, const char *t, const char *p, const char *u, files_entry_cb *cb, void *arg, struct err *e) { return files_symlink(FAKE_SB(a), t, p, u, cb, arg, e); }
int files_list_on(struct agent *a, const char *p, const char *u, unsigned d, const struct files_list_ops *ops, void *arg, struct err *e) { return files_list(FAKE_SB(a), p, u, d, ops, arg, e); }
struct file_read *file_read_start_on(struct agent *a, const char *p, const char *u, uint64_t off, uint64_t size, const struct file_read_ops *ops, void *arg, struct err *e) { return file_read_start(FAKE_SB(a), p, u, off, size, ops, arg, e); }
struct file_write *file_write_start_on(struct agent *a, const struct file_write_spec *s, const struct file_write_ops *ops, void *arg, struct err *e) { return file_write_start(FAKE_SB(a), s, ops, arg, e); }

/* snapshot.h, fork.h: one snapshot, "first" */
static struct snapshot fake_snapshot = {.id = "s00000000000000000001", .name = (char *)(uintptr_t)"first", .sandbox = ID, .template_id = "t00000000000000000001",
                                        .template_name = (char *)(uintptr_t)"base", .memory = true, .cpu_millis = 1500, .memory_mib = 512,
                                        .disk_mib = 4096, .created_ns = 1000000000, .memory_bytes = 7, .disk_bytes = 5, .downtime_ns = 12340000};
static struct { snapshot_cb *cb; void *arg; struct snapshot_spec spec; struct fork_spec fork; fork_cb *forked; void (*deleted)(void *, const struct err *);
                struct snapshot_filter filter; struct buf name; sandbox_cb *back; bool boot; } SN;
struct snapshot *snapshot_find_for(struct core *c, const struct caller *who, const char *n,
                                   struct err *e)
{
    (void)c;
    if (!caller_sees(who, "owner"))
        err_set(e, E_NOT_FOUND, "snapshot '%s' does not exist", n);
    else if (!strcmp(n, fake_snapshot.id) || !strcmp(n, fake_snapshot.name))
        return &fake_snapshot;
    err_set(e, E_NOT_FOUND, "snapshot '%s' does not exist", n);
    return NULL;
}
int snapshot_take(struct sandbox *sb, const struct snapshot_spec *how, snapshot_cb *done, void *arg, struct err *e)
{
    (void)sb;
    SN.cb = done, SN.arg = arg, SN.spec = *how;
    fake_set(&SN.name, how->name);
    return fake_refuses(e) ? -1 : 0;
}
int snapshot_take_tree(struct sandbox *sb, const struct snapshot_spec *how, snapshot_cb *done, void *arg, struct err *e)
{
    fake_set(&F.path, how->path);
    return snapshot_take(sb, how, done, arg, e);
}
int snapshot_put_tree(struct snapshot *s, struct sandbox *sb, const char *path, void (*done)(void *, const struct err *), void *arg, struct err *e)
{
    (void)s, (void)sb;
    fake_set(&F.path, path);
    SN.deleted = done, SN.arg = arg;
    return fake_refuses(e) ? -1 : 0;
}
int snapshot_delete(struct snapshot *s, void (*done)(void *, const struct err *), void *arg, struct err *e)
{
    (void)s;
    SN.deleted = done, SN.arg = arg;
    return fake_refuses(e) ? -1 : 0;
}
size_t snapshot_list(struct core *c, const struct snapshot_filter *f, struct snapshot **ret, bool *more, struct err *e)
{
    (void)c;
    SN.filter = *f;
    *more = !f->match || f->match(&fake_snapshot, f->arg);
    if (!*more)
        return 0;
    ret[0] = &fake_snapshot;
    return fake_refuses(e) ? SIZE_MAX : 1;
}
unsigned snapshot_users(const struct snapshot *s) { (void)s; return 3; }
const char *snapshot_tenant(const struct snapshot *s) { (void)s; return ""; }
void usage_each(struct core *c, void (*fn)(void *, const struct usage *), void *arg)
{
    (void)c;
    fn(arg, &(struct usage){.tenant = "", .snapshots = 1, .snapshot_bytes = 10});
    fn(arg, &(struct usage){.tenant = "acme", .snapshots = 2, .snapshot_bytes = 20, .paused = 1, .paused_bytes = 5, .limit_bytes = 100});
}
const struct tenants *core_tenants(const struct core *c)
{
    static char name[] = "acme", ceiling[] = "{\"mode\":\"open\"}";
    static struct tenant one = {.name = name, .ceiling = ceiling, .limits = {.connections = 7}};
    static const struct tenants all = {&one, 1};
    (void)c;
    return &all;
}
const char *sandbox_base(const struct sandbox *sb) { return sb->kept.base; }
void fork_undo(struct core *c, const struct fork_child *child, unsigned n) { (void)c, (void)child, (void)n; }
int sandbox_fork(struct sandbox *sb, const struct fork_spec *how, fork_cb *done, void *arg, struct err *e)
{
    (void)sb;
    SN.fork = *how, SN.forked = done, SN.arg = arg;
    return fake_refuses(e) ? -1 : 0;
}
int sandbox_rollback(struct sandbox *sb, const struct snapshot *s, bool boot, sandbox_cb *done, void *arg, struct err *e)
{
    (void)sb, (void)s;
    SN.back = done, SN.arg = arg, SN.boot = boot;
    return fake_refuses(e) ? -1 : 0;
}

/* pack.h, signer.h: what the test says of a pack; one trusted key, "friend" */
struct pack_export { struct pack_export_ops ops; void *arg; };
struct pack_import { struct pack_import_ops ops; void *arg; };
static struct { struct pack_export out; struct pack_import in; unsigned asked, cancels; bool full, ended; struct buf name, got, trusted; } PK;
struct pack_export *pack_export_start(struct snapshot *s, const struct pack_export_ops *ops, void *arg, struct err *e)
{
    (void)s;
    PK.out = (struct pack_export){*ops, arg};
    return fake_refuses(e) ? NULL : &PK.out;
}
void pack_export_more(struct pack_export *x) { (void)x; PK.asked++; }
void pack_export_cancel(struct pack_export *x) { (void)x; PK.cancels++; }
struct pack_import *pack_import_start(struct core *c, const char *name, const char *tenant, const struct pack_import_ops *ops, void *arg, struct err *e)
{
    (void)c, (void)tenant;
    PK.in = (struct pack_import){*ops, arg};
    fake_set(&PK.name, name);
    PK.got.n = 0, PK.ended = false;
    return fake_refuses(e) ? NULL : &PK.in;
}
bool pack_import_push(struct pack_import *im, const void *p, size_t n) { (void)im; buf_put(&PK.got, p, n); return PK.full; }
void pack_import_end(struct pack_import *im) { (void)im; PK.ended = true; }
void pack_import_cancel(struct pack_import *im) { (void)im; PK.cancels++; }
int signer_own(struct core *c, struct signer *ret, struct err *e)
{
    (void)c;
    *ret = (struct signer){.name = SIGNER_OWN, .key = "00ff"};
    return fake_refuses(e) ? -1 : 0;
}
int signer_list(struct core *c, struct signer *ret, size_t max, size_t *n, struct err *e)
{
    (void)c, (void)max, (void)e;
    ret[0] = (struct signer){.name = "friend", .key = "11ee"};
    *n = 1;
    return 0;
}
int signer_trust(struct core *c, const char *name, const char *key, struct err *e)
{
    (void)c;
    PK.trusted.n = 0;
    buf_printf(&PK.trusted, "%s=%s", name, key);
    return fake_refuses(e) ? -1 : 0;
}
int signer_distrust(struct core *c, const char *name, struct err *e) { (void)c; return strcmp(name, "friend") ? err_set(e, E_NOT_FOUND, "no such key") : 0; }

/* volume.h: one volume, "data"; opening and the rest wait for the test */
static struct volume fake_volume = {.id = "v00000000000000000001", .name = (char *)(uintptr_t)"data", .tenant = (char *)(uintptr_t)"owner", .state = VOL_READY, .size_mib = 64,
                                    .created_ns = 1700000000000000000, .token = "0123456789012345678901234567890123456789"};
static struct { volume_cb *cb; void *arg; void (*open)(void *, struct volume *, struct agent *, const struct err *); void *open_arg;
                void (*usage)(void *, const struct err *, uint64_t); void *usage_arg; char name[64]; uint32_t size_mib, inodes; bool closed; } V;
bool volume_name_ok(const char *n) { return *n && strlen(n) < 64 && !strpbrk(n, " ./{}%"); }
struct volume *volume_find(struct core *c, const char *n, struct err *e)
{
    (void)c;
    if (!strcmp(n, fake_volume.id) || !strcmp(n, fake_volume.name))
        return &fake_volume;
    err_set(e, E_NOT_FOUND, "volume '%s' does not exist", n);
    return NULL;
}
struct volume *volume_find_for(struct core *c, const struct caller *who, const char *n,
                               struct err *e)
{
    struct volume *v = volume_find(c, n, e);
    if (!v || caller_sees(who, v->tenant))
        return v;
    err_set(e, E_NOT_FOUND, "volume '%s' does not exist", n);
    return NULL;
}
size_t volume_count(struct core *c) { (void)c; return 1; }
size_t volume_list(struct core *c, const struct caller *who, struct volume **ret, size_t max) { (void)c, (void)max, (void)who; ret[0] = &fake_volume; return 1; }
int volume_create(struct core *c, const struct volume_spec *s, volume_cb *done, void *arg, struct err *e)
{
    (void)c;
    if (fake_refuses(e))
        return -1;
    snprintf(V.name, sizeof V.name, "%s", s->name);
    V.size_mib = s->size_mib, V.inodes = s->inodes, V.cb = done, V.arg = arg;
    return 0;
}
int volume_delete(struct volume *v, volume_cb *done, void *arg, struct err *e)
{
    (void)v;
    V.cb = done, V.arg = arg;
    return fake_refuses(e) ? -1 : 0;
}
int volume_usage(struct volume *v, void (*cb)(void *, const struct err *, uint64_t), void *arg, struct err *e)
{
    (void)v;
    V.usage = cb, V.usage_arg = arg;
    return fake_refuses(e) ? -1 : 0;
}
void volume_open(struct volume *v, void (*cb)(void *, struct volume *, struct agent *, const struct err *), void *arg) { (void)v; V.open = cb, V.open_arg = arg; }
struct agent *volume_agent(struct volume *v, struct err *e)
{
    if (!V.closed)
        return (struct agent *)(void *)v;
    err_set(e, E_UNAVAILABLE, "closed");
    return NULL;
}
int volumes_check(struct core *c, const struct caller *who, const struct volume_mount *m, size_t n, struct err *e) { (void)who, (void)c, (void)m, (void)n; return fake_refuses(e) ? -1 : 0; }

struct watch *watch_start(struct sandbox *sb, const char *p, const char *u, bool r, bool en, const struct watch_ops *ops, void *arg, struct err *e)
{
    (void)sb, (void)u, (void)r, (void)en;
    fake_set(&F.path, p);
    if (fake_refuses(e))
        return NULL;
    F.watch = xcalloc(1, sizeof *F.watch);
    F.watch->ops = *ops, F.watch->arg = arg;
    return F.watch;
}
void watch_cancel(struct watch *w) { F.watch_cancels++; F.watch = NULL; free(w); }

/* template.h */
static struct template fake_template = {.id = "t00000000000000000001", .name = (char *)(uintptr_t)"base", .tenant = (char *)(uintptr_t)"", .source = (char *)(uintptr_t)"bootstrap", .created_ns = 1000000000, .size_bytes = 9, .disk_min_mib = 512, .warm_vm = true};
struct template *template_find(struct core *c, const char *n, struct err *e)
{
    (void)c;
    if (!strcmp(n, "base") || !strcmp(n, fake_template.id))
        return &fake_template;
    err_set(e, E_NOT_FOUND, "template '%s' does not exist", n);
    return NULL;
}
struct template *template_find_for(struct core *c, const struct caller *who, const char *n, struct err *e) { (void)who; return template_find(c, n, e); }
size_t template_list(struct core *c, const struct caller *who, struct template **ret, size_t max) { (void)c, (void)max, (void)who; ret[0] = &fake_template; return 1; }
int template_remove(struct core *c, struct template *t, void (*done)(void *, const struct err *), void *arg, struct err *e)
{
    (void)c, (void)t, (void)done, (void)arg;
    return err_set(e, E_CONFLICT, "template 'base' is in use");
}
static inline struct build *fake_build(const struct build_ops *ops, void *arg, struct err *e)
{
    if (fake_refuses(e))
        return NULL;
    F.build = xcalloc(1, sizeof *F.build);
    F.build->ops = *ops, F.build->arg = arg;
    return F.build;
}
static inline void fake_build_done(const struct template *t, const struct err *e)
{
    struct build *b = F.build;
    F.build = NULL;
    b->ops.done(b->arg, t, e);
    free(b);
}
struct build *build_builtin(struct core *c, const char *n, const char *b, bool f, const struct build_ops *ops, void *arg, struct err *e) { (void)c, (void)n, (void)b, (void)f; return fake_build(ops, arg, e); }
static inline void fake_upload(int fd)
{
    char t[4096];
    F.upload.n = 0;
    for (ssize_t r; fd >= 0 && (r = read(fd, t, sizeof t)) > 0;)
        buf_put(&F.upload, t, (size_t)r);
    if (fd >= 0)
        close(fd);
}
struct build *build_recipe(struct core *c, const struct recipe_spec *s, const struct build_ops *ops, void *arg, struct err *e)
{
    (void)c;
    F.recipe.n = 0;
    buf_put(&F.recipe, s->text.p, s->text.n);
    fake_upload(s->context_fd);
    return fake_build(ops, arg, e);
}
struct build *build_import(struct core *c, const char *tenant, const char *n, int fd, const struct build_ops *ops, void *arg, struct err *e)
{
    (void)c, (void)n, (void)tenant;
    fake_upload(fd);
    return fake_build(ops, arg, e);
}
void build_cancel(struct build *b) { F.build_cancels++; F.build = NULL; free(b); }
int build_tempfile(struct core *c, struct err *e)
{
    (void)c;
    char p[] = "/tmp/api-test-XXXXXX";
    if (fake_refuses(e))
        return -1;
    int fd = mkstemp(p);
    unlink(p);
    return fd;
}

/* event.h */
void event_follow(struct core *c, struct follower *f) { list_add_tail(&c->followers, &f->link); }
void event_unfollow(struct follower *f) { list_del(&f->link); }
void event_each(struct core *c, const struct caller *who, uint64_t since, const char *sandbox, void (*fn)(void *, const struct event *), void *arg)
{
    for (size_t i = 0; i < c->nev; i++)
        if (c->ev[i].seq > since && caller_sees(who, c->ev[i].tenant) &&
            (!sandbox || !strcmp(sandbox, c->ev[i].sandbox)))
            fn(arg, &c->ev[i]);
}
void event_emit(struct core *c, const char *type, const char *tenant, const char *sandbox,
                const char *data)
{
    struct event *ev = &c->ev[c->nev++];
    *ev = (struct event){.seq = c->nev, .at_ns = 1000000000, .data_json = (char *)(uintptr_t)data};
    snprintf(ev->type, sizeof ev->type, "%s", type);
    snprintf(ev->tenant, sizeof ev->tenant, "%s", tenant ? tenant : "");
    snprintf(ev->sandbox, sizeof ev->sandbox, "%s", sandbox ? sandbox : "");
    struct follower *f;
    list_each(f, &c->followers, link) f->fn(f->arg, ev);
}

/* tunnel.h: what the test wants to be a port of the guest */
struct tunnel { struct tunnel_ops ops; void *arg; struct loop *loop; };
static struct { struct tunnel *t; unsigned port, opens, closes; struct buf sent; size_t room, consumed; bool eof; } T;
struct tunnel *tunnel_open(struct sandbox *sb, unsigned port, const struct tunnel_ops *ops, void *arg, struct err *e)
{
    if (fake_refuses(e))
        return NULL;
    T.t = xcalloc(1, sizeof *T.t);
    *T.t = (struct tunnel){*ops, arg, sb->core->loop};
    T.port = port, T.opens++, T.sent.n = 0, T.eof = false;
    if (!T.room)
        T.room = SIZE_MAX / 2;
    return T.t;
}
size_t tunnel_room(const struct tunnel *t) { (void)t; return T.room; }
size_t tunnel_send(struct tunnel *t, const void *p, size_t n)
{
    (void)t;
    n = n < T.room ? n : T.room;
    buf_put(&T.sent, p, n);
    return n;
}
void tunnel_eof(struct tunnel *t) { (void)t; T.eof = true; }
void tunnel_consumed(struct tunnel *t, size_t n) { (void)t; T.consumed += n; }
void tunnel_close(struct tunnel *t) { T.closes++; T.t = NULL; loop_defer(t->loop, free, t); }
static inline void fake_tunnel_done(const struct err *e)
{
    struct tunnel *t = T.t;
    T.t = NULL;
    t->ops.done(t->arg, e);
    loop_defer(t->loop, free, t);
}

/* context.h */
struct eval { struct eval_ops ops; void *arg; };
static struct {
    struct eval *v;
    char context[64], id[64], cwd[64], verb[16];
    enum language language;
    struct buf code, env;
    uint64_t timeout_ms;
    size_t max_output;
    unsigned cancels, holds;
    bool held;
    context_cb *cb;
    void (*list_cb)(void *, const struct err *, const struct context_info *, size_t);
    void *arg;
} E;
const char *eval_how_name(enum eval_how h) { return h == EVAL_OK ? "ok" : h == EVAL_ERROR ? "error" : h == EVAL_TIMEOUT ? "timeout" : "lost"; }
struct eval *eval_start(struct sandbox *sb, const struct eval_spec *s, const struct eval_ops *ops, void *arg, struct err *e)
{
    (void)sb;
    if (fake_refuses(e))
        return NULL;
    E.v = xcalloc(1, sizeof *E.v);
    *E.v = (struct eval){*ops, arg};
    snprintf(E.context, sizeof E.context, "%s", s->context ? s->context : "-");
    E.language = s->language, E.timeout_ms = s->timeout_ms, E.max_output = s->max_output;
    E.code.n = E.env.n = 0;
    buf_put(&E.code, s->code.p, s->code.n);
    buf_puts(&E.env, s->env && s->env->n ? s->env->at[0].v : "-");
    return E.v;
}
void eval_hold(struct eval *v, bool hold) { CHECK(v == E.v); E.held = hold; E.holds += hold; }
void eval_cancel(struct eval *v) { CHECK(v == E.v); E.cancels++; E.v = NULL; free(v); }
static inline int fake_context(const char *verb, const char *id, context_cb *cb, void *arg, struct err *e)
{
    snprintf(E.verb, sizeof E.verb, "%s", verb), snprintf(E.id, sizeof E.id, "%s", id);
    E.cb = cb, E.arg = arg;
    return fake_refuses(e) ? -1 : 0;
}
int context_create(struct sandbox *sb, const struct context_spec *s, context_cb *cb, void *arg, struct err *e)
{
    (void)sb;
    E.language = s->language;
    snprintf(E.cwd, sizeof E.cwd, "%s", s->cwd ? s->cwd : "-");
    return fake_context("create", "", cb, arg, e);
}
int context_get(struct sandbox *sb, const char *id, context_cb *cb, void *arg, struct err *e) { (void)sb; return fake_context("get", id, cb, arg, e); }
int context_restart(struct sandbox *sb, const char *id, context_cb *cb, void *arg, struct err *e) { (void)sb; return fake_context("restart", id, cb, arg, e); }
int context_interrupt(struct sandbox *sb, const char *id, context_cb *cb, void *arg, struct err *e) { (void)sb; return fake_context("interrupt", id, cb, arg, e); }
int context_remove(struct sandbox *sb, const char *id, context_cb *cb, void *arg, struct err *e) { (void)sb; return fake_context("remove", id, cb, arg, e); }
int context_list(struct sandbox *sb, void (*cb)(void *, const struct err *, const struct context_info *, size_t), void *arg, struct err *e)
{
    (void)sb;
    E.list_cb = cb, E.arg = arg;
    return fake_refuses(e) ? -1 : 0;
}

/* ---- the server, turned by hand ---- */
struct fx { struct core core; struct jobs *jobs; struct api *api; struct http_server *srv; int fd, port; struct buf in; };

static void fx_on_shutdown(void *arg, bool keep) { (void)arg; F.down++, F.keep = keep; }
static inline struct fx *fx_new_with(const struct dialect *const *table, size_t ntable)
{
    struct fx *x = xcalloc(1, sizeof *x);
    signal(SIGPIPE, SIG_IGN);
    setenv("HUTCH_LOG", "error", 1);
    x->core.loop = loop_new();
    list_init(&x->core.followers);
    snprintf(x->core.cfg.listen, sizeof x->core.cfg.listen, "127.0.0.1:4882");
    snprintf(x->core.cfg.hosts, sizeof x->core.cfg.hosts, "one.example, two.example");
    x->core.cfg.max_timeout_s = 86400;
    x->core.cfg.uid = 64882;
    struct sandbox *sb = &x->core.sb;
    sb->core = &x->core;
    snprintf(sb->id, sizeof sb->id, "%s", ID);
    sb->template_name = (char *)(uintptr_t)"base";
    fake_snapshot.tier = sb->tier = tier_find("vm");
    sb->state = SB_RUNNING, sb->cpu_millis = 1000, sb->memory_mib = 512, sb->disk_mib = 4096, sb->timeout_s = 300;
    sb->created_ns = sb->started_ns = 1700000000000000000, sb->generation = 1, sb->start_ms = 2.14, sb->start_path = (char *)(uintptr_t)"pool";
    x->jobs = jobs_new(x->core.loop, 1);
    x->api = api_new_with(&x->core, x->jobs, table, ntable);
    api_on_shutdown(x->api, fx_on_shutdown, NULL);
    struct http_config cfg = {.handler = api_handler, .arg = x->api};
    x->srv = http_server_new(x->core.loop, &cfg);
    x->fd = -1;
    F.room = SIZE_MAX / 2;
    return x;
}
static inline struct fx *fx_new(void) { return fx_new_with(dialects, ndialects); }
static inline void fx_turn(struct fx *x, int n)
{
    for (int i = 0; i < n; i++)
        loop_turn(x->core.loop, false);
}
static inline void fx_open(struct fx *x) /* a fresh connection over a socket pair: the peer is us */
{
    int sv[2];
    if (x->fd >= 0)
        close(x->fd);
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sv));
    x->fd = sv[0];
    x->in.n = 0;
    http_adopt(x->srv, sv[1]);
}
static inline void fx_open_tcp(struct fx *x)
{
    struct err e;
    if (!x->port)
        x->port = http_listen_tcp(x->srv, "127.0.0.1:0", &e);
    CHECK(x->port > 0);
    char addr[32];
    snprintf(addr, sizeof addr, "127.0.0.1:%d", x->port);
    if (x->fd >= 0)
        close(x->fd);
    x->fd = sock_connect_tcp(addr, &e);
    CHECK(x->fd >= 0);
    x->in.n = 0;
    fx_turn(x, 5);
}
static inline void fx_close(struct fx *x)
{
    close(x->fd);
    x->fd = -1;
    fx_turn(x, 5);
}
static inline bool fx_read(struct fx *x) /* what is there; false once the peer closed */
{
    char t[65536];
    for (;;) {
        ssize_t r = recv(x->fd, t, sizeof t, MSG_DONTWAIT);
        if (r <= 0) {
            buf_reserve(&x->in, 0);
            x->in.p[x->in.n] = 0;
            return r < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
        }
        buf_put(&x->in, t, (size_t)r);
    }
}
static inline void fx_send(struct fx *x, const void *p, size_t n)
{
    while (n) {
        ssize_t w = send(x->fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        CHECK(w >= 0 || errno == EAGAIN);
        if (w > 0)
            p = (const char *)p + w, n -= (size_t)w;
        fx_turn(x, 2);
    }
    fx_turn(x, 5);
}
static inline void fx_sendz(struct fx *x, const char *z) { fx_send(x, z, strlen(z)); }
static inline void fx_until(struct fx *x, const char *text) /* NULL: until closed */
{
    for (int i = 0; i < 3000; i++) {
        bool open = fx_read(x);
        if (text && memmem(x->in.p, x->in.n, text, strlen(text)))
            return;
        if (!open) {
            if (!text)
                return;
            break;
        }
        fx_turn(x, 2);
        if (i > 20)
            usleep(1000);
    }
    printf("# waited for %s, got:\n# %.3000s\n", text ? text : "the end", x->in.p);
    fflush(stdout);
    CHECK(!"came");
}
/* A request without body on a fresh connection; returns what came back so far. */
static inline void fx_begin(struct fx *x, const char *method, const char *target, const char *body)
{
    auto_buf b = {0};
    fx_open(x);
    buf_printf(&b, "%s %s HTTP/1.1\r\nHost: localhost\r\n", method, target);
    if (body)
        buf_printf(&b, "Content-Length: %zu\r\n", strlen(body));
    buf_printf(&b, "\r\n%s", body ? body : "");
    fx_send(x, b.p, b.n);
}
static inline const char *fx_ask(struct fx *x, const char *method, const char *target, const char *body)
{
    fx_begin(x, method, target, body);
    fx_until(x, "\r\n\r\n");
    fx_turn(x, 5);
    fx_read(x);
    return x->in.p;
}
#define HAS(x, text)                                                                                                   \
    do {                                                                                                               \
        if (!(x)->in.p || !memmem((x)->in.p, (x)->in.n, text, strlen(text))) {                                         \
            printf("# %s:%d: no %s in\n# %.2000s\n", __FILE__, __LINE__, text, (x)->in.p ? (x)->in.p : "");            \
            fflush(stdout);                                                                                            \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
static inline void fx_free(struct fx *x) /* nothing may be left behind: the leak checker looks */
{
    if (x->fd >= 0)
        close(x->fd);
    fx_turn(x, 5);
    http_server_free(x->srv);
    jobs_free(x->jobs);
    fx_turn(x, 3);
    api_free(x->api);
    loop_free(x->core.loop);
    buf_free(&x->in);
    buf_free(&T.sent), buf_free(&E.code), buf_free(&E.env);
    kept_free(&x->core.sb.kept);
    struct buf *all[] = {&F.argv, &F.env, &F.input, &F.cwd, &F.tag, &F.user, &F.pieces, &F.path, &F.recipe, &F.upload, &F.create.name, &F.create.metadata};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        buf_free(all[i]);
    CHECK(!F.x && !F.rd && !F.wr && !F.watch && !F.build && !E.v);
    free(x);
}
