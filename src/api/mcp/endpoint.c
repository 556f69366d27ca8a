/* /mcp over HTTP: POST brings messages, GET takes what the server has to say by itself or takes up
 * a broken stream, DELETE ends a session. Host, Origin and the key were checked before. */
#include "api/gate.h"
#include "api/mcp/mcp.h"
#include "api/params.h"
#include "api/req.h"
#include "base/clock.h"
#include "core/core.h"
#include <stdio.h>
#include <stdlib.h>

#define GRACE_NS (250 * NS_PER_MS) /* what is over by then is answered as plain JSON */
#define ALLOW    "GET, POST, DELETE"

/* ---- refusals ---- */
static void refuse(struct http_stream *s, int status, struct json *id, bool modern,
                   const struct rpc_error *e)
{
    struct buf b = {0};
    auto_buf text = {0};
    struct jw w;
    if (id)
        json_dump(id, &text);
    jw_init(&w, &b);
    rpc_put_error(&w, id ? text.p : NULL, modern, e);
    reply_json(s, status, &b);
}

static void refuse_say(struct http_stream *s, int status, int code, const char *say)
{
    refuse(s, status, NULL, true, &(struct rpc_error){.code = code, .say = say});
}

void mcp_fail(struct http_stream *s, const struct err *e, enum about about)
{
    int status = about == ABOUT_METHOD ? 405 : err_http(e->code);
    if (e->code == E_UNAUTHENTICATED)
        (void)http_header(s, "WWW-Authenticate",
                          gate_key(s).n ? "Bearer realm=\"hutch\", error=\"invalid_token\""
                                        : "Bearer realm=\"hutch\""); /* not sent yet */
    refuse_say(s, status, status >= 500 ? RPC_INTERNAL : RPC_INVALID, e->msg);
}

/* SDKs look for an authorization server after a 401: there is none, keys are made by hand. */
void mcp_oauth(struct http_stream *s, void *arg)
{
    (void)arg;
    static const char none[] = "{\"error\":\"not_found\"}";
    http_reply(s, 404, "application/json", none, sizeof none - 1);
}

/* ---- the answer to a POST ---- */
static void post_free(void *arg)
{
    struct post *p = arg;
    http_unref(p->s);
    json_free(p->root);
    buf_free(&p->answers);
    free(p->base), free(p->tools), free(p->sandbox), free(p->template);
    free(p);
}

static void post_over(struct post *p)
{
    timer_stop(&p->grace);
    if (!p->left && !p->flow)
        http_on_cancel(p->s, NULL, NULL);
    loop_defer(p->m->loop, post_free, p);
}

static void post_left(struct http_stream *s, void *arg);

void post_stream(struct post *p)
{
    bool keep = p->ss != NULL;
    if (p->flow || p->left || p->replied || !p->sse_ok)
        return;
    p->replied = true;
    if (keep)
        http_on_cancel(p->s, NULL, NULL); /* the flow watches: the work goes on without a client */
    p->flow = flow_open(p->m, p->s, keep ? ++p->ss->nflows : 0, p->version >= MCP_2025_11_25);
    if (keep)
        list_add_tail(&p->ss->flows, flow_link(p->flow));
    if (p->nanswers) { /* of a batch: what is there goes together */
        auto_buf b = {0};
        buf_printf(&b, p->batch ? "[%s]" : "%s", p->answers.p);
        flow_send(p->flow, (struct str){b.p, b.n}, false);
        p->nanswers = 0, p->answers.n = 0;
    }
}

void post_may_stream(struct post *p, bool at_once)
{
    if (at_once)
        post_stream(p);
    else if (!p->grace.armed)
        timer_arm(&p->grace, GRACE_NS);
}

void post_tell(struct post *p, struct str notification, bool dispensable)
{
    if (p->flow)
        flow_send(p->flow, notification, dispensable);
}

static void post_finish(struct post *p)
{
    if (p->flow) {
        flow_end(p->flow);
        if (!p->ss)
            flow_free(p->flow);
        p->flow = NULL;
    } else if (!p->left && !p->replied && p->nanswers) {
        struct buf b = {0};
        if (p->batch)
            buf_putc(&b, '[');
        buf_put(&b, p->answers.p, p->answers.n);
        if (p->batch)
            buf_putc(&b, ']');
        p->replied = true;
        http_on_cancel(p->s, NULL, NULL);
        reply_json(p->s, p->batch || !p->status ? 200 : p->status, &b);
    } else if (!p->left && !p->replied) { /* cancelled before anything was said */
        p->replied = true;
        http_on_cancel(p->s, NULL, NULL);
        http_reply(p->s, 200, p->sse_ok ? "text/event-stream" : NULL, "", 0);
    }
    p->left = true;
    post_over(p);
}

