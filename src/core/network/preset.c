#include "core/network/preset.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "core/network/egress.h"
#include "core/host/event.h"
#include "core/sandbox/object.h"
#include "loop/lines.h"
#include "gate/client.h"
#include "gate/ip.h"
#include "gate/links.h"
#include "gate/policy.h"
#include "spawn/client.h"
#include "core/host/ref.h"
#include "core/host/check.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FRESH_NS  (600 * NS_PER_S)
#define WRONG_NS  (5 * NS_PER_S)
#define LIMIT_NS  (90 * NS_PER_S)
#define RULES_MAX 64

static const char *const builtin[] = {"apt", "pip", "npm", "git"};

/* One lookup: the preset as it was last known, and the one being read. */
struct lookup {
    struct core *core;
    struct preset known, next;
    char title[40]; /* of its row in a report */
    bool loaded, running;
    int64_t at;
    char tool[22];
    struct lines out, err;
    int open; /* pipes that still may say something */
    bool ended;
    char why[160];
    struct timer limit;
    struct list waiters;
};
struct waiter {
    struct list link;
    struct batch *batch;
};
struct batch {
    size_t left;
    struct err first;
    void (*done)(void *arg, const struct err *e);
    void *arg;
    struct loop *loop;
};
struct presets {
    struct map by_name;
};

void preset_clear(struct preset *p)
{
    free(p->rule), free(p->text), free(p->page);
    for (size_t i = 0; i < p->nfiles; i++)
        free(p->file[i]);
    kv_free(&p->env);
    char name[sizeof p->name];
    memcpy(name, p->name, sizeof name);
    memset(p, 0, sizeof *p);
    memcpy(p->name, name, sizeof name);
}

#define VARIABLE "HUTCH_PRESET_"
/* Its variable: HUTCH_PRESET_MY_OWN of my-own. */
static const char *variable(const char *name, char ret[64])
{
    size_t n = (size_t)snprintf(ret, 64, VARIABLE);
    for (const char *p = name; *p && n < 63; p++)
        ret[n++] = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
    ret[n] = 0;
    return ret;
}
static const char *operators(const char *name)
{
    char var[64];
    return getenv(variable(name, var));
}

bool preset_known(struct core *c, struct str name)
{
    char z[32];
    (void)c;
    if (!name_ok(name) || name.n >= sizeof z)
        return false;
    (void)snprintf(z, sizeof z, "%.*s", (int)name.n, name.p);
    for (size_t i = 0; i < sizeof builtin / sizeof *builtin; i++)
        if (!strcmp(builtin[i], z))
            return true;
    return operators(z) != NULL;
}

/* ---- what the script says ------------------------------------------------------------------------------------------ */

static int add_url(struct preset *p, const char *url)
{
    struct preset_rule r = {0};
    bool tls = !strncmp(url, "https://", 8);
    if (!tls && strncmp(url, "http://", 7))
        return -1;
    const char *at = url + (tls ? 8 : 7);
    bool v6 = *at == '[';
    size_t n = v6 ? strcspn(++at, "]") : strcspn(at, ":/?#");
    struct ip ip;
    char canon[NAME_MAX_LEN + 1];
    struct str host = {at, n};
    uint64_t port = tls ? 443 : 80;
    if (!n || n >= sizeof r.host)
        return -1;
    r.address = ip_parse(host, &ip);
    if (!r.address && !name_canon(host, canon))
        return -1;
    if (r.address)
        (void)snprintf(r.host, sizeof r.host, "%.*s", (int)n, at);
    else
        (void)snprintf(r.host, sizeof r.host, "%s", canon);
    at += n + (v6 ? 1 : 0);
    if (*at == ':') {
        size_t digits = strcspn(at + 1, "/?#");
        if (!str_u64((struct str){at + 1, digits}, &port) || !port || port > 65535)
            return -1;
    }
    r.port = (unsigned)port;
    r.tls = tls;
    for (size_t i = 0; i < p->nrules; i++)
        if (p->rule[i].port == r.port && !strcmp(p->rule[i].host, r.host))
            return 0;
    if (p->nrules == RULES_MAX)
        return -1;
    p->rule = xrealloc(p->rule, (p->nrules + 1) * sizeof *p->rule);
    p->rule[p->nrules++] = r;
    return 0;
}

