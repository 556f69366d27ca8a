/* File contents in and out; api/transfer.h moves the bytes. */
#include "api/native/native.h"
#include "api/params.h"
#include "api/transfer.h"

static void out_fail(struct sending *st, const struct err *e) { req_fail(&st->r, e, ABOUT_FILE); }

void files_get(struct http_stream *s, void *a)
{
    struct err e;
    auto_buf path_buf = {0}, user_buf = {0};
    const char *path, *user;
    uint64_t offset, length;
    struct agent *ag = files_agent(a, s);
    if (!ag)
        return;
    if (param_path(s, "path", &path_buf, &path, &e) || param_text(s, "user", 64, &user_buf, &user, &e) ||
        param_u64(s, "offset", 0, INT64_MAX, 0, &offset, &e) || param_u64(s, "length", 0, UINT64_MAX, UINT64_MAX, &length, &e)) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct sending *st = sending_new(a, s, sizeof *st, out_fail);
    st->offset = offset;
    st->length = length;
    if (sending_start(st, ag, path, user, &e))
        req_fail(&st->r, &e, ABOUT_SANDBOX);
}

static void in_done(struct taking *st, const struct err *e, const struct file_entry *en)
{
    if (e) {
        req_fail(&st->r, e, ABOUT_FILE);
        return;
    }
    struct buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    put_entry(&w, en);
    req_json(&st->r, 201, &b);
}

void files_put(struct http_stream *s, void *a)
{
    struct err e;
    auto_buf path_buf = {0}, user_buf = {0};
    struct file_write_spec spec = {0};
    struct agent *ag = files_agent(a, s);
    if (!ag)
        return;
    if (param_path(s, "path", &path_buf, &spec.path, &e) || param_text(s, "user", 64, &user_buf, &spec.user, &e) ||
        param_mode(s, "mode", 0, &spec.mode, &e) || param_bool(s, "append", false, &spec.append, &e)) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct taking *st = taking_new(a, s, sizeof *st, in_done);
    if (taking_start(st, ag, &spec, &e))
        req_fail(&st->r, &e, ABOUT_SANDBOX);
}
