/* One request of a client, from its first byte to its answer: the blocks of a tool's result,
 * progress, and the end. A call ends once: answered or cancelled. Its memory goes when the last
 * callback that holds it is back. */
#include "api/mcp/mcp.h"
#include "api/req.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "api/utf8.h"
#include "api/mcp/text.h"
#include "core/catalog/snapshot.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define TICK_NS (1 * NS_PER_S)
#define APART_NS \
    (60 * NS_PER_MS) /* SDKs take progress in the same read as the result for a stray */
#define NEWS_MAX 200

static void mcall_tick(void *arg);
static void mcall_late(void *arg);

static char *dump(struct json *j)
{
    struct buf b = {0};
    if (!j)
        return NULL;
    json_dump(j, &b);
    return buf_take(&b);
}

struct mcall *mcall_new(struct post *p, const struct rpc *r, enum mcp_version v)
{
    struct mcall *k = xcalloc(1, sizeof *k);
    struct json *token = json_get(r->meta, "progressToken");
    k->m = mcp_ref(p->m), k->post = p, k->ss = p->ss, k->version = v;
    k->id = dump(r->id);
    k->method = r->method, k->params = r->params, k->meta = r->meta;
    if (json_kind(token) == JSON_STR || json_kind(token) == JSON_INT)
        k->progress = dump(token);
    k->begun = clock_mono();
    timer_init(&k->tick, p->m->loop, mcall_tick, k);
    timer_init(&k->late, p->m->loop, mcall_late, k);
    if (k->progress)
        timer_arm(&k->tick, TICK_NS);
    if (k->ss)
        list_add_tail(&k->ss->calls, &k->of_session);
    p->open++;
    return k;
}

/* ---- life ---- */
static void mcall_bury(void *arg)
{
    struct mcall *k = arg;
    free(k->id);
    free(k->progress);
    buf_free(&k->content), buf_free(&k->structured), buf_free(&k->answer);
    mcp_unref(k->m);
    free(k);
}

void mcall_hold(struct mcall *k) { k->holds++; }

bool mcall_back(struct mcall *k)
{
    k->holds--;
    if (!k->over)
        return true;
    if (!k->holds)
        loop_defer(k->m->loop, mcall_bury, k);
    return false;
}

static void end(struct mcall *k, struct str json, int status)
{
    struct post *p = k->post;
    if (k->over)
        return;
    k->over = true;
    timer_stop(&k->tick), timer_stop(&k->late);
    list_del(&k->of_session);
    if (k->fini)
        k->fini(k);
    k->fini = NULL, k->stop = NULL, k->news = NULL;
    post_answer(p, json, status);
    k->post = NULL;
    if (!k->holds)
        loop_defer(k->m->loop, mcall_bury, k);
}

void mcall_cancel(struct mcall *k)
{
    if (!k->over && k->stop)
        k->stop(k);
    end(k, (struct str){0}, 0);
}

static void mcall_late(void *arg)
{
    struct mcall *k = arg;
    end(k, (struct str){k->answer.p, k->answer.n}, 200);
}

/* What it was doing is over: nothing of it may call back or be stopped from here on. */
static void answered(struct mcall *k)
{
    int64_t apart = clock_mono() - k->told;
    timer_stop(&k->tick);
    if (k->fini)
        k->fini(k);
    k->fini = NULL, k->stop = NULL, k->news = NULL;
    if (k->told && apart < APART_NS)
        timer_arm(&k->late, APART_NS - apart);
    else
        mcall_late(k);
}

/* ---- progress ---- */
static void mcall_tick(void *arg)
{
    struct mcall *k = arg;
    auto_buf raw = {0}, news = {0}, b = {0};
    struct jw w;
    timer_arm(&k->tick, TICK_NS);
    if (!k->post->flow)
        return;
    if (k->news)
        k->news(k, &raw);
    text_clean((struct str){raw.p, raw.n}, &news);
    k->told = clock_mono();
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_str(&w, "jsonrpc", "2.0");
    jw_kv_str(&w, "method", "notifications/progress");
    jw_kv_obj(&w, "params");
    jw_kv_raw(&w, "progressToken", str_of(k->progress));
    jw_kv_f64(&w, "progress", (double)((k->told - k->begun) / NS_PER_MS) / 1000);
    if (news.n && k->version >= MCP_2025_03_26) {
        size_t n = news.n > NEWS_MAX ? utf8_whole(news.p, NEWS_MAX) : news.n;
        jw_kv_strn(&w, "message", (struct str){news.p, n});
    }
    jw_end(&w);
    jw_end(&w);
    post_tell(k->post, (struct str){b.p, b.n}, true);
}

