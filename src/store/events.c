/* Events: numbered here on the loop thread, appended and read back on the
 * store thread. A row that was read is one block: type, sandbox, data. */
#include "base/buf.h"
#include "store/db.h"
#include <sqlite3.h>
#include <string.h>

#define LIST_MAX 10000

int64_t store_add_event(struct store *s, const struct event_row *r, store_done *done, void *arg)
{
    int64_t seq = store_next_seq(s);
    struct op *o = op_new(ST_EVENT_ADD, "iittt", seq, r->at_wall_ns, r->type, r->sandbox, r->data_json);
    o->done = done;
    o->arg = arg;
    store_queue(s, o);
    return seq;
}

void store_list_events(struct store *s, int64_t since, const char *sandbox, int limit, store_events_cb *fn, void *arg)
{
    if (limit < 1 || limit > LIST_MAX)
        limit = LIST_MAX;
    struct op *o = op_new(sandbox ? ST_EVENT_LIST_OF : ST_EVENT_LIST, "iti", since, sandbox, (int64_t)limit);
    o->on_rows = fn;
    o->arg = arg;
    store_queue(s, o);
}

static const char *put(char **at, const char *s)
{
    if (!s)
        return NULL;
    size_t n = strlen(s) + 1;
    char *p = memcpy(*at, s, n);
    *at += n;
    return p;
}

void store_read_events(struct store *s, sqlite3_stmt *st, struct op *o)
{
    size_t cap = 0;
    int rc;
    (void)s;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        if (o->nrows == cap)
            o->rows = xrealloc(o->rows, (cap = cap ? cap * 2 : 32) * sizeof *o->rows);
        const char *type = col_text(st, 2), *sandbox = col_text(st, 3), *data = col_text(st, 4);
        char *at = xmalloc(strlen(type) + 1 + (sandbox ? strlen(sandbox) + 1 : 0) + (data ? strlen(data) + 1 : 0));
        struct event_row *r = &o->rows[o->nrows++];
        *r = (struct event_row){.seq = sqlite3_column_int64(st, 0), .at_wall_ns = sqlite3_column_int64(st, 1)};
        r->type = put(&at, type); /* first: op_free frees the block by it */
        r->sandbox = put(&at, sandbox);
        r->data_json = put(&at, data);
    }
    if (rc != SQLITE_DONE)
        db_err(&o->err, sqlite3_db_handle(st), rc, "read events");
}
