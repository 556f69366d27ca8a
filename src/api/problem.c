#include "api/problem.h"
#include "base/log.h"
#include <errno.h>
#include <stdio.h>

#define HINT_LEN 128

struct hint { enum err_code code; enum about about; const char *text; };

/* First match wins; ABOUT_REQUEST rows are the default of their code. */
/* clang-format off */
static const struct hint hints[] = {
    {E_NOT_FOUND,   ABOUT_SANDBOX,  "`hutch ls` shows what there is"},
    {E_NOT_FOUND,   ABOUT_TEMPLATE, "`hutch template ls` shows what is built; `hutch template build NAME` builds one"},
    {E_NOT_FOUND,   ABOUT_PROCESS,  "GET …/processes lists them; an ended process is kept for a few minutes"},
    {E_NOT_FOUND,   ABOUT_FILE,     "a path is absolute or relative to the user's home; GET …/dirs?path= lists a directory"},
    {E_NOT_FOUND,   ABOUT_KEY,      "`hutch key ls` shows the ids"},
    {E_NOT_FOUND,   ABOUT_VOLUME,   "`hutch volume ls` shows them; `hutch volume create NAME` makes one"},
    {E_NOT_FOUND,   ABOUT_SNAPSHOT, "`hutch snapshots` shows them; `hutch snapshot ID` takes one"},
    {E_CONFLICT,    ABOUT_SNAPSHOT, "a name is unique; a paused sandbox is resumed first"},
    {E_UNSUPPORTED, ABOUT_SNAPSHOT, "\"memory\": false keeps the files"},
    {E_NOT_FOUND,   ABOUT_CONTEXT,  "GET …/contexts lists them; without `context` the language's default is used"},
    {E_UNSUPPORTED, ABOUT_CONTEXT,  "template code-interpreter has all six languages; base has python, javascript and bash"},
    {E_QUOTA,       ABOUT_CONTEXT,  "remove a context first, or wait for the cells before"},
    {E_NOT_FOUND,   ABOUT_SECRET,   "`hutch secret ls` shows the names"},
    {E_INVALID,     ABOUT_NETWORK,  "{\"mode\":\"allow\",\"allow\":[\"example.org\",\"*.example.org\",\"192.0.2.0/24:443\"],\"presets\":[\"pip\"]}; docs/network.md has all of it"},
    {E_NOT_FOUND,   ABOUT_ROUTE,    "GET /v1/openapi.json lists every path"},
    {E_NOT_FOUND,   ABOUT_REQUEST,  "check the id or name"},
    {E_CONFLICT,    ABOUT_TEMPLATE, "end the sandboxes that stand on it first, or use force"},
    {E_CONFLICT,    ABOUT_SANDBOX,  "`hutch info ID` shows its state: a paused sandbox is resumed first; names are unique among living sandboxes"},
    {E_CONFLICT,    ABOUT_VOLUME,   "a name is unique; a volume can be deleted when no sandbox has it: end those first"},
    {E_CONFLICT,    ABOUT_STATE,    "`hutch info ID` shows what state it is in; POST …/resume wakes a paused one"},
    {E_CONFLICT,    ABOUT_RECOVER,  "`hutch kill ID` ends the other one, PATCH /v1/sandboxes/ID {\"name\":…} renames it"},
    {E_CONFLICT,    ABOUT_REQUEST,  "look at the present state, then decide again"},
    {E_DENIED,      ABOUT_HOST,     "use localhost, or name the host in HUTCH_HOSTS"},
    {E_DENIED,      ABOUT_ORIGIN,   "pages from other sites may not call this API; allowed hosts go into HUTCH_HOSTS"},
    {E_DENIED,      ABOUT_SOCKET,   "use the unix socket $HUTCH_RUN/hutch.sock"},
    {E_DENIED,      ABOUT_FILE,     "pass user=root, or change the owner or mode"},
    {E_DENIED,      ABOUT_REQUEST,  "this caller may not do that"},
    {E_UNAUTHENTICATED, ABOUT_REQUEST, "send `Authorization: Bearer KEY` or `X-API-Key: KEY`; `hutch key create NAME` makes a key"},
    {E_GONE,        ABOUT_REQUEST,  "it has ended; create a new one"},
    {E_TOO_LARGE,   ABOUT_FILE,     "read it in parts with offset= and length="},
    {E_TOO_LARGE,   ABOUT_REQUEST,  "send less at once; large inputs go in as files or through stdin"},
    {E_QUOTA,       ABOUT_FILE,     "free space inside, or create the sandbox with a larger disk_mib"},
    {E_QUOTA,       ABOUT_REQUEST,  "end something first, or raise the named limit"},
    {E_RATE,        ABOUT_REQUEST,  "wait a moment and try again"},
    {E_TIMEOUT,     ABOUT_REQUEST,  "try again, or allow more time"},
    {E_UNAVAILABLE, ABOUT_REQUEST,  "try again in a moment; `hutch doctor` tells what is wrong with the host"},
    {E_UNSUPPORTED, ABOUT_ISOLATE,  "`hutch template build isolate` makes a template with all four languages; `template` names another one"},
    {E_GUEST,       ABOUT_ISOLATE,  "try again: the next call starts a new interpreter"},
    {E_RATE,        ABOUT_ISOLATE,  "wait a moment and try again; HUTCH_ISOLATE_CALLS says how many run at once"},
    {E_GUEST,       ABOUT_TEMPLATE, "`hutch doctor` shows what this host can do; log/console.log in HUTCH_HOME has what guests printed that did not come up"},
    {E_UNSUPPORTED, ABOUT_REQUEST,  "`hutch doctor` shows what this host can do"},
    {E_GUEST,       ABOUT_REQUEST,  "the inside of the sandbox misbehaved; a new sandbox is a clean start"},
    {E_INVALID,     ABOUT_REQUEST,  "GET /v1/openapi.json describes what is accepted"},
    {E_INVALID,     ABOUT_ROUTE,    "GET /v1/openapi.json lists every path and its methods"},
    {E_INTERNAL,    ABOUT_REQUEST,  "the daemon's log has the details under this request id"},
    {E_CANCELED,    ABOUT_REQUEST,  "it was stopped before it finished"},
};
/* clang-format on */

