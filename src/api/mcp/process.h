/* A command or a cell that a tool began: it may outlive the call, and is then read and stopped by
 * its id. The id names its sandbox, so that a command is found again after a restart of the daemon:
 * its process has the id as a tag. */
#pragma once
#include "api/mcp/mcp.h"
#include "core/code/context.h"
#include "core/sandbox/exec.h"

struct command {
    const char *line, *cwd;
    char *const *env;
    struct str input; /* p == NULL: none */
    bool background;  /* its stdin stays open, and the first report comes when it has started */
    uint64_t timeout_ms;
};
/* k waits for it: at most wait_s, then it reports that it runs on. -1: k was told why not. */
int process_command(struct mcall *k, struct sandbox *sb, const struct command *c, double wait_s);
int process_cell(struct mcall *k, struct sandbox *sb, enum language l, struct str code,
                 uint64_t timeout_ms, double wait_s);

/* One that another daemon began, by its id; NULL + e: no such process. */
struct process *process_adopt(struct mcall *k, struct str id, struct err *e);
/* Reads: what came since the last report, as soon as there is something. */
void process_read(struct mcall *k, struct process *p, struct str input, double wait_s);
void process_stop(struct mcall *k, struct process *p, int signo);

/* The last output of a stream, for resources; stream 0 or 1. */
struct str process_log(const struct process *p, int stream);
const char *process_sandbox(const struct process *p);
