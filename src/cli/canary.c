#include "cli/canary.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/str.h"
#include "cli/out.h"
#include "cli/sandbox.h"
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROBES_MAX 12
#define SCRATCH_S  180
#define TRY_MS     60000
#define LOG_NS     (10 * NS_PER_S)
#define NOWHERE4   "198.51.100.1" /* for documentation: nobody's */
#define NOWHERE6   "2001:db8::1"
#define METADATA   "169.254.169.254"
#define METADATA6  "fd00:ec2::254"
#define KNOWN_NAME "example.com"

/* Inside, with triples of arguments: a line for each, "refused" or what happened instead. */
static const char script[] =
    "name() { if getent ahosts \"$1\" >/dev/null; then echo answered; else echo refused; fi; }\n"
    "tcp() { got=$(timeout 10 bash -c \"exec 3<>/dev/tcp/$1/$2 && printf 'GET / HTTP/1.0\\r\\nHost: canary\\r\\n\\r\\n' >&3 && head -c 12 <&3\" 2>/dev/null | tr -d '\\0')\n"
    "  case $got in '' | 'HTTP/1.1 403') echo refused ;; *) echo connected ;; esac; }\n"
    "udp() { if timeout 10 bash -c \"exec 3<>/dev/udp/$1/$2 && printf x >&3 && sleep 0.2 && printf x >&3\" 2>/dev/null; then echo sent; else echo refused; fi; }\n"
    "while [ $# -ge 3 ]; do $1 \"$2\" \"$3\"; shift 3; done\n";

struct probe { const char *kind; char to[256]; unsigned port; bool allowed /* what should become of it */, logged /* the gate writes it down */; };
struct policy_case { struct list link; char *title, *network, *tier, *tenant /* whose; NULL: whoever asks */; unsigned more; };
struct result { struct json *limits /* what the operator allows, GET /v1/tenants; NULL: we may not know */; struct table *table; struct buf json; struct jw w; int failed; };

/* ---- what to try ---- */

static void probe_add(struct probe *p, size_t *n, const char *kind, const char *to, unsigned port, bool allowed, bool logged)
{
    if (*n == PROBES_MAX)
        return;
    p[*n] = (struct probe){.kind = kind, .port = port, .allowed = allowed, .logged = logged};
    (void)snprintf(p[(*n)++].to, sizeof p->to, "%s", to);
}

/* An exact name that some rule allows, without its port. */
static bool name_in(struct json *allow, char *out, size_t cap)
{
    for (size_t i = 0; i < json_len(allow); i++) {
        struct json *v = json_at(allow, i);
        struct str s = {0};
        if (json_kind(v) == JSON_OBJ)
            s = str_of(jget_str(v, "domain", ""));
        else if (json_to_str(v, &s, NULL))
            continue;
        size_t n = 0;
        while (n < s.n && s.p[n] != ':')
            n++;
        char last = n ? s.p[n - 1] : 0;
        if (n < 3 || n >= cap || s.p[0] == '*' || s.p[0] == '[' || memchr(s.p, '/', n) || (last >= '0' && last <= '9') || !memchr(s.p, '.', n))
            continue;
        (void)snprintf(out, cap, "%.*s", (int)n, s.p);
        return true;
    }
    return false;
}

/* Of its own rules, or where one of its presets leads. */
static bool allowed_name(struct json *net, char *out, size_t cap)
{
    return name_in(json_get(net, "allow"), out, cap) || name_in(json_get(net, "leads_to"), out, cap);
}

/* Some rule is for every address: then nowhere is allowed too. */
static bool is_wide(struct json *net)
{
    struct json *allow = json_get(net, "allow");
    bool wide = false;
    for (size_t i = 0; i < json_len(allow); i++) {
        struct str s = {0};
        if (json_kind(json_at(allow, i)) == JSON_OBJ)
            s = str_of(jget_str(json_at(allow, i), "cidr", ""));
        else
            (void)json_to_str(json_at(allow, i), &s, NULL);
        wide |= s.n > 2 && !memcmp(s.p + s.n - 2, "/0", 2);
    }
    return wide;
}

