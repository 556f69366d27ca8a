/* What the two halves of process.Process share. */
#pragma once
#include "core/sandbox/exec.h"
#include "json/read.h"
#include "json/write.h"

/* {"pid":77} or {"tag":"t"} as the core names processes. */
struct sel {
    char who[140];
};
int sel_read(struct json *msg, struct sel *ret, struct err *e); /* member "process" */
const char *sel_missing(const struct sel *sel, char *out,
                        size_t cap); /* "process with pid 7 not found" */
int read_winsize(struct json *pty, unsigned *cols, unsigned *rows,
                 struct err *e); /* {"size":{"cols","rows"}}; absent: 80x24 */
struct proc_info;
const struct proc_info *sel_hit(const struct sel *sel, const struct proc_info *p,
                                size_t n); /* the running one of that name; NULL */
bool process_ended(
    const struct err *e); /* the core's error says that there is no such process (any more) */
int input_read(struct json *input, struct buf *ret,
               struct err *e); /* {"stdin":base64} or {"pty":base64} */
/* {"exitCode":3,"exited":true,"status":"exit status 3","error":"exit status 3"} */
void put_process_end(struct jw *w, const struct exec_exit *x);
