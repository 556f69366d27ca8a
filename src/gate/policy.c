/* What a policy answers. Pure. The order of the tests is the promise made in
 * policy.h; the ceilings answer by the same function and the strictest wins. */
#include "gate/policy_int.h"
#include <stdio.h>
#include <string.h>

/* ---- scopes --------------------------------------------------------------------------------------------------- */

bool scope_port(const struct scope *s, uint16_t port)
{
    for (int i = 0; i < s->nports; i++)
        if (port >= s->port[i].from && port <= s->port[i].to)
            return true;
    return !s->nports;
}
bool scope_l7(const struct scope *s) { return s->nmethods || s->npaths; }

/* A path that every server reads the same way: no empty or dot segments, none hidden by an escape, no backslash. */
static bool path_plain(struct str p)
{
    if (!p.n || p.p[0] != '/')
        return false;
    for (size_t i = 0; i < p.n; i++) {
        if (p.p[i] == '\\' || (p.p[i] == '/' && i + 1 < p.n && p.p[i + 1] == '/'))
            return false;
        if (p.p[i] == '%' && i + 2 < p.n) {
            struct str hex = {p.p + i + 1, 2};
            if (str_ieqz(hex, "2e") || str_ieqz(hex, "2f") || str_ieqz(hex, "5c") || str_ieqz(hex, "25") || str_ieqz(hex, "00"))
                return false;
        }
        if (p.p[i] == '/' && i + 1 < p.n && p.p[i + 1] == '.') { /* "/." or "/.." as a whole segment */
            size_t j = i + 2;
            if (j < p.n && p.p[j] == '.')
                j++;
            if (j == p.n || p.p[j] == '/' || p.p[j] == ';')
                return false;
        }
    }
    return true;
}
static bool path_match(const char *rule, struct str path)
{
    size_t n = strlen(rule);
    if (*rule == '=')
        return str_eqz(path, rule + 1);
    if (*rule == '*')
        return path.n >= n - 1 && !memcmp(path.p + path.n - (n - 1), rule + 1, n - 1);
    bool loose = n && rule[n - 1] == '*';
    n -= loose;
    if (path.n < n || memcmp(path.p, rule, n))
        return false;
    return loose || path.n == n || rule[n - 1] == '/' || path.p[n] == '/';
}
bool scope_request(const struct scope *s, struct str method, struct str path)
{
    bool m = !s->nmethods, p = !s->npaths;
    for (int i = 0; i < s->nmethods && !m; i++)
        m = str_eqz(method, s->method[i]);
    for (int i = 0; i < s->npaths && !p; i++)
        p = path_plain(path) && path_match(s->path[i], path);
    return m && p;
}

/* ---- one rule against one question ----------------------------------------------------------------------------- */

enum match { NO, YES, MAYBE /* yes for some name or request that is not known yet */ };

static uint8_t proto_bit(enum policy_proto p)
{
    static const uint8_t bit[] = {[PROTO_TCP] = RP_TCP, [PROTO_HTTP] = RP_HTTP, [PROTO_TLS] = RP_TLS, [PROTO_UDP] = RP_UDP};
    return bit[p];
}

static enum match match_target(const struct rule *r, const struct policy_ask *q)
{
    if (!r->domain) {
        if (!q->addr)
            return q->looked ? NO : MAYBE;
        return cidr_has(&r->cidr, q->addr) ? YES : NO;
    }
    if (q->name.n)
        return name_match(str_of(r->domain), q->name) ? YES : NO;
    return q->looked || q->proto == PROTO_UDP ? NO : MAYBE;
}
static enum match match_proto(const struct rule *r, const struct policy_ask *q)
{
    if (r->protocol & proto_bit(q->proto))
        return YES;
    return q->proto == PROTO_TCP && r->protocol & RP_WEB && !q->looked ? MAYBE : NO;
}
static enum match match_request(const struct rule *r, const struct policy_ask *q)
{
    if (!scope_l7(&r->scope))
        return YES;
    if (q->websocket && !r->scope.websocket)
        return NO;
    if (q->method.n)
        return scope_request(&r->scope, q->method, q->path) ? YES : NO;
    return q->proto == PROTO_UDP ? NO : MAYBE;
}
static enum match match_rule(const struct rule *r, const struct policy_ask *q)
{
    if (!scope_port(&r->scope, q->port))
        return NO;
    enum match a = match_target(r, q), b = match_proto(r, q), c = match_request(r, q);
    if (a == NO || b == NO || c == NO)
        return NO;
    return a == YES && b == YES && c == YES ? YES : MAYBE;
}