static bool own_address(char *out, size_t cap)
{
    struct ifaddrs *all = NULL;
    bool found = false;
    if (getifaddrs(&all))
        return false;
    for (struct ifaddrs *i = all; i && !found; i = i->ifa_next)
        if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET && !(i->ifa_flags & IFF_LOOPBACK))
            found = inet_ntop(AF_INET, &((struct sockaddr_in *)(void *)i->ifa_addr)->sin_addr, out, (socklen_t)cap) != NULL;
    freeifaddrs(all);
    return found;
}

/* Ceilings that are a list: what they do not name is denied in mode open too. */
static size_t lists_over(struct json *limits, const char *tenant, struct json *ret[2])
{
    struct json *all = json_get(limits, "tenants"), *of[2] = {json_get(json_get(limits, "host"), "ceiling"), NULL};
    bool named = false;
    size_t n = 0;
    for (size_t i = 0; *tenant && i < json_len(all); i++) {
        const char *name = jget_str(json_at(all, i), "name", "");
        if (!strcmp(name, tenant) || (!named && !strcmp(name, "*")))
            of[1] = json_get(json_at(all, i), "ceiling");
        named |= !strcmp(name, tenant);
    }
    for (size_t i = 0; i < 2; i++)
        if (json_kind(of[i]) == JSON_OBJ && strcmp(jget_str(of[i], "mode", "allow"), "open") != 0 && !is_wide(of[i]))
            ret[n++] = of[i];
    return n;
}

static size_t probes_for(struct cli *x, struct json *net, struct json *limits, const char *tenant, struct probe *p)
{
    const char *mode = jget_str(net, "mode", "none");
    struct json *over[2];
    size_t n = 0, nover = lists_over(limits, tenant, over);
    bool open = !strcmp(mode, "open"), limited = jget_str(net, "limited", NULL) != NULL, wide = !nover && is_wide(net);
    char made[22], name[256];
    id_make('c', made);
    (void)snprintf(name, sizeof name, "%s.invalid", made);
    probe_add(p, &n, "name", name, 0, false, true);
    probe_add(p, &n, "tcp", METADATA, 80, false, true);
    if (x->local && own_address(name, sizeof name))
        probe_add(p, &n, "tcp", name, 80, false, true);
    probe_add(p, &n, "tcp", METADATA6, 80, false, false); /* a sandbox without IPv6 does not even ask */
    probe_add(p, &n, "udp", METADATA, 9, false, true);
    if (!wide)
        probe_add(p, &n, "udp", NOWHERE4, 9, false, true);
    if ((!open || nover) && !wide) {
        probe_add(p, &n, "tcp", NOWHERE4, 80, false, true);
        probe_add(p, &n, "tcp", NOWHERE6, 80, false, false);
    }
    if (open && nover) {
        (void)snprintf(name, sizeof name, "%s.com", made);
        probe_add(p, &n, "name", name, 0, false, true);
    }
    if (open && nover == 1 && name_in(json_get(over[0], "allow"), name, sizeof name))
        probe_add(p, &n, "name", name, 0, true, true);
    else if (!limited && open)
        probe_add(p, &n, "name", KNOWN_NAME, 0, true, true);
    else if (!limited && !strcmp(mode, "allow") && allowed_name(net, name, sizeof name))
        probe_add(p, &n, "name", name, 0, true, true);
    return n;
}

/* ---- a scratch sandbox ---- */

