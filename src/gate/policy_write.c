/* A policy in canonical form. Nothing that is shipped needs it: tests and the
 * fuzzer ask whether what was read reads back the same. */
#include "base/buf.h"
#include "gate/policy_int.h"
#include "json/write.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void scope_write(struct jw *w, const struct scope *s)
{
    if (s->nports) {
        jw_kv_arr(w, "ports");
        for (int i = 0; i < s->nports; i++) {
            char range[16];
            (void)snprintf(range, sizeof range, "%u-%u", s->port[i].from, s->port[i].to);
            if (s->port[i].from == s->port[i].to)
                jw_u64(w, s->port[i].from);
            else
                jw_strz(w, range);
        }
        jw_end(w);
    }
    if (s->nmethods) {
        jw_kv_arr(w, "methods");
        for (int i = 0; i < s->nmethods; i++)
            jw_strz(w, s->method[i]);
        jw_end(w);
    }
    if (s->npaths) {
        jw_kv_arr(w, "paths");
        for (int i = 0; i < s->npaths; i++)
            jw_strz(w, s->path[i]);
        jw_end(w);
    }
    if (s->websocket)
        jw_kv_bool(w, "websocket", true);
}
static void rule_write(struct jw *w, const struct rule *r)
{
    char text[IP_TEXT];
    jw_obj(w);
    if (r->domain)
        jw_kv_str(w, "domain", r->domain);
    else {
        cidr_text(&r->cidr, text);
        jw_kv_str(w, "cidr", text);
    }
    scope_write(w, &r->scope);
    jw_kv_str(w, "protocol", policy_protocol_name(r->protocol));
    if (r->final)
        jw_kv_bool(w, "final", true);
    char *plain = policy_rule_text(r);
    if (strcmp(plain, r->text))
        jw_kv_str(w, "id", r->text);
    free(plain);
    jw_end(w);
}
static void inject_write(struct jw *w, const struct inject *j)
{
    jw_obj(w);
    jw_kv_str(w, "domain", j->domain);
    scope_write(w, &j->scope);
    jw_kv_str(w, "secret", j->secret);
    if (j->header) {
        jw_kv_str(w, "header", j->header);
        jw_kv_str(w, "format", j->format);
    } else
        jw_kv_str(w, "placeholder", j->placeholder);
    jw_end(w);
}

void policy_write(const struct policy *p, struct buf *out)
{
    struct jw w;
    jw_init(&w, out);
    jw_obj(&w);
    jw_kv_str(&w, "mode", policy_mode_name(p->mode));
    jw_kv_arr(&w, "allow");
    for (size_t i = 0; i < p->nallow; i++)
        rule_write(&w, &p->allow[i]);
    jw_end(&w);
    jw_kv_arr(&w, "deny");
    for (size_t i = 0; i < p->ndeny; i++)
        rule_write(&w, &p->deny[i]);
    jw_end(&w);
    if (p->ninject) {
        jw_kv_arr(&w, "inject");
        for (size_t i = 0; i < p->ninject; i++)
            inject_write(&w, &p->inject[i]);
        jw_end(&w);
    }
    if (p->nprivate) {
        jw_kv_arr(&w, "private");
        for (size_t i = 0; i < p->nprivate; i++) {
            char text[IP_TEXT];
            cidr_text(&p->open_private[i], text);
            jw_strz(&w, text);
        }
        jw_end(&w);
    }
    const struct policy_limits *l = &p->limits;
    jw_kv_obj(&w, "limits");
    jw_kv_u64(&w, "connections", l->connections);
    jw_kv_u64(&w, "bytes_per_second", l->bytes_per_second);
    jw_kv_u64(&w, "bytes", l->bytes);
    jw_kv_u64(&w, "dns_per_second", l->dns_per_second);
    jw_end(&w);
    jw_end(&w);
}