void post_close(struct post *p)
{
    if (p->flow && !flow_over(p->flow))
        flow_end(p->flow);
}

void post_answer(struct post *p, struct str json, int status)
{
    p->calls = NULL;
    if (json.n && !p->json_ok)
        post_stream(p); /* one that takes only streams gets one even for this */
    if (json.n && p->flow) {
        flow_send(p->flow, json, false);
    } else if (json.n) {
        if (p->nanswers++)
            buf_putc(&p->answers, ',');
        buf_put(&p->answers, json.p, json.n);
        p->status = status;
    }
    if (!--p->open)
        post_finish(p);
}

static void post_grace(void *arg)
{
    struct post *p = arg;
    post_stream(p);
}

/* ---- a client that leaves ---- */
static void cancel_all(struct post *p);

static void post_left(struct http_stream *s, void *arg)
{
    struct post *p = arg;
    (void)s;
    p->left = true;
    if (p->ss || !mcp_is_modern(p->version))
        return; /* legacy: leaving is not cancelling */
    cancel_all(p);
}

/* ---- messages ---- */
struct batch {
    struct rpc *at;
    size_t n;
};

/* The calls of a post are found through the lists they are in; modern ones have one each. */
static void cancel_all(struct post *p)
{
    if (p->calls)
        mcall_cancel(p->calls);
}

/* Modern: what the headers say is what the body says. 0, or the answer is out. */
static int check_name(struct http_stream *s, const struct rpc *r)
{
    static const char *const named[][2] = {
        {"tools/call", "name"}, {"prompts/get", "name"}, {"resources/read", "uri"}};
    auto_buf value = {0};
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        struct str want = {0}, raw = http_req_header(s, "Mcp-Name");
        if (!str_eqz(r->method, named[i][0]))
            continue;
        if (json_str(r->params, named[i][1], &want, true, NULL))
            return 0; /* the method says what is missing */
        if (raw.p && rpc_header_value(raw, &value) &&
            str_eq((struct str){value.p ? value.p : "", value.n}, want))
            return 0;
        refuse(s, 400, r->id, true,
               &(struct rpc_error){.code = RPC_HEADERS,
                                   .say = raw.p ? "header Mcp-Name and the body differ"
                                                : "header Mcp-Name is missing"});
        return -1;
    }
    return 0;
}

static int check_headers(struct http_stream *s, const struct rpc *r, struct str version)
{
    struct str h = http_req_header(s, "MCP-Protocol-Version"), m = http_req_header(s, "Mcp-Method");
    const char *say = !h.p ? "header MCP-Protocol-Version is missing"
                      : !str_eq(str_trim(h), version)
                          ? "header MCP-Protocol-Version and the body differ"
                      : !m.p                            ? "header Mcp-Method is missing"
                      : !str_eq(str_trim(m), r->method) ? "header Mcp-Method and the body differ"
                                                        : NULL;
    if (!say)
        return check_name(s, r);
    refuse(s, 400, r->id, true, &(struct rpc_error){.code = RPC_HEADERS, .say = say});
    return -1;
}

static int check_version(struct http_stream *s, const struct rpc *r, struct str version,
                         bool modern_only)
{
    auto_buf data = {0};
    int v = mcp_version_find(version);
    if (v >= 0 && (!modern_only || mcp_is_modern((enum mcp_version)v)))
        return 0;
    rpc_versions_data(version, &data);
    refuse(s, 400, r ? r->id : NULL, true,
           &(struct rpc_error){.code = RPC_VERSION,
                               .say = "this protocol version is not supported",
                               .data = data.p});
    return -1;
}

static int check_modern(struct http_stream *s, const struct rpc *r)
{
    struct str version = {0};
    if (json_str(r->meta, MCP_META("protocolVersion"), &version, true, NULL) ||
        json_kind(json_get(r->meta, MCP_META("clientCapabilities"))) != JSON_OBJ) {
        refuse(s, 400, r->id, true,
               &(struct rpc_error){.code = RPC_PARAMS,
                                   .say = "params._meta needs " MCP_META(
                                       "protocolVersion") " and " MCP_META("clientCapabilities")});
        return -1;
    }
    if (check_headers(s, r, version) || check_version(s, r, version, true))
        return -1;
    if (mcp_method_known(r->method, MCP_2026_07_28))
        return 0;
    refuse(s, 404, r->id, true,
           &(struct rpc_error){.code = RPC_NO_METHOD, .say = "there is no such method"});
    return -1;
}