static int scratch(struct cli *x, const struct policy_case *c, struct json **ret)
{
    auto_buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_u64(&w, "timeout_s", SCRATCH_S);
    if (c->tier)
        jw_kv_str(&w, "isolation", c->tier);
    if (c->tenant && *c->tenant)
        jw_kv_str(&w, "tenant", c->tenant);
    jw_key(&w, "network");
    jw_raw(&w, str_of(c->network));
    jw_kv_obj(&w, "metadata");
    jw_kv_str(&w, "hutch.canary", "doctor");
    jw_end(&w);
    jw_end(&w);
    return api_call(x, "POST", "/v1/sandboxes", &b, ret);
}

static int try_inside(struct cli *x, const char *id, const struct probe *p, size_t n, struct json **ret)
{
    auto_free char *target = url("/v1/sandboxes/{}/exec", id);
    auto_buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_arr(&w, "cmd");
    jw_strz(&w, "/bin/sh"), jw_strz(&w, "-c"), jw_strz(&w, script), jw_strz(&w, "canary");
    for (size_t i = 0; i < n; i++) {
        char port[8];
        (void)snprintf(port, sizeof port, "%u", p[i].port);
        jw_strz(&w, p[i].kind), jw_strz(&w, p[i].to), jw_strz(&w, port);
    }
    jw_end(&w);
    jw_kv_u64(&w, "timeout_ms", TRY_MS);
    jw_end(&w);
    return api_call(x, "POST", target, &b, ret);
}

/* The gate's own word on a probe: "allow", "deny", or NULL if it has not written any. */
static const char *verdict_of(struct json *records, const struct probe *p)
{
    bool name = !strcmp(p->kind, "name");
    for (size_t i = 0; i < json_len(records); i++) {
        struct json *r = json_at(records, i);
        if (name ? !strcmp(jget_str(r, "kind", ""), "dns") && !strcmp(jget_str(r, "name", ""), p->to) : !strcmp(jget_str(r, "addr", ""), p->to) && jget_i64(r, "port", 0) == p->port)
            return jget_str(r, "verdict", NULL);
    }
    return NULL;
}

/* Something (the gate has taken the policy on), and every probe that it writes down. */
static bool all_written(struct json *records, const struct probe *p, size_t n)
{
    if (!json_len(records))
        return false;
    for (size_t i = 0; i < n; i++)
        if (p[i].logged && !verdict_of(records, &p[i]))
            return false;
    return true;
}

static int read_log(struct cli *x, const char *id, const struct probe *p, size_t n, struct json **ret)
{
    auto_free char *target = url("/v1/sandboxes/{}/egress?limit=1000", id);
    for (int64_t end = clock_mono() + LOG_NS;; (void)usleep(100000)) {
        if (api_call(x, "GET", target, NULL, ret))
            return -1;
        if (all_written(json_get(*ret, "records"), p, n) || clock_mono() > end)
            return 0;
        json_free(*ret);
        *ret = NULL;
    }
}

/* ---- judgement ---- */

#define NOT_TRIED "skip"

static void say(struct result *r, const struct policy_case *c, const char *code /* "" fine */, const char *probe, const char *want, const char *found)
{
    bool skip = !strcmp(code, NOT_TRIED), bad = *code && !skip;
    r->failed += bad;
    table_cell(r->table, bad ? ST_BAD : skip ? ST_PLAIN : ST_GOOD, bad ? "FAIL" : skip ? "skip" : "ok");
    if (c->more)
        table_cellf(r->table, ST_PLAIN, "%s and %u more", c->title, c->more);
    else
        table_cell(r->table, ST_PLAIN, c->title);
    table_cell(r->table, ST_PLAIN, probe);
    table_cell(r->table, ST_PLAIN, want);
    table_cell(r->table, bad ? ST_BAD : ST_PLAIN, found);
    jw_obj(&r->w);
    jw_kv_str(&r->w, "policy", c->title);
    jw_kv_str(&r->w, "status", bad ? "fail" : skip ? "skip" : "ok");
    if (bad)
        jw_kv_str(&r->w, "code", code);
    jw_kv_str(&r->w, "probe", probe);
    jw_kv_str(&r->w, "want", want);
    jw_kv_str(&r->w, "found", found);
    jw_end(&r->w);
}

