#include "api/problem.h"
#include "base/log.h"
#include <stdio.h>
#include <string.h>

#define HINT_LEN 192

/* What to do next, in terms of this API; the CLI has its own words for the same reasons (cli/hint.c). NULL: nothing helps. */
/* clang-format off */
static const char *const hints[REASON_MAX] = {
    [REASON_NO_SANDBOX]       = "GET /v1/sandboxes lists the sandboxes",
    [REASON_NO_TEMPLATE]      = "GET /v1/templates lists the templates; POST /v1/templates builds a built-in one",
    [REASON_NO_SNAPSHOT]      = "GET /v1/snapshots lists the snapshots",
    [REASON_NO_VOLUME]        = "GET /v1/volumes lists the volumes; POST /v1/volumes creates one",
    [REASON_NO_SECRET]        = "GET /v1/secrets lists the names",
    [REASON_NO_KEY]           = "GET /v1/keys lists the ids",
    [REASON_NO_PROCESS]       = "GET …/processes lists them; a process that has exited is kept for a few minutes",
    [REASON_NO_FILE]          = "a path is absolute or relative to the user's home; GET …/dirs?path= lists a directory",
    [REASON_NO_CONTEXT]       = "GET …/contexts lists them; without `context` the language's default is used",
    [REASON_NO_ROUTE]         = "GET /v1/openapi.json lists every path and its methods",
    [REASON_PROGRAM_MISSING]  = "check the first word of cmd and PATH; a string instead of an array is run by /bin/bash -c",
    [REASON_PROGRAM_DENIED]   = "make the file executable, or run it with its interpreter",
    [REASON_CWD_MISSING]      = "cwd must be a directory inside the sandbox",
    [REASON_STEP_FAILED]      = "the log events before this one are the output of the failed step",
    [REASON_AGENT_SILENT]     = "delete the sandbox and create a new one",
    [REASON_TRUST_STORE]      = "try again when the host is less busy, or use rules that need no certificate (no methods, paths or inject)",
    [REASON_DISK_FULL]        = "delete files in the sandbox, or create it with a larger disk_mib",
    [REASON_FILE_DENIED]      = "pass user=root, or change the file's owner or mode",
    [REASON_FILE_LARGE]       = "read it in parts with offset= and length=",
    [REASON_PAUSED]           = "POST /v1/sandboxes/{}/resume first, or create sandboxes with \"auto_resume\": true",
    [REASON_FAILED]           = "POST /v1/sandboxes/{}/recover brings it back from its disk",
    [REASON_ENDED]            = "POST /v1/sandboxes creates a new one",
    [REASON_BUSY]             = "try again in a moment",
    [REASON_NAME_TAKEN]       = "choose another name, or delete the one that has it",
    [REASON_TEMPLATE_USED]    = "delete the sandboxes that use it first: GET /v1/sandboxes?template=NAME lists them",
    [REASON_VOLUME_USED]      = "delete the sandboxes that use it first: \"attached\" of GET /v1/volumes/{} lists them",
    [REASON_NO_MEMORY]        = "\"memory\": false keeps the files only",
    [REASON_BAD_VALUE]        = "GET /v1/openapi.json describes what is accepted",
    [REASON_BAD_POLICY]       = "for example {\"mode\":\"allow\",\"allow\":[\"example.org\",\"192.0.2.0/24:443\"],\"presets\":[\"pip\"]}; see docs/network.md",
    [REASON_BAD_RECIPE]       = "docs/templates.md lists what a recipe may contain",
    [REASON_BAD_HOST]         = "use localhost, or add the host to HUTCH_HOSTS",
    [REASON_BAD_ORIGIN]       = "pages from other sites may not call this API; allowed hosts go into HUTCH_HOSTS",
    [REASON_SOCKET_ONLY]      = "use the unix socket $HUTCH_RUN/hutch.sock",
    [REASON_API_KEY]          = "send `Authorization: Bearer KEY` or `X-API-Key: KEY`; POST /v1/keys creates a key",
    [REASON_TOO_LARGE]        = "send less at once; write large inputs to files or stdin",
    [REASON_HOST_CANNOT]      = "GET /v1/doctor shows what this host supports",
    [REASON_PRESET]           = "GET /v1/doctor has a row for each preset",
    [REASON_LIMIT]            = "delete something first, or raise the limit that the message names",
    [REASON_TRY_AGAIN]        = "try again in a moment",
    [REASON_TIMEOUT]          = "try again, or allow more time",
    [REASON_INTERNAL]         = "the daemon's log has the details under this request id",
    [REASON_GUEST_BOOT]       = "log/console.log in HUTCH_HOME has what the guest printed; GET /v1/doctor checks the host",
    [REASON_NO_LANGUAGE]      = "template code-interpreter has all six languages; base has python, javascript and bash",
    [REASON_CONTEXT_LIMIT]    = "delete a context, or wait until its cells have finished",
    [REASON_ISOLATE_LANGUAGE] = "POST /v1/templates {\"builtin\":\"isolate\"} builds a template with all four languages",
    [REASON_ISOLATE_ENDED]    = "try again: the next call starts a new interpreter",
    [REASON_ROLE]             = "ask an admin of this host for a key with that role; GET /v1/keys shows what yours may",
    [REASON_SCOPE]            = "GET /v1/keys shows the scope of your key; an admin makes one with another",
    [REASON_ISOLATE_BUSY]     = "try again in a moment; HUTCH_ISOLATE_CALLS limits how many run at once",
};