/* ---- one policy ------------------------------------------------------------------------------------------------- */

static void say(struct policy_verdict *v, enum policy_answer a, const char *kind, const char *text)
{
    v->answer = a;
    (void)snprintf(v->rule, sizeof v->rule, "%s%s%s", kind, *text ? " " : "", text);
}
static void target_text(const struct policy_ask *q, char *out, size_t cap)
{
    char ip[IP_TEXT] = "";
    if (q->addr)
        ip_text(q->addr, ip);
    if (q->name.n)
        (void)snprintf(out, cap, "%.*s:%u", (int)(q->name.n > 120 ? 120 : q->name.n), q->name.p, q->port);
    else
        (void)snprintf(out, cap, q->addr && q->addr->v6 ? "[%s]:%u" : "%s:%u", ip, q->port);
}
static void refuse(struct policy_verdict *v, const struct policy_ask *q, const char *why)
{
    char to[160];
    target_text(q, to, sizeof to);
    if (q->method.n)
        (void)snprintf(v->reason, sizeof v->reason, "%.*s to %.100s: %s", (int)(q->method.n > 16 ? 16 : q->method.n), q->method.p, to, why);
    else
        (void)snprintf(v->reason, sizeof v->reason, "%.150s: %s", to, why);
}

static bool denied(const struct policy *p, const struct policy_ask *q, bool final, struct policy_verdict *v)
{
    for (size_t i = 0; i < p->ndeny; i++)
        if (p->deny[i].final == final && match_rule(&p->deny[i], q) == YES) {
            say(v, ANSWER_DENY, "deny", p->deny[i].text);
            refuse(v, q, "refused by a deny rule of the network policy");
            return true;
        }
    return false;
}
/* A deny rule by name that could still apply once the name is known. */
static bool deny_pending(const struct policy *p, const struct policy_ask *q, bool final_only)
{
    for (size_t i = 0; i < p->ndeny && !q->looked; i++)
        if ((p->deny[i].final || !final_only) && match_rule(&p->deny[i], q) == MAYBE)
            return true;
    return false;
}

static const char *why_not(const struct policy *p, const struct policy_ask *q)
{
    if (p->mode == POLICY_NONE)
        return "this sandbox has no network access (mode none)";
    if (q->proto == PROTO_UDP)
        return "UDP is only allowed by a rule with protocol udp";
    if (!q->name.n && q->looked)
        return "no rule allows this address, and no server name was seen that a rule allows";
    if (q->websocket)
        return "no allow rule covers this WebSocket (one with methods or paths needs \"websocket\": true)";
    if (q->method.n)
        return "no allow rule of the network policy covers this request";
    return "not in the allow list of this sandbox's network policy";
}

/* "open" of a sandbox's own policy is for what can be looked at; of a ceiling it takes nothing away. */
static bool is_open(const struct policy *p, const struct policy_ask *q, bool ceiling)
{
    return p->mode == POLICY_OPEN && (ceiling || q->proto != PROTO_UDP);
}

static void decide(const struct policy *p, const struct policy_ask *q, bool ceiling, struct policy_verdict *v)
{
    *v = (struct policy_verdict){.answer = ANSWER_DENY};
    if (denied(p, q, true, v))
        return;
    const struct rule *maybe = NULL, *seen = NULL; /* seen: allows once the request inside TLS is seen */
    for (size_t i = 0; p->mode != POLICY_NONE && i < p->nallow; i++) {
        const struct rule *r = &p->allow[i];
        enum match m = match_rule(r, q);
        if (m == YES) {
            say(v, ANSWER_ALLOW, "allow", r->text);
            v->by_name = r->domain != NULL;
            v->by_request = scope_l7(&r->scope);
            if (deny_pending(p, q, true))
                v->answer = ANSWER_LOOK;
            return;
        }
        if (m == MAYBE && !seen && q->proto == PROTO_TLS && q->name.n && scope_l7(&r->scope) && match_target(r, q) == YES)
            seen = r;
        if (m == MAYBE && !maybe && !q->looked)
            maybe = r;
    }
    if (seen) {
        say(v, ANSWER_ALLOW, "allow", seen->text);
        v->by_name = seen->domain != NULL;
        v->intercept = true;
        return;
    }
    if (maybe) {
        say(v, ANSWER_LOOK, "allow", maybe->text);
        return;
    }
    if (denied(p, q, false, v))
        return;
    say(v, is_open(p, q, ceiling) ? ANSWER_ALLOW : ANSWER_DENY, "mode", policy_mode_name(p->mode));
    if (v->answer == ANSWER_DENY)
        refuse(v, q, why_not(p, q));
    else if (deny_pending(p, q, false))
        v->answer = ANSWER_LOOK;
}