/* "https://host:port" of a link, 0 if it stays on its page's host. */
static size_t authority(const char *href)
{
    size_t n = strcspn(href, ":/?#");
    n += href[n] == ':';
    return strncmp(href + n, "//", 2) ? 0 : n + 2 + strcspn(href + n + 2, "/?#");
}

static void on_link(void *arg, const char *href)
{
    struct preset *p = arg;
    if (p->nfiles == PRESET_FILES_MAX || !links_file(href, "pip"))
        return;
    for (size_t i = 0, n = authority(href); i < p->nfiles; i++)
        if (authority(p->file[i]) == n && !strncmp(p->file[i], href, n))
            return;
    p->file[p->nfiles++] = xstrdup(href);
}

/* The end of a page: where its files are, seen from where it was. Without any it was not the page of an index, or there was none. */
static int page_end(struct preset *p, const char *url)
{
    if (!p->nfiles)
        (void)snprintf(p->doubt, sizeof p->doubt, "%s", url);
    for (size_t i = 0; i < p->nfiles; i++) {
        auto_free char *to = links_resolve(url, p->file[i]);
        if (!to || add_url(p, to))
            log_warn("preset %s: ignoring a link of the index: %.100s", p->name, p->file[i]);
        free(p->file[i]);
    }
    p->nfiles = 0;
    free(take_ptr(&p->page));
    return 0;
}

int preset_line(struct preset *p, char *line)
{
    if (!strncmp(line, "allow ", 6))
        return add_url(p, line + 6);
    if (!strncmp(line, "source ", 7)) {
        (void)snprintf(p->source, sizeof p->source, "%s", line + 7);
        return 0;
    }
    if (!strncmp(line, "html ", 5)) {
        if (!p->page)
            p->page = xcalloc(1, sizeof *p->page);
        links_feed(p->page, line + 5, strlen(line + 5), on_link, p);
        return 0;
    }
    if (!strncmp(line, "page ", 5))
        return page_end(p, line + 5);
    if (!strncmp(line, "via ", 4)) {
        size_t n = strcspn(line + 4, " ");
        const char *auth = line[4 + n] ? line + 4 + n + 1 : "";
        if (n >= sizeof p->via || strlen(auth) >= sizeof p->via_auth)
            return -1;
        (void)snprintf(p->via, sizeof p->via, "%.*s", (int)n, line + 4);
        (void)snprintf(p->via_auth, sizeof p->via_auth, "%s", auth);
        return 0;
    }
    if (strncmp(line, "env ", 4))
        return -1;
    char *name = line + 4, *value = strchr(name, ' ');
    if (!value || value == name || p->env.n >= 16 || !str_utf8(str_of(value)))
        return -1;
    struct str k = {name, (size_t)(value - name)};
    for (size_t i = 0; i < k.n; i++)
        if (!isalnum((unsigned char)k.p[i]) && k.p[i] != '_')
            return -1;
    kv_set(&p->env, k, str_of(value + 1));
    return 0;
}

static void put_words(struct jw *w, const char *key, const char *a, const char *b)
{
    jw_kv_arr(w, key);
    jw_strz(w, a);
    if (b)
        jw_strz(w, b);
    jw_end(w);
}

static void put_rule(struct jw *w, const char *name, const struct preset_rule *r, bool clone)
{
    char id[48];
    (void)snprintf(id, sizeof id, "preset-%s", name);
    jw_obj(w);
    jw_kv_str(w, r->address ? "cidr" : "domain", r->host);
    jw_kv_arr(w, "ports");
    jw_u64(w, r->port);
    jw_end(w);
    if (clone) {
        put_words(w, "methods", "POST", NULL);
        put_words(w, "paths", "*/git-upload-pack", NULL);
    } else if (!r->address || !r->tls) /* TLS to a number has no name to open it under */
        put_words(w, "methods", "GET", "HEAD");
    jw_kv_str(w, "id", id);
    jw_end(w);
}

bool preset_looks(const struct preset *p)
{
    for (size_t i = 0; i < p->nrules; i++)
        if (p->rule[i].tls && !p->rule[i].address)
            return true;
    return false;
}

