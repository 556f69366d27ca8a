/* The MCP server: one endpoint, /mcp, for all revisions (rpc.h). docs/mcp.md is for users.
 *
 *   endpoint.c   HTTP: checks, headers, one POST and its answer
 *   flow.c       an answer as server-sent events, which a legacy client may take up again
 *   session.c    legacy sessions: ids that survive a restart, the push stream, default sandboxes
 *   call.c       one request from its first byte to its answer: results, progress, cancellation
 *   method.c     what can be asked: initialize, tools/…, resources/…
 *   tools.c      the table of tools over tools.json, and the way to a sandbox
 *   tool_*.c     the tools
 *   process.c    commands and cells that outlive the call that began them
 *   resource.c   files and output of sandboxes under hutch://
 *   link.c       URLs that need no key: upload_file, download_file
 *
 * A sandbox, snapshot or process of another tenant does not exist here: every lookup goes through
 * mcall_sandbox and its like, which know the caller. Main loop only. */
#pragma once
#include "api/api.h"
#include "api/mcp/rpc.h"
#include "base/list.h"
#include "base/map.h"
#include "core/host/event.h"
#include "core/sandbox/sandbox.h"

#define MCP_BODY_MAX   (32u << 20)
#define MCP_BATCH_MAX  100
#define MCP_TENANT     65
#define MCP_SESSION_ID 160

struct mcp;
struct session;
struct flow;
struct post;
struct mcall;
struct process;

struct mcp {
    unsigned refs; /* core may call back after the API is gone */
    struct api *api;
    struct core *core;
    struct loop *loop;
    unsigned char key[32]; /* seals session ids, links and cursors */
    int64_t started_ns;    /* wall */
    struct json *tools;    /* tools.json */
    struct map sessions;   /* by id */
    struct list listeners; /* modern subscriptions: struct listener */
    struct map processes;  /* by id */
    struct list process_order;
    struct list artifacts; /* newest first: resource.c */
    size_t nartifacts;
    struct map used_links; /* one-time URLs that were used: token -> itself */
    struct map ended;      /* session ids that were deleted: id -> itself */
    struct follower follower;
    struct list waiting; /* calls for sandboxes that are being created: tools.c */
    struct timer sweep, look, changed;
};
struct mcp *mcp_of(struct api *a);
struct mcp *mcp_ref(struct mcp *m);
void mcp_unref(struct mcp *m);
extern const struct dialect mcp_dialect;

/* ---- sealed text: base64url of the payload, a dot, base64url of its MAC ---- */
void mcp_seal(const struct mcp *m, const char *purpose, struct str payload, struct buf *out);
bool mcp_unseal(const struct mcp *m, const char *purpose, struct str text, struct buf *payload);

/* ---- flow.c ---- */
#define FLOW_EVENTS 256
#define FLOW_BYTES  (2u << 20)
/* Begins the reply on s. number 0: events have no ids and nothing is kept. */
struct flow *flow_open(struct mcp *m, struct http_stream *s, unsigned number, bool primer);
void flow_send(struct flow *f, struct str json, bool dispensable);
void flow_end(struct flow *f);    /* nothing more comes; a kept one waits to be taken up again */
void flow_detach(struct flow *f); /* the client left */
void flow_free(struct flow *f);
bool flow_over(const struct flow *f);
bool flow_attached(const struct flow *f);
unsigned flow_number(const struct flow *f);
/* The events after n again, then those to come. False: everything was delivered and it is over. */
bool flow_resume(struct flow *f, struct http_stream *s, uint64_t after);
struct list *flow_link(struct flow *f);
struct flow *flow_of_link(struct list *l);
int64_t flow_ended_at(const struct flow *f); /* mono; 0: not yet */