/* The reason of an error that was made without one. Only what is true of every error with this code: a wrong hint is worse
 * than none. First match wins; ABOUT_REQUEST rows are the default of their code. */
static const struct { enum err_code code; enum about about; enum err_why why; } defaults[] = {
    {E_NOT_FOUND,       ABOUT_SANDBOX,  REASON_NO_SANDBOX},
    {E_NOT_FOUND,       ABOUT_TEMPLATE, REASON_NO_TEMPLATE},
    {E_NOT_FOUND,       ABOUT_PROCESS,  REASON_NO_PROCESS},
    {E_NOT_FOUND,       ABOUT_FILE,     REASON_NO_FILE},
    {E_NOT_FOUND,       ABOUT_KEY,      REASON_NO_KEY},
    {E_NOT_FOUND,       ABOUT_VOLUME,   REASON_NO_VOLUME},
    {E_NOT_FOUND,       ABOUT_SNAPSHOT, REASON_NO_SNAPSHOT},
    {E_NOT_FOUND,       ABOUT_CONTEXT,  REASON_NO_CONTEXT},
    {E_NOT_FOUND,       ABOUT_SECRET,   REASON_NO_SECRET},
    {E_NOT_FOUND,       ABOUT_ROUTE,    REASON_NO_ROUTE},
    {E_INVALID,         ABOUT_NETWORK,  REASON_BAD_POLICY},
    {E_INVALID,         ABOUT_ROUTE,    REASON_NO_ROUTE},
    {E_INVALID,         ABOUT_REQUEST,  REASON_BAD_VALUE},
    {E_UNAUTHENTICATED, ABOUT_REQUEST,  REASON_API_KEY},
    {E_DENIED,          ABOUT_HOST,     REASON_BAD_HOST},
    {E_DENIED,          ABOUT_ORIGIN,   REASON_BAD_ORIGIN},
    {E_DENIED,          ABOUT_SOCKET,   REASON_SOCKET_ONLY},
    {E_DENIED,          ABOUT_FILE,     REASON_FILE_DENIED},
    {E_TOO_LARGE,       ABOUT_FILE,     REASON_FILE_LARGE},
    {E_TOO_LARGE,       ABOUT_REQUEST,  REASON_TOO_LARGE},
    {E_QUOTA,           ABOUT_FILE,     REASON_DISK_FULL},
    {E_QUOTA,           ABOUT_CONTEXT,  REASON_CONTEXT_LIMIT},
    {E_QUOTA,           ABOUT_REQUEST,  REASON_LIMIT},
    {E_RATE,            ABOUT_ISOLATE,  REASON_ISOLATE_BUSY},
    {E_RATE,            ABOUT_REQUEST,  REASON_TRY_AGAIN},
    {E_TIMEOUT,         ABOUT_REQUEST,  REASON_TIMEOUT},
    {E_UNAVAILABLE,     ABOUT_REQUEST,  REASON_TRY_AGAIN},
    {E_UNSUPPORTED,     ABOUT_CONTEXT,  REASON_NO_LANGUAGE},
    {E_UNSUPPORTED,     ABOUT_ISOLATE,  REASON_ISOLATE_LANGUAGE},
    {E_GUEST,           ABOUT_ISOLATE,  REASON_ISOLATE_ENDED},
    {E_INTERNAL,        ABOUT_REQUEST,  REASON_INTERNAL},
};
/* clang-format on */