void preset_put_rules(struct jw *w, const struct preset *p)
{
    bool git = !strcmp(p->name, "git");
    for (size_t i = 0; i < p->nrules; i++) {
        put_rule(w, p->name, &p->rule[i], false);
        if (git && (!p->rule[i].address || !p->rule[i].tls))
            put_rule(w, p->name, &p->rule[i], true);
    }
    auto_free char *text = p->text ? xstrdup(p->text) : NULL;
    char *rest = text;
    for (char *one; rest && (one = strsep(&rest, ", "));)
        if (*one)
            jw_strz(w, one);
}

/* ---- waiting ------------------------------------------------------------------------------------------------------- */

static void batch_one(struct batch *b, const struct err *e)
{
    if (e && e->code && !b->first.code)
        b->first = *e;
    if (--b->left)
        return;
    b->done(b->arg, b->first.code ? &b->first : NULL);
    free(b);
}

static void lookup_over(struct lookup *k)
{
    struct waiter *w;
    timer_stop(&k->limit);
    k->running = false;
    k->at = clock_mono();
    if (k->next.err.code && k->loaded && !k->known.err.code) {
        log_warn("preset %s: %s; keeping the previous hosts", k->known.name, k->next.err.msg);
        preset_clear(&k->next);
    } else {
        preset_clear(&k->known);
        k->known = k->next;
        memset(&k->next, 0, sizeof k->next);
    }
    k->loaded = true;
    if (*k->known.via)
        egress_proxies_changed(k->core);
    struct list all;
    list_init(&all);
    list_each(w, &k->waiters, link) {
        list_del(&w->link);
        list_add_tail(&all, &w->link);
    }
    list_each(w, &all, link) {
        list_del(&w->link);
        batch_one(w->batch, k->known.err.code ? &k->known.err : NULL);
        free(w);
    }
}

static void maybe_over(struct lookup *k)
{
    if (!k->running || !k->ended || k->open)
        return;
    char var[64];
    if (!k->next.nrules && !k->next.err.code)
        err_why(&k->next.err, REASON_PRESET, E_UNSUPPORTED,
                "preset '%s': %s; set %s=host,… in the daemon's environment and restart it",
                k->next.name, *k->why ? k->why : "this host's tool is not configured with a server",
                variable(k->next.name, var));
    lookup_over(k);
}

static void on_out(void *arg, char *line)
{
    struct lookup *k = arg;
    if (preset_line(&k->next, line))
        log_warn("preset %s: unexpected line: %.100s", k->next.name, line);
}
static void on_err(void *arg, char *line)
{
    struct lookup *k = arg;
    (void)snprintf(k->why, sizeof k->why, "%s", line);
}
static void out_eof(void *arg)
{
    struct lookup *k = arg;
    k->open--;
    maybe_over(k);
}

static void removed(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    (void)arg, (void)rep, (void)fds, (void)nfds;
}

/* Dead or alive. */
static void tool_remove(struct lookup *k)
{
    struct sp_req q = {.op = SP_REMOVE};
    struct err e;
    memcpy(q.u.id.id, k->tool, sizeof q.u.id.id);
    if (spawn_call(k->core->spawn, &q, NULL, 0, removed, NULL, &e))
        log_warn("preset: %s", e.msg);
}

static void on_limit(void *arg)
{
    struct lookup *k = arg;
    tool_remove(k);
    lines_stop(&k->out), lines_stop(&k->err);
    k->open = 0, k->ended = true;
    preset_clear(&k->next);
    err_why(&k->next.err, REASON_PRESET, E_TIMEOUT, "preset '%s': this host's tool did not answer",
            k->next.name);
    lookup_over(k);
}

static struct lookup *by_tool(struct core *c, const char *id)
{
    struct map_entry *en;
    for (size_t i = 0; c->presets && (en = map_next(&c->presets->by_name, &i));) {
        struct lookup *k = en->value;
        if (k->running && !strcmp(k->tool, id))
            return k;
    }
    return NULL;
}