/* ---- session.c ---- */
struct subscription;
struct session {
    struct mcp *m;
    char id[MCP_SESSION_ID];
    char tenant[MCP_TENANT];
    enum mcp_version version;
    int level;       /* of notifications/message; -1: none asked for */
    int64_t used_ns; /* mono */
    unsigned nflows;
    struct list flows; /* kept POST streams */
    struct flow *push; /* the GET stream */
    struct list calls; /* struct mcall.of_session */
    struct list subscriptions;
    char sandbox[22]; /* the default one; "": none yet */
    bool stale;       /* the list of resources changed, and it was not told yet */
};
struct session *session_new(struct mcp *m, const char *tenant, enum mcp_version v);
/* NULL: unknown, ended, expired or another tenant's. One of before a restart lives again. */
struct session *session_find(struct mcp *m, struct str id, const char *tenant);
void session_end(struct session *ss);                           /* by DELETE */
void session_tell(struct session *ss, struct str notification); /* on the push stream */
void sessions_start(struct mcp *m);
void sessions_stop(struct mcp *m);
#define OPT_MCP_SESSION "mcp.session_once" /* of a sandbox: whose default it is */
/* The living default sandbox; NULL: none. */
struct sandbox *session_sandbox(struct session *ss);

/* ---- endpoint.c: one POST ---- */
struct post {
    struct mcp *m;
    struct http_stream *s;
    struct json *root;  /* what was sent */
    struct session *ss; /* NULL: modern, or initialize */
    char tenant[MCP_TENANT];
    char *base;     /* "http://host:port": of URLs that we hand out */
    char *tools;    /* the profile or list that was asked for; NULL: standard */
    char *sandbox;  /* the endpoint's default; NULL */
    char *template; /* of sandboxes made on first use; NULL */
    enum mcp_version version;
    bool batch, json_ok, sse_ok, left, replied;
    unsigned open;       /* requests that are not over */
    struct mcall *calls; /* modern: the one request; NULL once it is over */
    struct buf answers;  /* JSON, comma-separated */
    unsigned nanswers;
    int status;
    struct flow *flow;
    struct timer grace;
};
/* A request of it is over. json: its answer; n == 0: it was cancelled, there is none. */
void post_answer(struct post *p, struct str json, int status);
void post_stream(struct post *p); /* from now on it is a stream, if the client takes one */
/* It may take long: a stream now, or after a moment. Not for what may still end in a JSON-RPC error:
 * one that comes on a stream makes SDKs reconnect for nothing. */
void post_may_stream(struct post *p, bool at_once);
void post_tell(struct post *p, struct str notification, bool dispensable); /* if it is a stream */
void post_close(struct post *p); /* the stream ends, whatever is open */
http_handler mcp_post, mcp_get, mcp_delete, mcp_oauth;
void mcp_fail(struct http_stream *s, const struct err *e, enum about about);

