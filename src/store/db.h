/* Inside of the store folder: the connection, prepared statements and the
 * queue. An op is one statement with its values already copied; the store
 * thread binds and steps it without knowing what it is for. */
#pragma once
#include "base/list.h"
#include "store/store.h"

struct sqlite3;
struct sqlite3_stmt;

enum stmt_id {
    ST_BEGIN, ST_COMMIT, ST_ROLLBACK,
    ST_SANDBOX_PUT, ST_SANDBOX_DEL, ST_SANDBOX_ALL,
    ST_TEMPLATE_PUT, ST_TEMPLATE_DEL, ST_TEMPLATE_ALL,
    ST_KEY_PUT, ST_KEY_TOUCH, ST_KEY_DEL, ST_KEY_ALL,
    ST_SECRET_PUT, ST_SECRET_DEL, ST_SECRET_ALL,
    ST_META_PUT, ST_META_DEL, ST_META_GET,
    ST_VOLUME_PUT, ST_VOLUME_DEL, ST_VOLUME_ALL, ST_ATTACH_PUT, ST_ATTACH_DEL, ST_ATTACH_ALL,
    ST_SNAPSHOT_PUT, ST_SNAPSHOT_DEL, ST_SNAPSHOT_ALL,
    ST_EVENT_ADD, ST_EVENT_PRUNE, ST_EVENT_LAST, ST_EVENT_LIST, ST_EVENT_LIST_OF,
    ST_MAX
};

extern const char *const store_sql[ST_MAX]; /* sql.c */

struct val { const char *text; int64_t num; bool is_text; };

struct op {
    struct list node;
    enum stmt_id st;
    bool durable;              /* its batch is fsynced */
    store_done *done;          /* writes */
    void *arg;
    struct err err;            /* code E_OK: fine */
    store_events_cb *on_rows;  /* reads: rows collected on the store thread */
    struct event_row *rows;
    size_t nrows;
    int nval;
    struct val val[];          /* followed by the bytes of the texts */
};

/* kinds: one letter per value: 't' const char * (copied, NULL is NULL), 'i' int64_t. */
struct op *op_new(enum stmt_id st, const char *kinds, ...);
void op_free(struct op *o);

void store_queue(struct store *s, struct op *o);
/* The connection, locked for the caller; for blocking loads. */
struct sqlite3_stmt *store_lock_stmt(struct store *s, enum stmt_id st);
int store_unlock_stmt(struct store *s, struct sqlite3_stmt *st, int rc, struct err *e); /* rc: of the last step; resets */
int64_t store_next_seq(struct store *s);
void store_read_events(struct store *s, struct sqlite3_stmt *st, struct op *o); /* store thread */

int db_err(struct err *e, struct sqlite3 *db, int rc, const char *what); /* always -1; a typed sentence, the detail in the log */
const char *col_text(struct sqlite3_stmt *st, int i);