/* ---- answers ---- */
static int status_of(const struct mcall *k, int code)
{
    if (!mcp_is_modern(k->version))
        return code == RPC_INVALID ? 400 : 200;
    return code == RPC_NO_METHOD ? 404 : code == RPC_INVALID ? 400 : 200;
}

void mcall_error(struct mcall *k, const struct rpc_error *e)
{
    struct jw w;
    jw_init(&w, &k->answer);
    k->answer.n = 0;
    rpc_put_error(&w, k->id, mcp_is_modern(k->version), e);
    end(k, (struct str){k->answer.p, k->answer.n}, status_of(k, e->code));
}

void mcall_errorf(struct mcall *k, int code, const char *fmt, ...)
{
    char say[300];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(say, sizeof say, fmt, ap);
    va_end(ap);
    mcall_error(k, &(struct rpc_error){.code = code, .say = say});
}

struct jw *mcall_result(struct mcall *k)
{
    k->answer.n = 0;
    jw_init(&k->w, &k->answer);
    jw_obj(&k->w);
    jw_kv_str(&k->w, "jsonrpc", "2.0");
    jw_kv_raw(&k->w, "id", str_of(k->id));
    jw_kv_obj(&k->w, "result");
    if (mcp_is_modern(k->version))
        jw_kv_str(&k->w, "resultType", "complete");
    return &k->w;
}

static void put_server(struct jw *w)
{
    jw_kv_obj(w, "_meta");
    jw_kv_obj(w, MCP_META("serverInfo"));
    jw_kv_str(w, "name", "hutch");
    jw_kv_str(w, "version", HUTCH_VERSION);
    jw_end(w);
    jw_end(w);
}

void mcall_result_send(struct mcall *k)
{
    if (mcp_is_modern(k->version))
        put_server(&k->w);
    jw_end(&k->w);
    jw_end(&k->w);
    answered(k);
}

void mcall_cache(struct mcall *k, struct jw *w, bool everybody)
{
    if (!mcp_is_modern(k->version))
        return;
    jw_kv_u64(w, "ttlMs", everybody ? 3600000 : 0);
    jw_kv_str(w, "cacheScope", everybody ? "public" : "private");
}

/* ---- blocks ---- */
static void block(struct mcall *k, struct jw *w, const char *type)
{
    if (k->content.n)
        buf_putc(&k->content, ',');
    jw_init(w, &k->content);
    jw_obj(w);
    jw_kv_str(w, "type", type);
}

void mcall_text(struct mcall *k, struct str text)
{
    struct jw w;
    block(k, &w, "text");
    jw_kv_strn(&w, "text", text);
    jw_end(&w);
}

void mcall_textf(struct mcall *k, const char *fmt, ...)
{
    auto_buf b = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&b, fmt, ap);
    va_end(ap);
    mcall_text(k, (struct str){b.p, b.n});
}

void mcall_image(struct mcall *k, const char *mime, struct str base64)
{
    struct jw w;
    block(k, &w, "image");
    jw_kv_strn(&w, "data", base64);
    jw_kv_str(&w, "mimeType", mime);
    jw_end(&w);
}

void mcall_link(struct mcall *k, const char *sandbox, const char *path, const char *mime,
                uint64_t size)
{
    struct jw w;
    auto_buf uri = {0};
    const char *slash = strrchr(path, '/');
    resource_uri(sandbox, path, &uri);
    if (k->version < MCP_2025_06_18) {
        mcall_textf(k, "%s (%s, %llu bytes)", uri.p, mime, (unsigned long long)size);
        return;
    }
    block(k, &w, "resource_link");
    jw_kv_str(&w, "uri", uri.p);
    jw_kv_str(&w, "name", slash && slash[1] ? slash + 1 : path);
    jw_kv_str(&w, "mimeType", mime);
    jw_kv_u64(&w, "size", size);
    jw_end(&w);
}

struct jw *mcall_structured(struct mcall *k)
{
    k->structured.n = 0;
    jw_init(&k->w, &k->structured);
    jw_obj(&k->w);
    return &k->w;
}