const char *problem_hint(enum err_code code, enum about about)
{
    const char *otherwise = "";
    for (size_t i = 0; i < sizeof hints / sizeof *hints; i++) {
        if (hints[i].code != code)
            continue;
        if (hints[i].about == about)
            return hints[i].text;
        if (hints[i].about == ABOUT_REQUEST)
            otherwise = hints[i].text;
    }
    return otherwise;
}

/* An internal message may name host paths: only the socket's callers, who could read the log anyway, see it. */
void problem_put(struct jw *w, const struct err *e, const char *hint, const char *request_id, bool trusted)
{
    bool hide = e->code == E_INTERNAL && !trusted;
    if (!hint)
        hint = problem_hint(e->code, ABOUT_REQUEST);
    jw_obj(w);
    jw_kv_str(w, "code", err_name(e->code));
    jw_kv_str(w, "message", hide ? "internal error" : *e->msg ? e->msg : err_name(e->code));
    if (*hint)
        jw_kv_str(w, "hint", hint);
    jw_kv_str(w, "request_id", request_id);
    jw_end(w);
}

/* A failed sandbox is the one thing that is gone and can be had back. */
static const char *hint_of(struct http_stream *s, const struct err *e, const char *hint, char *room, size_t n)
{
    struct str id = http_param(s, "id");
    if (e->code != E_GONE || e->sys != EOWNERDEAD)
        return hint;
    if (!id.n)
        id = S("ID");
    (void)snprintf(room, n, "`hutch recover %.*s` brings it back", (int)(id.n > 63 ? 63 : id.n), id.p);
    return room;
}

static void note(struct http_stream *s, const struct err *e)
{
    if (e->code == E_INTERNAL || e->code == E_GUEST)
        log_warn("request %s: %s: %s", http_request_id(s), err_name(e->code), e->msg);
}

void problem_put_stream(struct jw *w, struct http_stream *s, const struct err *e, enum about about)
{
    char room[HINT_LEN];
    note(s, e);
    problem_put(w, e, hint_of(s, e, problem_hint(e->code, about), room, sizeof room), http_request_id(s), http_is_unix(s));
}

static void reply(struct http_stream *s, int status, const struct err *e, const char *hint)
{
    struct buf b = {0};
    struct jw w;
    char room[HINT_LEN];
    jw_init(&w, &b);
    jw_obj(&w);
    jw_key(&w, "error");
    problem_put(&w, e, hint_of(s, e, hint, room, sizeof room), http_request_id(s), http_is_unix(s));
    jw_end(&w);
    http_reply_buf(s, status, "application/json", &b);
    buf_free(&b); /* empty unless the stream was already over */
}

void problem_reply(struct http_stream *s, const struct err *e, const char *hint)
{
    note(s, e);
    if (e->code == E_UNAUTHENTICATED)
        (void)http_header(s, "WWW-Authenticate", "Bearer"); /* RFC 9110 11.6.1; too late only if the reply is out */
    if (e->code == E_RATE || e->code == E_UNAVAILABLE)
        (void)http_header(s, "Retry-After", "1");
    reply(s, err_http(e->code), e, hint);
}

void problem_about(struct http_stream *s, const struct err *e, enum about about) { problem_reply(s, e, problem_hint(e->code, about)); }

void problem_method(struct http_stream *s, const char *allow)
{
    struct err e;
    struct str m = http_method(s);
    err_set(&e, E_INVALID, "%.*s is not a method of this path; allowed: %s", (int)(m.n > 32 ? 32 : m.n), m.p, allow);
    (void)http_header(s, "Allow", allow); /* RFC 9110 15.5.6 */
    reply(s, 405, &e, problem_hint(E_INVALID, ABOUT_ROUTE));
}
