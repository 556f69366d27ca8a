/* A VM's console as text; see console.c. The first three are pure. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

struct vm_host;

void console_text(struct str raw,
                  struct buf *out); /* lines of printable ASCII, the rest as \xNN; no empty ones */
struct str console_last(struct str text, int lines); /* of what console_text made */
struct str console_cause(struct str text); /* the line to show if there is room for one; cut */

void console_log(struct vm_host *h, const char *what,
                 struct str text); /* an entry in log/console.log, by a worker */
void console_explain(
    struct err *e,
    struct str text); /* appends the cause, or that nothing was printed, to the message */