/* ---- what the request asks for besides its body ---- */
static char *asked(struct http_stream *s, const char *key, const char *header)
{
    struct buf b = {0};
    struct str h = header ? http_req_header(s, header) : (struct str){0};
    if (h.n)
        return xstrndup(h.p, h.n);
    if (http_query_get(s, key, &b) && b.n)
        return buf_take(&b);
    buf_free(&b);
    return NULL;
}

/* Where the client reaches us: as it said, or as we listen if it came over the socket. */
static char *base_url(struct mcp *m, struct http_stream *s)
{
    const struct config *cfg = core_config(m->core);
    struct str host = http_head(s)->host, listen = str_of(cfg->listen);
    const char *scheme = *cfg->tls_cert ? "https" : "http";
    if (!http_is_unix(s) && host.n)
        return xasprintf("%s://%.*s", scheme, (int)host.n, host.p);
    const char *colon = strrchr(cfg->listen, ':');
    if (*listen.p == ':' || str_starts(listen, "0.0.0.0:") || str_starts(listen, "[::]:"))
        return xasprintf("%s://127.0.0.1%s", scheme, colon);
    return xasprintf("%s://%s", scheme, cfg->listen);
}

static struct post *post_new(struct mcp *m, struct http_stream *s, struct json *root)
{
    struct post *p = xcalloc(1, sizeof *p);
    p->m = m, p->s = http_ref(s), p->root = root;
    (void)snprintf(p->tenant, sizeof p->tenant, "%s", api_caller(m->api, s).tenant);
    p->base = base_url(m, s);
    p->tools = asked(s, "tools", "X-Hutch-Tools");
    p->sandbox = asked(s, "sandbox", "X-Hutch-Sandbox");
    p->template = asked(s, "template", "X-Hutch-Template");
    p->version = MCP_2025_11_25;
    timer_init(&p->grace, m->loop, post_grace, p);
    return p;
}

/* RFC 9110 12.5.1, as much as matters: which of the two forms may the answer have? */
static void read_accept(struct http_stream *s, bool *json, bool *sse)
{
    struct str a = http_req_header(s, "Accept");
    *json = *sse = !a.p;
    while (a.n) {
        const char *comma = memchr(a.p, ',', a.n);
        struct str one = {a.p, comma ? (size_t)(comma - a.p) : a.n};
        const char *semi = memchr(one.p, ';', one.n);
        struct str type = str_trim((struct str){one.p, semi ? (size_t)(semi - one.p) : one.n});
        bool any = str_eqz(type, "*/*");
        *json |= any || str_ieqz(type, "application/json") || str_eqz(type, "application/*");
        *sse |= any || str_ieqz(type, "text/event-stream") || str_eqz(type, "text/*");
        a.p += one.n + (comma != NULL), a.n -= one.n + (comma != NULL);
    }
}

/* ---- a POST ---- */
static void post_run(struct post *p, const struct rpc *r)
{
    struct mcall *k = mcall_new(p, r, p->version);
    if (mcp_is_modern(p->version))
        p->calls = k;
    mcp_begin(k);
}

static void cancel_in_session(struct session *ss, const struct rpc *r)
{
    struct mcall *k;
    auto_buf id = {0};
    struct json *which = json_get(r->params, "requestId");
    if (which)
        json_dump(which, &id);
    list_each(k, &ss->calls, of_session)
        if (id.n && !strcmp(k->id, id.p) && !str_eqz(k->method, "initialize")) {
            mcall_cancel(k);
            return;
        }
}

/* A notification, or an answer to something that we never asked. */
static void hear(struct post *p, const struct rpc *r)
{
    if (p->ss && r->kind == RPC_NOTIFICATION && str_eqz(r->method, "notifications/cancelled"))
        cancel_in_session(p->ss, r);
}

static void accept_silently(struct post *p)
{
    http_reply(p->s, 202, NULL, NULL, 0);
    post_free(p);
}

/* All at once, each by itself; `open` is one too many until all have begun. */
static void post_begin(struct post *p, const struct rpc *r, size_t n)
{
    p->open = 1;
    http_on_cancel(p->s, post_left, p);
    for (size_t i = 0; i < n; i++)
        if (r[i].kind == RPC_REQUEST)
            post_run(p, &r[i]);
        else
            hear(p, &r[i]);
    if (!--p->open)
        post_finish(p);
}

