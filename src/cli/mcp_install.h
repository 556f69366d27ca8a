/* hutch mcp install CLIENT: adds us to the configuration of an MCP client. */
#pragma once
#include "base/str.h"
#include "base/buf.h"
#include "base/err.h"

struct cli;
struct args;
int mcp_install(struct cli *x, struct args *a); /* the exit status */

/* `old` with "name": entry inside its member `group`, everything else as it was, byte for byte. -1 + e: old is not
 * strict JSON, or has another entry of that name. 1: it has exactly this one. */
int mcp_add_json(struct str old, const char *group, const char *name, struct str entry,
                 struct buf *out, struct err *e);
/* The same for a table of TOML: appended, unless there is one. */
int mcp_add_toml(struct str old, const char *table, struct str body, struct buf *out,
                 struct err *e);
