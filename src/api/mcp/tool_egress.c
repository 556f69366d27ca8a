/* read_egress: the newest lines of the log of connections, in the words of the tool. */
#include "api/mcp/args.h"
#include "api/mcp/mcp.h"
#include "core/network/egress_log.h"
#include <stdio.h>
#include <stdlib.h>

#define PAGE      1000
#define PAGES_MAX 200

struct reading {
    char verdict[8];        /* "": all */
    size_t limit, n, first; /* a ring of the newest */
    struct buf *line;
    char **text;
    bool more;
    unsigned pages;
};

static void reading_fini(struct mcall *k)
{
    struct reading *r = k->state;
    for (size_t i = 0; i < r->limit; i++)
        buf_free(&r->line[i]), free(r->text[i]);
    free(r->line), free(r->text);
    free(r);
    k->state = NULL;
}

static void copy_str(struct jw *w, const char *key, struct json *rec, const char *from)
{
    struct str s = {0};
    if (!json_str(rec, from, &s, false, NULL) && s.n)
        jw_kv_strn(w, key, s);
}

/* What it was about: a name, a request, or else the kind of connection. */
static const char *kind_of(struct json *rec, struct str kind)
{
    struct str type = {0};
    (void)json_str(rec, "type", &type, false, NULL);
    if (str_eqz(kind, "dns") || str_eqz(kind, "http"))
        return kind.p;
    return str_eqz(type, "udp") ? "udp" : str_eqz(type, "tls") ? "tls" : "tcp";
}

static void keep_record(struct reading *r, struct json *rec)
{
    struct str kind = {0}, verdict = {0}, at = {0}, name = {0}, addr = {0}, rule = {0};
    struct jw w;
    int64_t port = 0;
    (void)json_str(rec, "kind", &kind, false, NULL);
    (void)json_str(rec, "verdict", &verdict, false, NULL);
    (void)json_str(rec, "time", &at, false, NULL);
    (void)json_str(rec, "name", &name, false, NULL);
    (void)json_str(rec, "addr", &addr, false, NULL);
    (void)json_str(rec, "rule", &rule, false, NULL);
    if (!rule.n)
        (void)json_str(rec, "reason", &rule, false, NULL);
    (void)json_i64(rec, "port", 0, 65535, 0, &port, NULL);
    if (str_eqz(kind, "close") || str_eqz(kind, "policy") || !kind.n)
        return; /* the end of one that is listed already; not a connection */
    size_t slot = r->n < r->limit ? r->n++ : r->first;
    if (r->n == r->limit && slot == r->first && r->line[slot].n)
        r->first = (r->first + 1) % r->limit, r->more = true;
    r->line[slot].n = 0;
    free(r->text[slot]);
    jw_init(&w, &r->line[slot]);
    jw_obj(&w);
    jw_kv_strn(&w, "at", at);
    jw_kv_str(&w, "kind", kind_of(rec, kind));
    copy_str(&w, "name", rec, "name");
    copy_str(&w, "address", rec, "addr");
    if (port)
        jw_kv_i64(&w, "port", port);
    const char *verdict_now = str_eqz(kind, "fail")      ? "fail"
                              : str_eqz(verdict, "deny") ? "deny"
                                                         : "allow";
    jw_kv_str(&w, "verdict", verdict_now);
    if (rule.n)
        jw_kv_strn(&w, "rule", rule);
    jw_end(&w);
    r->text[slot] = xasprintf("%.*s %s %s %.*s%s%.*s:%lld %.*s", (int)at.n, at.p ? at.p : "",
                              verdict_now, kind_of(rec, kind), (int)name.n, name.p ? name.p : "",
                              name.n ? " " : "", (int)addr.n, addr.p ? addr.p : "", (long long)port,
                              (int)rule.n, rule.p ? rule.p : "");
}

static void answer_egress(struct mcall *k)
{
    struct reading *r = k->state;
    auto_buf list = {0}, text = {0};
    buf_printf(&text, "[%s · %zu entries%s]\n", k->sandbox, r->n,
               r->more ? ", older ones left out" : "");
    buf_putc(&list, '[');
    for (size_t i = 0; i < r->n; i++) {
        size_t at = (r->first + i) % r->limit;
        if (i)
            buf_putc(&list, ',');
        buf_put(&list, r->line[at].p, r->line[at].n);
        if (text.n < 16384)
            buf_printf(&text, "%s\n", r->text[at]);
    }
    buf_putc(&list, ']');
    mcall_text(k, (struct str){text.p, text.n});
    struct jw *w = mcall_structured(k);
    jw_kv_str(w, "sandbox", k->sandbox);
    jw_kv_raw(w, "entries", (struct str){list.p, list.n});
    jw_kv_bool(w, "truncated", r->more);
    mcall_done(k);
}

static void egress_page(void *arg, const struct err *e, const struct egress_page *p);

static void ask_page(struct mcall *k, uint64_t after)
{
    struct reading *r = k->state;
    struct egress_query q = {.sandbox = k->sandbox,
                             .after = after,
                             .limit = PAGE,
                             .verdict = *r->verdict ? r->verdict : NULL};
    mcall_hold(k);
    egress_log_query(k->m->core, &q, egress_page, k);
}

/* The log is read from its oldest line; the newest are wanted. */
static void egress_page(void *arg, const struct err *e, const struct egress_page *p)
{
    struct mcall *k = arg;
    struct err bad;
    if (!mcall_back(k))
        return;
    struct reading *r = k->state;
    if (e) {
        mcall_fail(k, e, ABOUT_NETWORK);
        return;
    }
    auto_buf text = {0};
    buf_printf(&text, "[%s]", p->lines.n ? p->lines.p : "");
    auto_json j = json_parse(text.p, text.n, &bad);
    for (size_t i = 0; i < json_len(j); i++)
        keep_record(r, json_at(j, i));
    if (p->next && ++r->pages < PAGES_MAX)
        ask_page(k, p->next);
    else
        answer_egress(k);
}

void tool_read_egress(struct mcall *k, struct sandbox *sb)
{
    struct reading *r = xcalloc(1, sizeof *r);
    struct str verdict = args_str(k->schema, k->args, "verdict");
    (void)sb;
    r->limit = (size_t)args_num(k->schema, k->args, "limit", 50);
    r->line = xcalloc(r->limit, sizeof *r->line);
    r->text = xcalloc(r->limit, sizeof *r->text);
    if (!str_eqz(verdict, "all"))
        (void)snprintf(r->verdict, sizeof r->verdict, "%s", verdict.p);
    k->state = r;
    k->fini = reading_fini;
    ask_page(k, 0);
}