enum err_why problem_why(const struct err *e, enum about about)
{
    enum err_why otherwise = REASON_NONE;
    if (e->why)
        return (enum err_why)e->why;
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++) {
        if (defaults[i].code != e->code)
            continue;
        if (defaults[i].about == about)
            return defaults[i].why;
        if (defaults[i].about == ABOUT_REQUEST)
            otherwise = defaults[i].why;
    }
    return otherwise;
}

const char *problem_hint(enum err_why why)
{
    return (unsigned)why < REASON_MAX && hints[why] ? hints[why] : "";
}

/* An internal message may name host paths: only the socket's callers, who could read the log anyway, see it. */
static void put(struct jw *w, const struct err *e, enum err_why why, const char *hint, const char *request_id, bool trusted)
{
    bool hide = e->code == E_INTERNAL && !trusted;
    jw_obj(w);
    jw_kv_str(w, "code", err_name(e->code));
    jw_kv_str(w, "message", hide ? "internal error" : *e->msg ? e->msg : err_name(e->code));
    if (why)
        jw_kv_str(w, "reason", err_why_name(why));
    if (*hint)
        jw_kv_str(w, "hint", hint);
    jw_kv_str(w, "request_id", request_id);
    jw_end(w);
}

void problem_put(struct jw *w, const struct err *e, const char *request_id, bool trusted)
{
    enum err_why why = problem_why(e, ABOUT_REQUEST);
    put(w, e, why, problem_hint(why), request_id, trusted);
}

/* A hint with the id that the request was about. */
static const char *hint_of(struct http_stream *s, enum err_why why, char room[HINT_LEN])
{
    struct str id = http_param(s, "id");
    const char *hint = problem_hint(why), *gap = strstr(hint, "{}");
    if (!gap)
        return hint;
    if (!id.n)
        id = S("ID");
    (void)snprintf(room, HINT_LEN, "%.*s%.*s%s", (int)(gap - hint), hint, (int)(id.n > 40 ? 40 : id.n), id.p, gap + 2);
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
    enum err_why why = problem_why(e, about);
    note(s, e);
    put(w, e, why, hint_of(s, why, room), http_request_id(s), http_is_unix(s));
}

static void reply(struct http_stream *s, int status, const struct err *e, enum err_why why,
                  const char *hint)
{
    struct buf b = {0};
    struct jw w;
    char room[HINT_LEN];
    jw_init(&w, &b);
    jw_obj(&w);
    jw_key(&w, "error");
    put(&w, e, why, hint ? hint : hint_of(s, why, room), http_request_id(s), http_is_unix(s));
    jw_end(&w);
    http_reply_buf(s, status, "application/json", &b);
    buf_free(&b); /* empty unless the stream was already over */
}

static void refuse(struct http_stream *s, const struct err *e, enum err_why why, const char *hint)
{
    note(s, e);
    if (e->code == E_UNAUTHENTICATED)
        (void)http_header(s, "WWW-Authenticate", "Bearer"); /* RFC 9110 11.6.1; too late only if the reply is out */
    if (e->code == E_RATE || e->code == E_UNAVAILABLE)
        (void)http_header(s, "Retry-After", "1");
    reply(s, err_http(e->code), e, why, hint);
}

void problem_reply(struct http_stream *s, const struct err *e, const char *hint) { refuse(s, e, REASON_NONE, hint); }

void problem_about(struct http_stream *s, const struct err *e, enum about about)
{
    if (about == ABOUT_METHOD)
        reply(s, 405, e, REASON_NO_ROUTE, NULL);
    else
        refuse(s, e, problem_why(e, about), NULL);
}