bool preset_tool_exit(struct core *c, const struct sp_exit *ex)
{
    struct lookup *k = by_tool(c, ex->id);
    if (!k)
        return false;
    tool_remove(k);
    k->ended = true;
    maybe_over(k);
    return true;
}

static void tool_started(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    struct ref r = ref_take(arg);
    struct lookup *k = by_tool(r.core, r.id);
    if (!k)
        return;
    if (rep->rc || nfds < 2) {
        k->next.err = rep->err;
        if (!k->next.err.code)
            err_set(&k->next.err, E_INTERNAL, "preset '%s': no answer", k->next.name);
        k->ended = true;
        lookup_over(k);
        return;
    }
    k->open = 2;
    lines_start(&k->out, r.core->loop, take_fd(&fds[0]), on_out, out_eof, k);
    lines_start(&k->err, r.core->loop, take_fd(&fds[1]), on_err, out_eof, k);
}

static void run_tool(struct lookup *k)
{
    struct sp_req q = {.op = SP_TOOL};
    struct err e;
    id_make('x', k->tool);
    memcpy(q.u.tool.id, k->tool, sizeof k->tool);
    q.u.tool.kind = SP_TOOL_PRESET;
    (void)snprintf(q.u.tool.variant, sizeof q.u.tool.variant, "%s", k->next.name);
    struct ref *r = ref_new(k->core, k->tool);
    k->running = true, k->ended = false, k->open = 0, k->why[0] = 0;
    timer_arm(&k->limit, LIMIT_NS);
    if (spawn_call(k->core->spawn, &q, NULL, 0, tool_started, r, &e)) {
        (void)ref_take(r);
        timer_arm(&k->limit, 0);
    }
}

static void batch_begun(void *arg) { batch_one(arg, NULL); }

void presets_load(struct core *c, const char *const *names, size_t n,
                  void (*done)(void *arg, const struct err *e), void *arg)
{
    struct batch *b = xcalloc(1, sizeof *b);
    *b = (struct batch){.left = 1, .done = done, .arg = arg, .loop = c->loop};
    if (!c->presets)
        c->presets = xcalloc(1, sizeof *c->presets);
    for (size_t i = 0; i < n; i++) {
        struct lookup *k = map_get(&c->presets->by_name, names[i]);
        const char *said = operators(names[i]);
        if (!k) {
            k = xcalloc(1, sizeof *k);
            k->core = c;
            list_init(&k->waiters);
            timer_init(&k->limit, c->loop, on_limit, k);
            (void)snprintf(k->title, sizeof k->title, "preset %s", names[i]);
            map_set(&c->presets->by_name, names[i], k);
        }
        if (!k->running &&
            (!k->loaded || clock_mono() - k->at > (k->known.err.code ? WRONG_NS : FRESH_NS))) {
            (void)snprintf(k->next.name, sizeof k->next.name, "%s", names[i]);
            if (said) {
                k->next.text = xstrdup(said);
                (void)variable(names[i], k->next.source);
                lookup_over(k);
            } else
                run_tool(k);
        }
        if (k->running) {
            struct waiter *w = xcalloc(1, sizeof *w);
            w->batch = b;
            b->left++;
            list_add_tail(&k->waiters, &w->link);
        } else if (k->known.err.code && !b->first.code)
            b->first = k->known.err;
    }
    loop_defer(c->loop, batch_begun, b);
}

const struct preset *preset_get(struct core *c, const char *name)
{
    struct lookup *k = c->presets ? map_get(&c->presets->by_name, name) : NULL;
    return k && k->loaded && !k->known.err.code ? &k->known : NULL;
}

extern char **environ;

