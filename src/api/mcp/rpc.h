/* JSON-RPC 2.0 as MCP uses it: what one message is, of which revision it speaks, and how answers
 * look. Pure: no session, no socket. */
#pragma once
#include "base/buf.h"
#include "json/read.h"
#include "json/write.h"
#include <stdbool.h>

/* Revisions, oldest first. All but the last begin with `initialize` ("legacy"). */
enum mcp_version {
    MCP_2024_11_05,
    MCP_2025_03_26, /* the only one with batches */
    MCP_2025_06_18, /* from here on: structured content, titles, resource links */
    MCP_2025_11_25, /* what a legacy client gets that asks for one we do not know */
    MCP_2026_07_28, /* "modern": no handshake, no session */
    MCP_VERSIONS
};
const char *mcp_version_name(enum mcp_version v);
int mcp_version_find(struct str name); /* -1: not one of ours */
static inline bool mcp_is_modern(enum mcp_version v) { return v == MCP_2026_07_28; }

enum rpc_code {
    RPC_PARSE = -32700,
    RPC_INVALID = -32600,
    RPC_NO_METHOD = -32601,
    RPC_PARAMS = -32602,
    RPC_INTERNAL = -32603,
    RPC_NO_RESOURCE = -32002, /* legacy only; modern says RPC_PARAMS */
    RPC_HEADERS = -32020,
    RPC_VERSION = -32022,
};

enum rpc_kind { RPC_REQUEST, RPC_NOTIFICATION, RPC_RESPONSE };
struct rpc { /* strings and trees live as long as the message */
    enum rpc_kind kind;
    struct json *id;     /* of a request: a string or an integer */
    struct str method;   /* NUL-terminated */
    struct json *params; /* an object, or NULL */
    struct json *meta;   /* params._meta, or NULL */
};
/* -1 + e: not a message of JSON-RPC; ret->id is then set if it has one that can be echoed. */
int rpc_read(struct json *message, struct rpc *ret, struct err *e);

#define MCP_META(name) "io.modelcontextprotocol/" name
/* params._meta names a revision, whatever it is: the message is of the modern kind. */
bool rpc_says_version(const struct rpc *r);

/* One whole answer. id NULL: null in legacy, absent in modern. */
struct rpc_error {
    int code;
    const char *say;
    const char *data; /* JSON text, or NULL */
};
void rpc_put_error(struct jw *w, const char *id_json, bool modern, const struct rpc_error *e);
void rpc_put_result(struct jw *w, const char *id_json, struct str result);
/* {"supported":[…],"requested":…} */
void rpc_versions_data(struct str requested, struct buf *out);
void rpc_put_versions(struct jw *w); /* newest first */

/* A header's value as the body has it: "=?base64?…?=" is decoded. False: it is broken. */
bool rpc_header_value(struct str raw, struct buf *out);
