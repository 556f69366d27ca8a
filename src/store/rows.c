/* Sandboxes, templates, keys, meta: the order of values here is the order of
 * columns in the statements of sql.c. */
#include "base/buf.h"
#include "store/db.h"
#include <sqlite3.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct op *op_new(enum stmt_id st, const char *kinds, ...)
{
    va_list ap, again;
    size_t nval = strlen(kinds), text = 0;
    va_start(ap, kinds);
    va_copy(again, ap);
    for (const char *k = kinds; *k; k++)
        if (*k == 't') {
            const char *s = va_arg(ap, const char *);
            text += s ? strlen(s) + 1 : 0;
        } else
            (void)va_arg(ap, int64_t);
    va_end(ap);
    struct op *o = xmalloc(sizeof *o + nval * sizeof(struct val) + text);
    *o = (struct op){.st = st, .nval = (int)nval};
    char *at = (char *)(o->val + nval);
    for (size_t i = 0; i < nval; i++) {
        struct val *v = &o->val[i];
        *v = (struct val){.is_text = kinds[i] == 't'};
        if (!v->is_text) {
            v->num = va_arg(again, int64_t);
            continue;
        }
        const char *s = va_arg(again, const char *);
        if (!s)
            continue;
        size_t n = strlen(s) + 1;
        memcpy(at, s, n);
        v->text = at;
        at += n;
    }
    va_end(again);
    return o;
}

const char *col_text(sqlite3_stmt *st, int i) { return (const char *)sqlite3_column_text(st, i); }

void op_free(struct op *o)
{
    for (size_t i = 0; i < o->nrows; i++)
        free((char *)o->rows[i].type); /* one block per row, see events.c */
    free(o->rows);
    free(o);
}

static void queue(struct store *s, struct op *o, bool durable, store_done *done, void *arg)
{
    o->durable = durable;
    o->done = done;
    o->arg = arg;
    store_queue(s, o);
}

/* -- writes -- */

void store_put_sandbox(struct store *s, const struct sandbox_row *r, store_done *done, void *arg)
{
    queue(s, op_new(ST_SANDBOX_PUT, "tttttttiiiitiiiitttttittitttt", r->id, r->name, r->box_id, r->template_id, r->template_name, r->tier,
                    r->state, r->cpu_millis, r->memory_mib, r->disk_mib, r->timeout_s, r->on_timeout, r->created_wall_ns,
                    r->started_wall_ns, r->expires_wall_ns, r->ended_wall_ns, r->end_reason, r->end_message, r->env_json,
                    r->metadata_json, r->options_json, r->generation, r->token, r->start_path, r->start_ns, r->kernel, r->boot_id, r->life_json, r->kept_json),
          r->durable, done, arg);
}

void store_del_sandbox(struct store *s, const char *id, store_done *done, void *arg)
{
    queue(s, op_new(ST_SANDBOX_DEL, "t", id), false, done, arg);
}

void store_put_template(struct store *s, const struct template_row *r, store_done *done, void *arg)
{
    queue(s, op_new(ST_TEMPLATE_PUT, "ttittt", r->id, r->name, r->created_wall_ns, r->source, r->parent, r->json), true, done, arg);
}

void store_del_template(struct store *s, const char *id, store_done *done, void *arg)
{
    queue(s, op_new(ST_TEMPLATE_DEL, "t", id), true, done, arg);
}

void store_put_key(struct store *s, const struct key_row *r, store_done *done, void *arg)
{
    queue(s, op_new(ST_KEY_PUT, "ttttiiittti", r->id, r->name, r->prefix, r->sha256, r->created_wall_ns, r->last_used_wall_ns,
                    r->revoked_wall_ns, r->tenant, r->role, r->scope, r->expires_wall_ns), true, done, arg);
}

void store_touch_key(struct store *s, const char *id, int64_t last_used_wall_ns)
{
    queue(s, op_new(ST_KEY_TOUCH, "ti", id, last_used_wall_ns), false, NULL, NULL);
}

void store_del_key(struct store *s, const char *id, store_done *done, void *arg)
{
    queue(s, op_new(ST_KEY_DEL, "t", id), true, done, arg);
}

void store_put_volume(struct store *s, const struct volume_row *r, store_done *done, void *arg)
{
    queue(s, op_new(ST_VOLUME_PUT, "tttiiit", r->id, r->name, r->state, r->size_mib, r->inodes, r->created_wall_ns, r->token), true, done, arg);
}

void store_del_volume(struct store *s, const char *id, store_done *done, void *arg)
{
    queue(s, op_new(ST_VOLUME_DEL, "t", id), true, done, arg);
}

void store_put_attachment(struct store *s, const struct attachment_row *r, store_done *done, void *arg)
{
    queue(s, op_new(ST_ATTACH_PUT, "ttti", r->sandbox, r->path, r->volume, r->read_only), false, done, arg);
}

void store_del_attachments(struct store *s, const char *sandbox, store_done *done, void *arg)
{
    queue(s, op_new(ST_ATTACH_DEL, "t", sandbox), false, done, arg);
}

void store_put_secret(struct store *s, const struct secret_row *r, store_done *done, void *arg)
{
    queue(s, op_new(ST_SECRET_PUT, "tttiiiiiitti", r->name, r->sandbox, r->sealed, r->created_wall_ns, r->updated_wall_ns, r->calls_max, r->bytes_max,
                    r->calls, r->bytes, r->id, r->metadata, r->version), true, done, arg);
}

void store_del_secret(struct store *s, const char *name, store_done *done, void *arg)
{
    queue(s, op_new(ST_SECRET_DEL, "t", name), true, done, arg);
}