static void judge(struct result *r, const struct policy_case *c, const struct probe *p, struct str inside, const char *verdict)
{
    char what[300], found[160];
    bool refused = str_eqz(inside, "refused");
    const char *code = "";
    if (p->port)
        (void)snprintf(what, sizeof what, "%s %s port %u", p->kind, p->to, p->port);
    else
        (void)snprintf(what, sizeof what, "%s %s", p->kind, p->to);
    (void)snprintf(found, sizeof found, "inside: %.*s; log: %s", (int)(inside.n > 32 ? 32 : inside.n), inside.p ? inside.p : "", verdict ? verdict : p->logged ? "nothing" : "-");
    if (!inside.n || (p->logged && !verdict))
        code = "silent"; /* nothing is known of it, which is as bad */
    else if (!p->allowed && (!refused || (verdict && strcmp(verdict, "deny") != 0)))
        code = "leak";
    else if (p->allowed && strcmp(verdict, "allow") != 0)
        code = "blocked"; /* whether the far end answers is not the gate's to say */
    say(r, c, code, what, p->allowed ? "allowed" : "denied", found);
}

static struct str next_line(struct str *text)
{
    const char *nl = text->n ? memchr(text->p, '\n', text->n) : NULL;
    struct str line = {text->p, nl ? (size_t)(nl - text->p) : text->n};
    size_t used = line.n + (nl != NULL);
    text->p += used, text->n -= used;
    return line;
}

static void examine(struct cli *x, const struct policy_case *c, struct result *r)
{
    struct probe p[PROBES_MAX];
    auto_json sb = NULL;
    auto_json done = NULL;
    auto_json log = NULL;
    if (scratch(x, c, &sb)) {
        if (c->tenant && x->err.code == E_DENIED)
            say(r, c, NOT_TRIED, "scratch sandbox", "starts", "belongs to another tenant: the operator can try it, on the host and without a key");
        else
            say(r, c, err_name(x->err.code), "scratch sandbox", "starts", x->err.msg);
        return;
    }
    const char *id = jget_str(sb, "id", "");
    const char *tenant = jget_str(sb, "tenant", "");
    if (c->tenant && strcmp(tenant, c->tenant) != 0) {
        say(r, c, NOT_TRIED, "scratch sandbox", "starts", "belongs to the operator, who can try it on the host and without a key");
        sandbox_kill_quiet(x, id);
        return;
    }
    size_t n = probes_for(x, json_get(sb, "network"), r->limits, tenant, p);
    auto_json before = NULL;
    if (read_log(x, id, p, 0, &before) || try_inside(x, id, p, n, &done) || read_log(x, id, p, n, &log)) {
        say(r, c, err_name(x->err.code), "scratch sandbox", "answers", x->err.msg);
    } else {
        struct str text = str_of(jget_str(done, "stdout", ""));
        for (size_t i = 0; i < n; i++)
            judge(r, c, &p[i], next_line(&text), p[i].logged ? verdict_of(json_get(log, "records"), &p[i]) : NULL);
    }
    sandbox_kill_quiet(x, id);
}

/* ---- which policies ---- */

static bool same(const char *a, const char *b) { return a && b ? !strcmp(a, b) : a == b; }
static void case_add(struct list *all, const char *title, const char *network, const char *tier, const char *tenant)
{
    struct policy_case *c;
    list_each(c, all, link)
        if (same(c->network, network) && same(c->tier, tier) && same(c->tenant, tenant)) {
            c->more++;
            return;
        }
    c = xcalloc(1, sizeof *c);
    *c = (struct policy_case){.title = xstrdup(title), .network = xstrdup(network), .tier = tier ? xstrdup(tier) : NULL, .tenant = tenant ? xstrdup(tenant) : NULL};
    list_add_tail(all, &c->link);
}

