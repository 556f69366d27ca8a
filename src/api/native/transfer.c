/* File contents in and out; api/transfer.h moves the bytes. */
#include "api/native/native.h"
#include "api/params.h"
#include "api/transfer.h"

static void out_fail(struct sending *st, const struct err *e) { req_fail(&st->r, e, ABOUT_FILE); }

struct reading {
    const char *path, *user;
    uint64_t offset, length;
};
static const struct field read_rows[] = {
    FIELD_AT(struct reading, path),
    FIELD_USER(struct reading, user, "Whose home a relative path is below."),
    FIELD("offset", F_INT, struct reading, offset, .max = INT64_MAX, .def = "0",
          .help = "From this byte on."),
    FIELD("length", F_INT, struct reading, length, .max = INT64_MAX,
          .help = "At most so many bytes. Default: to the end."),
};
const struct shape read_query = SHAPE_OF(NULL, struct reading, read_rows);

void files_get(struct http_stream *s, void *a)
{
    struct err e;
    struct reading q = {.length = UINT64_MAX};
    struct agent *ag = files_agent(a, s);
    if (!ag)
        return;
    if (native_query(a, s, &read_query, &q, &e)) {
        query_free(&read_query, &q);
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct sending *st = sending_new(a, s, sizeof *st, out_fail);
    st->offset = q.offset;
    st->length = q.length;
    if (sending_start(st, ag, q.path, q.user, &e))
        req_fail(&st->r, &e, ABOUT_SANDBOX);
    query_free(&read_query, &q);
}

static void in_done(struct taking *st, const struct err *e, const struct file_entry *en)
{
    if (e) {
        req_fail(&st->r, e, ABOUT_FILE);
        return;
    }
    struct jw *w = reply_begin(st->r.s);
    put_entry(w, en);
    req_send(&st->r, 201);
}

static const struct field write_rows[] = {
    FIELD_AT(struct file_write_spec, path),
    FIELD_USER(struct file_write_spec, user,
               "Whose home a relative path is below, and who owns a new file."),
    FIELD("mode", F_MODE, struct file_write_spec, mode,
          .help = "Permission bits. Default: 0644 for a new file."),
    FIELD("append", F_BOOL, struct file_write_spec, append, .def = "false",
          .help = "Add to what is there."),
};
const struct shape write_query = SHAPE_OF(NULL, struct file_write_spec, write_rows);

void files_put(struct http_stream *s, void *a)
{
    struct err e;
    struct file_write_spec spec = {0};
    struct agent *ag = files_agent(a, s);
    if (!ag)
        return;
    if (native_query(a, s, &write_query, &spec, &e)) {
        query_free(&write_query, &spec);
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct taking *st = taking_new(a, s, sizeof *st, in_done);
    if (taking_start(st, ag, &spec, &e))
        req_fail(&st->r, &e, ABOUT_SANDBOX);
    query_free(&write_query, &spec);
}