void store_put_snapshot(struct store *s, const struct snapshot_row *r, store_done *done, void *arg)
{
    queue(s, op_new(ST_SNAPSHOT_PUT, "ttit", r->id, r->name, r->created_wall_ns, r->json), true, done, arg);
}

void store_del_snapshot(struct store *s, const char *id, store_done *done, void *arg)
{
    queue(s, op_new(ST_SNAPSHOT_DEL, "t", id), true, done, arg);
}

void store_put_meta(struct store *s, const char *k, const char *v, store_done *done, void *arg)
{
    queue(s, v ? op_new(ST_META_PUT, "tt", k, v) : op_new(ST_META_DEL, "t", k), true, done, arg);
}

/* -- loads -- */

int store_load_sandboxes(struct store *s, int (*fn)(void *arg, const struct sandbox_row *r), void *arg, struct err *e)
{
    sqlite3_stmt *st = store_lock_stmt(s, ST_SANDBOX_ALL);
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        int c = 0;
#define T col_text(st, c++)
#define I sqlite3_column_int64(st, c++)
        struct sandbox_row r = {0};
        r.id = T, r.name = T, r.box_id = T, r.template_id = T, r.template_name = T, r.tier = T, r.state = T;
        r.cpu_millis = I, r.memory_mib = I, r.disk_mib = I, r.timeout_s = I, r.on_timeout = T;
        r.created_wall_ns = I, r.started_wall_ns = I, r.expires_wall_ns = I, r.ended_wall_ns = I;
        r.end_reason = T, r.end_message = T, r.env_json = T, r.metadata_json = T, r.options_json = T;
        r.generation = I, r.token = T, r.start_path = T, r.start_ns = I, r.kernel = T, r.boot_id = T, r.life_json = T, r.kept_json = T;
        if (fn(arg, &r))
            break;
    }
    return store_unlock_stmt(s, st, rc, e);
}

int store_load_templates(struct store *s, int (*fn)(void *arg, const struct template_row *r), void *arg, struct err *e)
{
    sqlite3_stmt *st = store_lock_stmt(s, ST_TEMPLATE_ALL);
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        int c = 0;
        struct template_row r = {0};
        r.id = T, r.name = T, r.created_wall_ns = I, r.source = T, r.parent = T, r.json = T;
        if (fn(arg, &r))
            break;
    }
    return store_unlock_stmt(s, st, rc, e);
}

int store_load_keys(struct store *s, int (*fn)(void *arg, const struct key_row *r), void *arg, struct err *e)
{
    sqlite3_stmt *st = store_lock_stmt(s, ST_KEY_ALL);
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        int c = 0;
        struct key_row r = {0};
        r.id = T, r.name = T, r.prefix = T, r.sha256 = T, r.created_wall_ns = I, r.last_used_wall_ns = I, r.revoked_wall_ns = I;
        r.tenant = T, r.role = T, r.scope = T, r.expires_wall_ns = I;
        if (fn(arg, &r))
            break;
    }
    return store_unlock_stmt(s, st, rc, e);
}

int store_load_volumes(struct store *s, int (*fn)(void *arg, const struct volume_row *r), void *arg, struct err *e)
{
    sqlite3_stmt *st = store_lock_stmt(s, ST_VOLUME_ALL);
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        int c = 0;
        struct volume_row r = {0};
        r.id = T, r.name = T, r.state = T, r.size_mib = I, r.inodes = I, r.created_wall_ns = I, r.token = T;
        if (fn(arg, &r))
            break;
    }
    return store_unlock_stmt(s, st, rc, e);
}

int store_load_attachments(struct store *s, int (*fn)(void *arg, const struct attachment_row *r), void *arg, struct err *e)
{
    sqlite3_stmt *st = store_lock_stmt(s, ST_ATTACH_ALL);
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        int c = 0;
        struct attachment_row r = {0};
        r.sandbox = T, r.path = T, r.volume = T, r.read_only = I;
        if (fn(arg, &r))
            break;
    }
    return store_unlock_stmt(s, st, rc, e);
}

int store_load_secrets(struct store *s, int (*fn)(void *arg, const struct secret_row *r), void *arg, struct err *e)
{
    sqlite3_stmt *st = store_lock_stmt(s, ST_SECRET_ALL);
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        int c = 0;
        struct secret_row r = {0};
        r.name = T, r.sandbox = T, r.sealed = T, r.created_wall_ns = I, r.updated_wall_ns = I, r.calls_max = I, r.bytes_max = I, r.calls = I, r.bytes = I;
        r.id = T, r.metadata = T, r.version = I;
        if (fn(arg, &r))
            break;
    }
    return store_unlock_stmt(s, st, rc, e);
}

int store_load_snapshots(struct store *s, int (*fn)(void *arg, const struct snapshot_row *r), void *arg, struct err *e)
{
    sqlite3_stmt *st = store_lock_stmt(s, ST_SNAPSHOT_ALL);
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        int c = 0;
        struct snapshot_row r = {0};
        r.id = T, r.name = T, r.created_wall_ns = I, r.json = T;
        if (fn(arg, &r))
            break;
    }
    return store_unlock_stmt(s, st, rc, e);
}

char *store_get_meta(struct store *s, const char *k, struct err *e)
{
    sqlite3_stmt *st = store_lock_stmt(s, ST_META_GET);
    (void)sqlite3_bind_text(st, 1, k, -1, SQLITE_STATIC);
    int rc = sqlite3_step(st);
    char *v = rc == SQLITE_ROW ? xstrdup(col_text(st, 0)) : NULL;
    if (store_unlock_stmt(s, st, rc, e) == 0 && !v)
        (void)err_set(e, E_NOT_FOUND, "no meta value '%s'", k);
    return v;
}