/* Legacy messages belong to a session. 0, or the answer is out. */
static int find_session(struct post *p, const struct rpc *first)
{
    struct str id = http_req_header(p->s, "Mcp-Session-Id");
    struct str h = http_req_header(p->s, "MCP-Protocol-Version");
    if (h.p && check_version(p->s, first, str_trim(h), false))
        return -1;
    if (!id.p) {
        refuse(p->s, 400, first->id, false,
               &(struct rpc_error){
                   .code = RPC_INVALID,
                   .say = "initialize first, then send the Mcp-Session-Id that it returned"});
        return -1;
    }
    p->ss = session_find(p->m, id, p->tenant);
    if (!p->ss) {
        refuse(
            p->s, 404, first->id, false,
            &(struct rpc_error){.code = RPC_INVALID, .say = "this session has ended; initialize"});
        return -1;
    }
    p->version = p->ss->version;
    return 0;
}

static void take_batch(struct post *p)
{
    size_t n = json_len(p->root);
    struct err e;
    struct rpc none = {0};
    struct rpc *r = xcalloc(n + 1, sizeof *r);
    bool wants_answer = false;
    const char *bad = !n || n > MCP_BATCH_MAX ? "a batch has 1 to 100 messages" : NULL;
    for (size_t i = 0; !bad && i < n; i++) {
        if (rpc_read(json_at(p->root, i), &r[i], &e))
            bad = "a message of the batch is not JSON-RPC";
        else if (str_eqz(r[i].method, "initialize"))
            bad = "initialize cannot be part of a batch";
        wants_answer |= r[i].kind == RPC_REQUEST;
    }
    if (!bad && find_session(p, &none)) {
        post_free(p);
    } else if (bad || p->version != MCP_2025_03_26) {
        refuse(p->s, 400, NULL, false,
               &(struct rpc_error){.code = RPC_INVALID,
                                   .say = bad ? bad : "only revision 2025-03-26 has batches"});
        post_free(p);
    } else {
        p->batch = true;
        for (size_t i = 0; !wants_answer && i < n; i++)
            hear(p, &r[i]);
        if (wants_answer)
            post_begin(p, r, n);
        else
            accept_silently(p);
    }
    free(r);
}

/* Which era a message is of (docs/mcp.md): its _meta decides, then initialize, then the header. */
static void take_message(struct post *p)
{
    struct rpc r;
    struct err e;
    struct http_stream *s = p->s;
    struct str h = str_trim(http_req_header(s, "MCP-Protocol-Version"));
    int hv = h.p ? mcp_version_find(h) : -1;
    bool modern_header = hv >= 0 && mcp_is_modern((enum mcp_version)hv);
    if (rpc_read(p->root, &r, &e)) {
        refuse(s, 400, r.id, modern_header, &(struct rpc_error){.code = RPC_INVALID, .say = e.msg});
        post_free(p);
        return;
    }
    bool begins = str_eqz(r.method, "initialize") && r.kind == RPC_REQUEST;
    if (r.kind != RPC_REQUEST && (modern_header || rpc_says_version(&r))) {
        accept_silently(p);
        return;
    }
    bool bad;
    if (rpc_says_version(&r)) {
        p->version = MCP_2026_07_28;
        bad = check_modern(s, &r);
    } else if (begins) {
        bad = false;
    } else if (modern_header || str_eqz(r.method, "server/discover")) {
        refuse(s, 400, r.id, true,
               &(struct rpc_error){.code = RPC_PARAMS,
                                   .say = "missing _meta: params._meta needs " MCP_META(
                                       "protocolVersion") " and " MCP_META("clientCapabilities")});
        bad = true;
    } else {
        bad = find_session(p, &r);
    }
    if (bad) {
        post_free(p);
    } else if (r.kind == RPC_REQUEST) {
        post_begin(p, &r, 1);
    } else {
        hear(p, &r);
        accept_silently(p);
    }
}

static bool is_json(struct str type)
{
    const char *semi = type.n ? memchr(type.p, ';', type.n) : NULL;
    return str_ieqz(str_trim((struct str){type.p, semi ? (size_t)(semi - type.p) : type.n}),
                    "application/json");
}

