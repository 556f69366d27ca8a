/* QMP, QEMU's control protocol: JSON objects, one a line, over a stream socket
 * (docs/interop/qmp-spec of QEMU). Asynchronous on the loop.
 *
 * QEMU is not trusted: its guest may have taken it over. So: a line is at most
 * QMP_LINE_MAX bytes, input beyond QMP_RATE_MAX bytes a second is a violation,
 * an answer must be to the oldest command in flight, what is not understood is
 * an error, and nothing QEMU says is used as a path, size or format. A
 * violation ends the connection: every pending callback fails, then on_lost is
 * called once.
 *
 * Callbacks may call anything here, also qmp_free. Nothing is called from
 * inside qmp_new, qmp_command or after qmp_free. */
#pragma once
#include "base/err.h"
#include "base/str.h"
#include <stdbool.h>
#include <stdint.h>

#define QMP_LINE_MAX 65536
#define QMP_RATE_MAX (1u << 20)
#define QMP_PENDING  64
#define QMP_NAME     48

/* ---- parser: pure ---------------------------------------------------------------------------------------------- */

enum qmp_kind { QMP_GREETING, QMP_RETURN, QMP_ERROR, QMP_EVENT };
struct qmp_msg {
    enum qmp_kind kind;
    bool has_id;
    uint64_t id;
    char name[QMP_NAME]; /* event name; error class; greeting: "major.minor.micro" */
    char status
        [QMP_NAME]; /* data.status of an event, return.status of a reply: "completed", "running"…; or "" */
    char desc[160]; /* error text, for the log only */
    bool guest;     /* SHUTDOWN: the guest asked */
};
/* One line without its newline. -1: not QMP (E_GUEST). */
int qmp_parse(const char *p, size_t n, struct qmp_msg *ret, struct err *e)
    __attribute__((warn_unused_result));

/* ---- connection ------------------------------------------------------------------------------------------------ */

struct loop;
struct qmp;

struct qmp_ops {
    void (*event)(void *arg,
                  const struct qmp_msg *m); /* RESUME, STOP, SHUTDOWN, MIGRATION (m->status) … */
    void (*lost)(void *arg, const struct err *why); /* peer closed, violation */
};
/* m is NULL when e is set (QEMU refused: E_GUEST with its text; connection lost; timed out). */
typedef void qmp_cb(void *arg, const struct qmp_msg *m, const struct err *e);

/* fd: moved; made non-blocking. fresh: the greeting is still to come and capabilities are negotiated; its outcome is the
 * callback's. Not fresh: an earlier process talked on this socket and may have left half a command or half an answer;
 * both are flushed out, and everything until the answer to our own query is dropped; m->status then is the run state. */
struct qmp *qmp_new(struct loop *l, int fd, bool fresh, const struct qmp_ops *ops, void *arg,
                    int64_t timeout_ns, qmp_cb *ready, void *ready_arg);
void qmp_free(struct qmp *q); /* pending callbacks are dropped; NULL is fine */

/* Send {"execute":name,"arguments":args,"id":n}. args: JSON text of an object, or NULL. fd: >= 0 goes with the command
 * (add-fd, getfd); a duplicate is queued, the caller keeps his. Commands written in one turn leave in one write; QEMU runs
 * them in order, and does not stop at a failed one. May be called before `ready`; the commands then wait for the
 * handshake. timeout_ns: 0 = none; a command in time-out loses the connection, since what state it left is unknown. */
void qmp_command(struct qmp *q, const char *name, const char *args, int fd, int64_t timeout_ns,
                 qmp_cb *cb, void *arg);
bool qmp_is_lost(const struct qmp *q);