/* ---- a set ------------------------------------------------------------------------------------------------------ */

const char *policy_addr_closed(const struct policy_set *s, const struct ip *a)
{
    struct ip plain = ip_plain(a);
    const char *why = ip_closed(&plain);
    if (!why && s->is_host)
        why = s->is_host(s->arg, &plain);
    if (!why)
        return NULL;
    for (int i = 0; i < s->nceilings; i++)
        for (size_t j = 0; j < s->ceiling[i]->nprivate; j++)
            if (cidr_has(&s->ceiling[i]->open_private[j], &plain))
                return NULL;
    return why;
}

/* own and the ceilings: deny beats look beats allow; v holds own's answer and takes the stricter. */
static void under_ceiling(struct policy_verdict *v, const struct policy_verdict *c, const char *name)
{
    if (v->answer == ANSWER_DENY)
        return;
    v->by_name |= c->by_name;
    v->intercept |= c->intercept;
    v->by_request |= c->by_request;
    if (c->answer == ANSWER_ALLOW || (c->answer == ANSWER_LOOK && v->answer == ANSWER_LOOK))
        return;
    v->answer = c->answer;
    (void)snprintf(v->rule, sizeof v->rule, "ceiling %.32s: %.60s", name, c->rule);
    if (c->answer == ANSWER_DENY)
        (void)snprintf(v->reason, sizeof v->reason, "the operator's limit for %.40s does not allow it: %.120s", name, c->reason);
}

/* A host that secrets are put in for must be seen, whatever else allows it. */
static void needs_injection(const struct policy *p, const struct policy_ask *q, struct policy_verdict *v)
{
    if (v->answer != ANSWER_ALLOW)
        return;
    if (q->name.n && q->proto == PROTO_TLS && policy_injects_host(p, q->name, q->port))
        v->intercept = v->by_name = true;
    for (size_t i = 0; i < p->ninject && !q->looked && q->proto == PROTO_TCP; i++)
        if (scope_port(&p->inject[i].scope, q->port) && (!q->name.n || name_match(str_of(p->inject[i].domain), q->name)))
            v->answer = ANSWER_LOOK;
}

void policy_decide(const struct policy_set *s, const struct policy_ask *q, struct policy_verdict *ret)
{
    const char *closed = q->addr ? policy_addr_closed(s, q->addr) : NULL;
    if (closed) {
        *ret = (struct policy_verdict){.answer = ANSWER_DENY, .rule = "closed"};
        char why[120];
        (void)snprintf(why, sizeof why, "%s is closed to every sandbox", closed);
        refuse(ret, q, why);
        return;
    }
    decide(s->own, q, false, ret);
    for (int i = 0; i < s->nceilings; i++) {
        struct policy_verdict c;
        decide(s->ceiling[i], q, true, &c);
        under_ceiling(ret, &c, s->ceiling_name[i]);
    }
    needs_injection(s->own, q, ret);
}

/* A question for a name: any rule that could lead to a connection under it. */
static void dns_one(const struct policy *p, struct str name, struct policy_verdict *v)
{
    bool special = name_special(name);
    *v = (struct policy_verdict){.answer = ANSWER_DENY};
    for (int pass = 0; pass < 3; pass++) { /* final deny, allow, deny */
        const struct rule *r = pass == 1 ? p->allow : p->deny;
        size_t n = pass == 1 ? p->nallow : p->ndeny;
        for (size_t i = 0; i < n; i++) {
            if (!r[i].domain || (pass != 1 && (r[i].scope.nports || r[i].final != (pass == 0))))
                continue;
            if (pass == 1 && (p->mode == POLICY_NONE || (special && !strcmp(r[i].domain, "*"))))
                continue;
            if (!name_match(str_of(r[i].domain), name))
                continue;
            say(v, pass == 1 ? ANSWER_ALLOW : ANSWER_DENY, pass == 1 ? "allow" : "deny", r[i].text);
            if (pass != 1)
                (void)snprintf(v->reason, sizeof v->reason, "%.*s: refused by a deny rule of the network policy",
                               (int)(name.n > 120 ? 120 : name.n), name.p);
            return;
        }
    }
    say(v, p->mode == POLICY_OPEN && !special ? ANSWER_ALLOW : ANSWER_DENY, "mode", policy_mode_name(p->mode));
    if (v->answer == ANSWER_DENY)
        (void)snprintf(v->reason, sizeof v->reason, "%.*s: %s", (int)(name.n > 120 ? 120 : name.n), name.p,
                       p->mode == POLICY_NONE ? "this sandbox has no network access (mode none)"
                       : p->mode == POLICY_OPEN ? "a name without meaning on the public network is answered only if a rule allows it"
                                                : "not in the allow list of this sandbox's network policy");
}
void policy_dns(const struct policy_set *s, struct str name, struct policy_verdict *ret)
{
    dns_one(s->own, name, ret);
    for (int i = 0; i < s->nceilings; i++) {
        struct policy_verdict c;
        dns_one(s->ceiling[i], name, &c);
        under_ceiling(ret, &c, s->ceiling_name[i]);
    }
}