/* As it was given, less what it puts into requests: that allows nothing, and may belong to the sandbox alone. */
static char *policy_text(struct json *net)
{
    struct buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    for (void *it = json_first(net); it; it = json_next(net, it)) {
        if (str_eqz(json_iter_key(it), "inject") || str_eqz(json_iter_key(it), "limited") || str_eqz(json_iter_key(it), "leads_to"))
            continue;
        jw_key_str(&w, json_iter_key(it));
        jw_json(&w, json_iter_value(net, it));
    }
    jw_end(&w);
    return buf_take(&b);
}

static int live_policies(struct cli *x, const char *isolation, struct list *all)
{
    auto_free char *cursor = NULL;
    do {
        auto_free char *target = xstrdup("/v1/sandboxes");
        auto_json page = NULL;
        url_arg(&target, "cursor", cursor);
        if (api_call(x, "GET", target, NULL, &page))
            return -1;
        struct json *list = json_get(page, "sandboxes");
        for (size_t i = 0; i < json_len(list); i++) {
            struct json *sb = json_at(list, i);
            const char *state = jget_str(sb, "state", "");
            if (!json_get(sb, "network") || (strcmp(state, "running") != 0 && strcmp(state, "paused") != 0))
                continue;
            auto_free char *text = policy_text(json_get(sb, "network"));
            auto_free char *title = xasprintf("sandbox %s", jget_str(sb, "id", ""));
            case_add(all, title, text, isolation ? isolation : jget_str(json_get(sb, "isolation"), "tier", NULL), jget_str(sb, "tenant", ""));
        }
        const char *next = jget_str(page, "next", NULL);
        free(cursor);
        cursor = next && json_len(list) ? xstrdup(next) : NULL;
    } while (cursor);
    return 0;
}

/* Under each ceiling as much as can be asked for, whether or not somebody has a sandbox now. */
static void ceilings(struct json *limits, const char *isolation, struct list *all)
{
    struct json *t = json_get(limits, "tenants");
    for (size_t i = 0; i < json_len(t); i++) {
        const char *name = jget_str(json_at(t, i), "name", "");
        auto_free char *title = xasprintf("ceiling of tenant %s", name);
        if (json_kind(json_get(json_at(t, i), "ceiling")) == JSON_OBJ)
            case_add(all, title, "{\"mode\":\"open\"}", isolation, name);
    }
}

int canary_run(struct cli *x, const char *isolation, bool json)
{
    static const char *const heads[] = {"", "POLICY", "TRIED", "WANT", "FOUND", NULL};
    struct list all;
    struct policy_case *c;
    list_init(&all);
    case_add(&all, "mode none", "{\"mode\":\"none\"}", isolation, NULL);
    case_add(&all, "mode allow", "{\"mode\":\"allow\",\"allow\":[\"" KNOWN_NAME "\"]}", isolation, NULL);
    case_add(&all, "mode open", "{\"mode\":\"open\"}", isolation, NULL);
    struct result r = {.table = table_new(heads)};
    if (x->local && api_call(x, "GET", "/v1/tenants", NULL, &r.limits))
        r.limits = NULL; /* a daemon that cannot tell: then ceilings show as `limited` only */
    ceilings(r.limits, isolation, &all);
    int rc = live_policies(x, isolation, &all) ? cli_fail(x) : 0;
    jw_init(&r.w, &r.json);
    jw_arr(&r.w);
    list_each(c, &all, link) {
        if (!rc)
            examine(x, c, &r);
        list_del(&c->link);
        free(c->title), free(c->network), free(c->tier), free(c->tenant), free(c);
    }
    jw_end(&r.w);
    if (rc || json)
        table_free(r.table);
    else
        table_print(r.table);
    if (!rc && json)
        (void)printf("%s\n", r.json.p);
    buf_free(&r.json);
    json_free(r.limits);
    return rc ? rc : r.failed ? 1 : 0;
}