size_t presets_names(struct core *c, const char **ret, size_t max)
{
    static char own[PRESETS_MAX][32];
    size_t n = 0, nown = 0;
    (void)c;
    for (size_t i = 0; i < sizeof builtin / sizeof *builtin && n < max; i++)
        ret[n++] = builtin[i];
    for (char **v = environ; *v && n < max && nown < PRESETS_MAX; v++) {
        const char *eq = strchr(*v, '=');
        size_t len = strncmp(*v, VARIABLE, strlen(VARIABLE)) || !eq
                         ? 0
                         : (size_t)(eq - *v) - strlen(VARIABLE);
        if (!len || len >= sizeof *own)
            continue;
        for (size_t i = 0; i < len; i++)
            own[nown][i] = (*v)[strlen(VARIABLE) + i] == '_'
                               ? '-'
                               : (char)tolower((unsigned char)(*v)[strlen(VARIABLE) + i]);
        own[nown][len] = 0;
        bool there =
            !preset_known(c, str_of(own[nown])); /* a name that no policy can say is none */
        for (size_t i = 0; i < n; i++)
            there = there || !strcmp(ret[i], own[nown]);
        if (!there)
            ret[n++] = own[nown++];
    }
    return n;
}

static void put_found(const struct preset *p, struct doctor_check *d)
{
    size_t n = 0;
    const size_t room = sizeof d->found - sizeof p->source - 8; /* the end says what decided */
    d->found[0] = 0;
    if (p->text)
        n = (size_t)snprintf(d->found, room, "%s", p->text);
    for (size_t i = 0; i < p->nrules && n < room; i++) {
        bool again = false;
        for (size_t k = 0; k < i; k++)
            again = again || !strcmp(p->rule[k].host, p->rule[i].host);
        if (!again)
            n += (size_t)snprintf(d->found + n, room - n, "%s%s", n ? ", " : "", p->rule[i].host);
    }
    n = strlen(d->found);
    (void)snprintf(d->found + n, sizeof d->found - n, "%s (%s)", n + 1 == room ? "…" : "",
                   p->source);
}

size_t presets_report(struct core *c, struct doctor_check *ret, size_t max)
{
    const char *name[PRESETS_MAX];
    size_t n = 0, names = presets_names(c, name, PRESETS_MAX);
    for (size_t i = 0; i < names && n < max; i++) {
        const struct lookup *k = c->presets ? map_get(&c->presets->by_name, name[i]) : NULL;
        if (!k || !k->loaded)
            continue;
        struct doctor_check *d = &ret[n++];
        bool ok = !k->known.err.code;
        *d = (struct doctor_check){.name = k->title,
                                   .status = ok && !*k->known.doubt ? "ok" : "warn"};
        char var[64];
        if (ok)
            put_found(&k->known, d);
        if (ok && *k->known.doubt) {
            (void)snprintf(d->lost, sizeof d->lost,
                           "installs, which may fail: %s links to no files, so their host is unknown",
                           k->known.doubt);
            (void)snprintf(
                d->fix, sizeof d->fix,
                "let this host's curl or wget read that page, or set %s=host,… in the daemon's environment",
                variable(name[i], var));
        }
        if (ok)
            continue;
        (void)snprintf(d->found, sizeof d->found, "not available: %s", k->known.err.msg);
        (void)snprintf(d->lost, sizeof d->lost, "`--net allow=@%s`, which is refused", name[i]);
        (void)snprintf(
            d->fix, sizeof d->fix,
            "configure the tool on this host, or set %s=host,… in the daemon's environment",
            variable(name[i], var));
    }
    return n;
}

size_t presets_vias(struct core *c, struct gate_via *out, size_t max)
{
    struct map_entry *en;
    size_t n = 0;
    for (size_t i = 0; c->presets && (en = map_next(&c->presets->by_name, &i));) {
        const struct preset *p = preset_get(c, en->key);
        for (size_t k = 0; p && *p->via && k < p->nrules && n < max; k++)
            out[n++] = (struct gate_via){.hosts = p->rule[k].host,
                                         .addr = p->via,
                                         .auth = *p->via_auth ? p->via_auth : NULL};
    }
    return n;
}

void presets_free(struct core *c)
{
    struct map_entry *en;
    struct waiter *w;
    if (!c->presets)
        return;
    for (size_t i = 0; (en = map_next(&c->presets->by_name, &i));) {
        struct lookup *k = en->value;
        timer_stop(&k->limit);
        lines_stop(&k->out), lines_stop(&k->err);
        preset_clear(&k->known), preset_clear(&k->next);
        list_each(w, &k->waiters, link)
            free(w); /* their batches end with the process */
        free(k);
    }
    map_free(&c->presets->by_name);
    free(c->presets);
    c->presets = NULL;
}