void mcall_done(struct mcall *k)
{
    if (k->structured.n)
        jw_end(&k->w);
    struct jw *w = mcall_result(k);
    auto_buf list = {0};
    buf_putc(&list, '[');
    buf_put(&list, k->content.p, k->content.n);
    buf_putc(&list, ']');
    jw_kv_raw(w, "content", (struct str){list.p, list.n});
    if (k->structured.n && k->version >= MCP_2025_06_18)
        jw_kv_raw(w, "structuredContent", (struct str){k->structured.p, k->structured.n});
    if (k->is_error)
        jw_kv_bool(w, "isError", true);
    mcall_result_send(k);
}

void mcall_refuse(struct mcall *k, const char *fmt, ...)
{
    auto_buf b = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&b, fmt, ap);
    va_end(ap);
    k->content.n = k->structured.n = 0;
    k->is_error = true;
    mcall_text(k, (struct str){b.p, b.n});
    mcall_done(k);
}

/* What to do next, in terms of the tools. */
static const char *advice(enum err_why why)
{
    switch (why) {
    case REASON_NO_SANDBOX:
    case REASON_ENDED:
        return "Omit `sandbox` to get a new one, or call list_sandboxes. Files of one that ended "
               "are gone unless it was snapshotted.";
    case REASON_NO_TEMPLATE: return "Omit `template` for the default one.";
    case REASON_NO_SNAPSHOT: return "list_sandboxes lists the snapshots.";
    case REASON_NO_PROCESS: return "Only processes of run_command and run_code have an id.";
    case REASON_NO_FILE: return "list_files shows what is there.";
    case REASON_CWD_MISSING: return "cwd must be a directory inside the sandbox.";
    case REASON_DISK_FULL: return "Delete files in the sandbox.";
    case REASON_NO_LANGUAGE:
        return "Template code-interpreter has all languages; base has python, javascript and bash.";
    case REASON_LIMIT: return "Kill a sandbox that is not needed any more (list_sandboxes).";
    case REASON_BUSY:
    case REASON_TRY_AGAIN: return "Try again in a moment.";
    case REASON_PAUSED: return "It sleeps and was not created to wake by itself.";
    default: return "";
    }
}

void mcall_fail(struct mcall *k, const struct err *e, enum about about)
{
    bool hide = e->code == E_INTERNAL;
    const char *say = hide ? "internal error; the daemon's log has the details" : e->msg;
    const char *then = advice(problem_why(e, about));
    if (hide || e->code == E_GUEST)
        log_warn("mcp %s: %s", k->tool ? k->tool->name : "call", e->msg);
    size_t n = strlen(say);
    bool stop = n && (say[n - 1] == '.' || say[n - 1] == '?');
    mcall_refuse(k, "%s%s%s%s", say, stop ? "" : ".", *then ? " " : "", then);
}

void mcall_settle(struct mcall *k, int rc, const struct err *e, enum about about)
{
    if (rc && mcall_back(k))
        mcall_fail(k, e, about);
}

/* ---- lookups ---- */
struct caller mcall_caller(struct mcall *k) { return api_caller(k->m->api, k->post->s); }

bool mcall_sees(struct mcall *k, const char *tenant)
{
    struct caller who = mcall_caller(k);
    return caller_changes(&who, tenant);
}

bool mcall_owns(struct mcall *k, const struct sandbox *sb)
{
    return !strcmp(sandbox_tenant(sb), k->post->tenant);
}

struct sandbox *mcall_sandbox(struct mcall *k, struct str name, struct err *e)
{
    struct caller who = mcall_caller(k);
    auto_free char *text = xstrndup(name.p ? name.p : "", name.n);
    struct sandbox *sb = name_ok(str_of(text)) ? sandbox_find_for(k->m->core, &who, text, e) : NULL;
    if (sb && caller_changes(&who, sandbox_tenant(sb)))
        return sb;
    if (sb || !name_ok(str_of(text)))
        err_set(e, E_NOT_FOUND, "sandbox '%.63s' does not exist", text);
    return NULL;
}

struct sandbox *mcall_own_sandbox(struct mcall *k, struct err *e)
{
    return mcall_sandbox(k, str_of(k->sandbox), e);
}

struct snapshot *mcall_snapshot(struct mcall *k, struct str name, struct err *e)
{
    struct caller who = mcall_caller(k);
    struct snapshot *sn = name_ok(name) ? snapshot_find_for(k->m->core, &who, name.p, e) : NULL;
    if (sn && mcall_sees(k, snapshot_tenant(sn)))
        return sn;
    err_why(e, REASON_NO_SNAPSHOT, E_NOT_FOUND, "snapshot '%.*s' does not exist",
            (int)(name.n > 63 ? 63 : name.n), name.p ? name.p : "");
    return NULL;
}