/* ---- call.c ---- */
struct mcall {
    struct list of_session;
    struct mcp *m;
    struct post *post;
    struct session *ss; /* NULL in modern */
    enum mcp_version version;
    char *id;       /* JSON text */
    char *progress; /* token, JSON text; NULL: not asked for */
    struct str method;
    struct json *params, *meta;
    /* of tools/call */
    const struct tool *tool;
    struct json *schema, *args;
    char sandbox[22];
    bool sandbox_made; /* for this call */
    /* of a tool or a reading */
    void *state;
    void (*fini)(struct mcall *k); /* frees the state; may be NULL */
    void (*stop)(struct mcall *k); /* it is cancelled: what it runs goes; may be NULL */
    /* appends what goes on, for progress; may be NULL */
    void (*news)(struct mcall *k, struct buf *out);
    unsigned holds;
    bool over;
    int64_t begun, told; /* mono: of the last progress */
    struct timer tick, late;
    struct buf content, structured, answer;
    struct jw w;
    bool is_error;
};
struct mcall *mcall_new(struct post *p, const struct rpc *r, enum mcp_version v);
/* As req_hold and req_back (api/req.h): around core calls that cannot be called off. */
void mcall_hold(struct mcall *k);
bool mcall_back(struct mcall *k);
void mcall_cancel(struct mcall *k); /* no answer */
/* -- answers: one of these ends the call -- */
void mcall_error(struct mcall *k, const struct rpc_error *e);
void mcall_errorf(struct mcall *k, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* A result object: begin, write members, send. Modern gets what every result has there. */
struct jw *mcall_result(struct mcall *k);
void mcall_result_send(struct mcall *k);
/* Caching hints of a modern list; nothing for legacy. */
void mcall_cache(struct mcall *k, struct jw *w, bool everybody);

/* -- the result of a tool: blocks of content and one structured object -- */
void mcall_text(struct mcall *k, struct str text);
void mcall_textf(struct mcall *k, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void mcall_image(struct mcall *k, const char *mime, struct str base64);
void mcall_link(struct mcall *k, const char *sandbox, const char *path, const char *mime,
                uint64_t size);
struct jw *mcall_structured(struct mcall *k); /* an object, open; mcall_done closes it */
void mcall_done(struct mcall *k);
/* isError: everything that the model can do something about. */
void mcall_refuse(struct mcall *k, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void mcall_fail(struct mcall *k, const struct err *e, enum about about);
/* After mcall_hold and a core call that returned rc: if not 0, its callback will not come. */
void mcall_settle(struct mcall *k, int rc, const struct err *e, enum about about);

/* ---- lookups that know the caller; NULL + e: nothing of that name for him ---- */
struct sandbox *mcall_sandbox(struct mcall *k, struct str id_or_name, struct err *e);
struct sandbox *mcall_own_sandbox(struct mcall *k, struct err *e); /* k->sandbox, still there */
struct snapshot;
struct snapshot *mcall_snapshot(struct mcall *k, struct str id_or_name, struct err *e);
/* Asked anew each time: a key that is revoked or expires in the middle of a call ends its rights. */
struct caller mcall_caller(struct mcall *k);
bool mcall_sees(struct mcall *k, const char *tenant); /* and may use */
bool mcall_owns(struct mcall *k, const struct sandbox *sb); /* it is of the caller's own tenant */
struct process *mcall_process(struct mcall *k, struct str id);

/* ---- method.c ---- */
void mcp_begin(struct mcall *k);
bool mcp_method_known(struct str method, enum mcp_version v);

/* ---- tools.c ---- */
enum { TOOL_ALONE, TOOL_BOX /* needs a running sandbox: the one named, or the default */ };
struct tool {
    const char *name;
    void (*fn)(struct mcall *k, struct sandbox *sb /* of TOOL_BOX; else NULL */);
    int needs;
};
void tools_load(struct mcp *m);
void tools_look(void *mcp); /* a sandbox changed its state */
void tools_stop(struct mcp *m);
void tools_list(struct mcall *k);
void tools_call(struct mcall *k);
int tools_profile_ok(struct mcp *m, const char *text, struct err *e);
struct json *tool_definition(struct mcp *m, const char *name);
/* Whatever `sandbox` says: made if it must be, woken if it sleeps. */
void tool_with_sandbox(struct mcall *k);
void tool_put_sandbox(struct jw *w, const struct sandbox *sb); /* members, into an open object */
typedef void tool_fn(struct mcall *k, struct sandbox *sb);
tool_fn tool_run_code, tool_run_command, tool_read_process, tool_stop_process;
tool_fn tool_read_file, tool_write_file, tool_edit_file, tool_list_files;
tool_fn tool_create_sandbox, tool_list_sandboxes, tool_kill_sandbox, tool_expose_port;
tool_fn tool_snapshot_sandbox, tool_fork_sandbox, tool_restore_sandbox;
tool_fn tool_upload_file, tool_download_file, tool_set_network, tool_read_egress;

/* ---- resource.c ---- */
void resources_list(struct mcall *k);
void resources_templates(struct mcall *k);
void resources_read(struct mcall *k);
void resources_subscribe(struct mcall *k, bool on);
void resources_listen(struct mcall *k); /* modern: subscriptions/listen */
void resource_uri(const char *sandbox, const char *path, struct buf *out); /* of a file */
/* A file worth listing was made. */
void resource_artifact(struct mcp *m, const char *tenant, const char *sandbox, const char *path,
                       const char *mime, uint64_t size);
void resource_process_grew(struct mcp *m, const char *sandbox, const char *process);
void resources_changed(struct mcp *m, const char *tenant); /* the list of them */
void resources_start(struct mcp *m);
void resources_stop(struct mcp *m);
void subscriptions_drop(struct list *subscriptions);

/* ---- process.c ---- */
void processes_stop(struct mcp *m);

/* ---- link.c ---- */
http_handler mcp_upload, mcp_download;
void link_make(struct mcp *m, const char *base, char op /* 'u' or 'd' */, const char *sandbox,
               const char *path, int64_t expires_s, struct buf *out);