static void smaller(uint64_t *a, uint64_t b)
{
    if (b && (!*a || b < *a))
        *a = b;
}
struct policy_limits policy_limits(const struct policy_set *s)
{
    struct policy_limits l = s->own->limits;
    for (int i = 0; i < s->nceilings; i++) {
        const struct policy_limits *c = &s->ceiling[i]->limits;
        smaller(&l.connections, c->connections);
        smaller(&l.bytes_per_second, c->bytes_per_second);
        smaller(&l.bytes, c->bytes);
        smaller(&l.dns_per_second, c->dns_per_second);
    }
    if (!l.connections)
        l.connections = POLICY_DEFAULT_CONNECTIONS;
    if (!l.dns_per_second)
        l.dns_per_second = POLICY_DEFAULT_DNS;
    return l;
}

/* ---- interception and injection ---------------------------------------------------------------------------------- */

bool policy_intercepts(const struct policy *p)
{
    for (size_t i = 0; i < p->nallow; i++)
        if (scope_l7(&p->allow[i].scope) && p->allow[i].protocol & RP_TLS)
            return true;
    return p->ninject > 0;
}
bool policy_injects_host(const struct policy *p, struct str name, uint16_t port)
{
    for (size_t i = 0; i < p->ninject; i++)
        if (scope_port(&p->inject[i].scope, port) && name_match(str_of(p->inject[i].domain), name))
            return true;
    return false;
}
size_t policy_injects(const struct policy *p, const struct policy_ask *q, struct policy_inject *out, size_t cap)
{
    size_t n = 0;
    for (size_t i = 0; i < p->ninject && n < cap; i++) {
        const struct inject *j = &p->inject[i];
        if (q->proto != PROTO_TLS || !scope_port(&j->scope, q->port) || !name_match(str_of(j->domain), q->name) ||
            !scope_request(&j->scope, q->method, q->path))
            continue;
        out[n++] = (struct policy_inject){str_of(j->secret), str_of(j->header), str_of(j->format), str_of(j->placeholder),
                                          scope_l7(&j->scope), j->scope.websocket};
    }
    return n;
}
static bool has_id(const struct str *at, size_t n, const char *id)
{
    for (size_t i = 0; i < n; i++)
        if (str_eqz(at[i], id))
            return true;
    return false;
}
size_t policy_secrets_of_host(const struct policy *p, struct str name, uint16_t port, struct str *out, size_t cap)
{
    size_t n = 0;
    for (size_t i = 0; i < p->ninject && n < cap; i++) {
        const struct inject *j = &p->inject[i];
        if (scope_port(&j->scope, port) && name_match(str_of(j->domain), name) && !has_id(out, n, j->secret))
            out[n++] = str_of(j->secret);
    }
    return n;
}
bool policy_denies(const struct policy *p) { return p->ndeny != 0; }
bool policy_uses_secret(const struct policy *p, struct str id)
{
    for (size_t i = 0; i < p->ninject; i++)
        if (str_eqz(id, p->inject[i].secret))
            return true;
    return false;
}
size_t policy_secrets(const struct policy *p, struct str *out, size_t cap)
{
    size_t n = 0;
    for (size_t i = 0; i < p->ninject; i++) {
        bool before = false;
        for (size_t j = 0; j < i && !before; j++)
            before = !strcmp(p->inject[i].secret, p->inject[j].secret);
        if (before)
            continue;
        if (n < cap)
            out[n] = str_of(p->inject[i].secret);
        n++;
    }
    return n;
}