static void post_body(struct http_stream *s, void *arg, const char *text, size_t n)
{
    struct mcp *m = mcp_of(arg);
    struct err e;
    struct json *root = json_parse(text, n, &e);
    int hv = mcp_version_find(str_trim(http_req_header(s, "MCP-Protocol-Version")));
    if (!root) {
        char say[300];
        (void)snprintf(say, sizeof say, "not JSON: %s", e.msg);
        refuse(s, 400, NULL, hv >= 0 && mcp_is_modern((enum mcp_version)hv),
               &(struct rpc_error){.code = RPC_PARSE, .say = say});
        return;
    }
    if (api_still(m->api, s, &e)) {
        json_free(root);
        mcp_fail(s, &e, ABOUT_REQUEST);
        return;
    }
    struct post *p = post_new(m, s, root);
    read_accept(s, &p->json_ok, &p->sse_ok);
    if (p->tools && tools_profile_ok(m, p->tools, &e)) {
        refuse_say(s, 400, RPC_INVALID, e.msg);
        post_free(p);
    } else if (json_kind(root) == JSON_ARR) {
        take_batch(p);
    } else {
        take_message(p);
    }
}

void mcp_post(struct http_stream *s, void *a)
{
    bool json, sse;
    uint64_t n = http_body_length(s);
    read_accept(s, &json, &sse);
    if (n != UINT64_MAX && n > MCP_BODY_MAX)
        refuse_say(s, 413, RPC_INVALID, "the body is larger than 32 MiB");
    else if (!is_json(http_req_header(s, "Content-Type")))
        refuse_say(s, 415, RPC_INVALID, "the body must be sent as application/json");
    else if (!json && !sse)
        refuse_say(s, 406, RPC_INVALID,
                   "answers are application/json or text/event-stream; Accept names neither");
    else
        http_body_collect(s, MCP_BODY_MAX, post_body, a);
}

/* ---- GET and DELETE: of legacy sessions only ---- */
static struct session *of_session(struct http_stream *s, struct api *a)
{
    struct mcp *m = mcp_of(a);
    struct str id = http_req_header(s, "Mcp-Session-Id");
    struct str h = str_trim(http_req_header(s, "MCP-Protocol-Version"));
    if (!id.p || str_eqz(h, mcp_version_name(MCP_2026_07_28)) || http_is(s, "HEAD")) {
        (void)http_header(s, "Allow", ALLOW); /* not sent yet */
        refuse_say(s, 405, RPC_INVALID, "only POST, without a session");
        return NULL;
    }
    if (h.p && check_version(s, NULL, h, false))
        return NULL;
    struct session *ss = session_find(m, id, api_caller(a, s).tenant);
    if (!ss)
        refuse(
            s, 404, NULL, false,
            &(struct rpc_error){.code = RPC_INVALID, .say = "this session has ended; initialize"});
    return ss;
}

static void resume_flow(struct http_stream *s, struct session *ss, struct str id)
{
    struct flow *hit = NULL;
    unsigned number;
    unsigned long long after;
    char text[48];
    (void)snprintf(text, sizeof text, "%.*s", (int)(id.n < 47 ? id.n : 47), id.p);
    if (sscanf(text, "s%u_%llu", &number, &after) == 2)
        for (struct list *l = ss->flows.next; l != &ss->flows; l = l->next)
            if (flow_number(flow_of_link(l)) == number)
                hit = flow_of_link(l);
    if (hit && flow_resume(hit, s, after))
        return;
    (void)http_header(s, "Allow", ALLOW); /* clients stop asking at 405 */
    refuse_say(s, 405, RPC_INVALID, "this stream is over and was delivered");
}

static void push_left(struct http_stream *s, void *arg)
{
    struct session *ss = arg;
    (void)s;
    struct flow *f = ss->push;
    ss->push = NULL;
    flow_detach(f);
    flow_free(f);
}

void mcp_get(struct http_stream *s, void *a)
{
    bool json, sse;
    struct session *ss = of_session(s, a);
    struct str last = http_req_header(s, "Last-Event-ID");
    if (!ss)
        return;
    read_accept(s, &json, &sse);
    if (!sse) {
        refuse_say(s, 406, RPC_INVALID, "this is a text/event-stream");
    } else if (last.n) {
        resume_flow(s, ss, last);
    } else if (ss->push) {
        refuse_say(s, 409, RPC_INVALID, "this session has such a stream already");
    } else {
        ss->push = flow_open(ss->m, s, 0, false);
        http_on_cancel(s, push_left, ss);
        (void)http_write(s, ": open\n\n", 8); /* so that the client sees the head at once */
    }
}

void mcp_delete(struct http_stream *s, void *a)
{
    struct session *ss = of_session(s, a);
    if (!ss)
        return;
    session_end(ss);
    http_reply(s, 200, NULL, NULL, 0);
}
