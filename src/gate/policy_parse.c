/* The JSON form of a policy, read. */
#include "base/buf.h"
#include "gate/policy_int.h"
#include "http/parse.h"
#include "json/read.h"
#include <stdlib.h>
#include <string.h>

static const char *const mode_names[] = {"none", "allow", "open"};
static const struct { const char *name; uint8_t bits; } protocols[] = {
    {"web", RP_WEB}, {"http", RP_HTTP}, {"tls", RP_TLS}, {"https", RP_TLS}, {"tcp", RP_WEB | RP_TCP}, {"udp", RP_UDP}, {"any", RP_ANY},
};

const char *policy_mode_name(enum policy_mode m) { return mode_names[m]; }
enum policy_mode policy_mode(const struct policy *p) { return p->mode; }

/* ---- life ----------------------------------------------------------------------------------------------------- */

static void scope_fini(struct scope *s)
{
    for (int i = 0; i < s->nmethods; i++)
        free(s->method[i]);
    for (int i = 0; i < s->npaths; i++)
        free(s->path[i]);
}
static void rules_free(struct rule *r, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(r[i].domain), free(r[i].text);
        scope_fini(&r[i].scope);
    }
    free(r);
}
struct policy *policy_ref(struct policy *p)
{
    p->refs++;
    return p;
}
void policy_unref(struct policy *p)
{
    if (!p || --p->refs)
        return;
    rules_free(p->allow, p->nallow);
    rules_free(p->deny, p->ndeny);
    for (size_t i = 0; i < p->ninject; i++) {
        struct inject *j = &p->inject[i];
        free(j->domain), free(j->secret), free(j->header), free(j->format), free(j->placeholder);
        scope_fini(&j->scope);
    }
    free(p->inject);
    free(p->open_private);
    free(p);
}

/* ---- what it is made of ---------------------------------------------------------------------------------------- */

static bool port_word(struct str s, struct port_range *ret)
{
    const char *dash = memchr(s.p, '-', s.n);
    struct str a = {s.p, dash ? (size_t)(dash - s.p) : s.n}, b = dash ? (struct str){dash + 1, s.n - a.n - 1} : a;
    uint64_t from, to;
    if (a.n > 5 || b.n > 5 || !str_u64(a, &from) || !str_u64(b, &to) || !from || from > to || to > 65535)
        return false;
    *ret = (struct port_range){(uint16_t)from, (uint16_t)to};
    return true;
}

static int scope_ports(struct json *obj, struct scope *s, struct err *e)
{
    struct json *arr = NULL;
    if (json_arr(obj, "ports", &arr, false, e))
        return -1;
    if (json_len(arr) > RULE_PORTS)
        return json_fail(arr, e, "more than 16 ports or ranges");
    for (size_t i = 0; i < json_len(arr); i++) {
        struct json *v = json_at(arr, i);
        struct port_range *r = &s->port[s->nports];
        struct str text;
        int64_t n;
        if (json_kind(v) == JSON_STR) {
            if (json_to_str(v, &text, e))
                return -1;
            if (!port_word(text, r))
                return json_fail(v, e, "not a port or range (443, \"8000-8999\")");
        } else {
            if (json_to_i64(v, 1, 65535, &n, e))
                return -1;
            *r = (struct port_range){(uint16_t)n, (uint16_t)n};
        }
        s->nports++;
    }
    return 0;
}

static bool method_ok(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] < 'A' || s.p[i] > 'Z')
            return false;
    return s.n && s.n <= 32;
}
static bool path_ok(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] <= ' ' || (unsigned char)s.p[i] >= 127 || s.p[i] == '?' || s.p[i] == '#')
            return false;
    return s.n && s.n <= 1024 && (s.p[0] == '/' || (s.n > 1 && s.p[0] == '=' && s.p[1] == '/') || (s.n > 2 && s.p[0] == '*' && s.p[1] == '/' && s.p[s.n - 1] != '*'));
}

static int words(struct json *obj, const char *key, char **out, uint8_t *n, bool (*ok)(struct str), const char *why, struct err *e)
{
    struct json *arr = NULL;
    if (json_arr(obj, key, &arr, false, e))
        return -1;
    if (json_len(arr) > RULE_WORDS)
        return json_fail(arr, e, "more than 16 entries");
    for (size_t i = 0; i < json_len(arr); i++) {
        struct str s;
        if (json_to_str(json_at(arr, i), &s, e))
            return -1;
        if (!ok(s))
            return json_fail(json_at(arr, i), e, why);
        out[(*n)++] = xstrndup(s.p, s.n);
    }
    return 0;
}
static int scope_parse(struct json *obj, struct scope *s, bool l7, struct err *e)
{
    if (scope_ports(obj, s, e))
        return -1;
    if (!l7)
        return 0;
    if (words(obj, "methods", s->method, &s->nmethods, method_ok, "not a method in capitals", e) ||
        json_bool(obj, "websocket", false, &s->websocket, e))
        return -1;
    return words(obj, "paths", s->path, &s->npaths, path_ok, "not a path that begins with /, =/ or */", e);
}

static bool rule_target(struct rule *r, struct str s)
{
    char name[NAME_MAX_LEN + 3];
    if (cidr_parse(s, &r->cidr))
        return true;
    if (!name_pattern_canon(s, name))
        return false;
    r->domain = xstrdup(name);
    return true;
}
/* "example.org:8443", "192.0.2.7", "[2001:db8::1]:443", … */
static bool rule_shorthand(struct rule *r, struct str s)
{
    uint16_t port = 0;
    struct str host;
    if (rule_target(r, s))
        return true;
    if (!s.n || !name_split_port(s, &host, &port) || !rule_target(r, host))
        return false;
    if (s.p[0] == '[' && (r->domain || !r->cidr.ip.v6 || r->cidr.bits != 128))
        return false;
    if (port)
        r->scope.port[r->scope.nports++] = (struct port_range){port, port};
    return true;
}

const char *policy_protocol_name(uint8_t bits)
{
    for (size_t i = 0; i < sizeof protocols / sizeof *protocols; i++)
        if (protocols[i].bits == bits)
            return protocols[i].name;
    return "any";
}
static int rule_protocol(struct json *obj, struct rule *r, struct err *e)
{
    struct str s = {NULL, 0};
    if (json_str(obj, "protocol", &s, false, e))
        return -1;
    if (!s.p)
        return 0;
    for (size_t i = 0; i < sizeof protocols / sizeof *protocols; i++)
        if (str_eqz(s, protocols[i].name)) {
            r->protocol = protocols[i].bits;
            return 0;
        }
    return json_fail(json_get(obj, "protocol"), e, "must be web, http, tls, tcp, udp or any");
}

static int rule_object(struct json *obj, struct rule *r, bool deny, char **ret_id, struct err *e)
{
    struct str domain = {0}, cidr = {0}, id = {0};
    if (json_only(obj, e, "domain", "cidr", "ports", "protocol", "methods", "paths", "websocket", "final", "id", NULL) ||
        json_str(obj, "domain", &domain, false, e) || json_str(obj, "cidr", &cidr, false, e) || json_str(obj, "id", &id, false, e) ||
        json_bool(obj, "final", false, &r->final, e))
        return -1;
    if (!domain.p == !cidr.p)
        return json_fail(obj, e, "needs exactly one of domain and cidr");
    if (cidr.p && !cidr_parse(cidr, &r->cidr))
        return json_fail(json_get(obj, "cidr"), e, "not an address or range (192.0.2.0/24)");
    char name[NAME_MAX_LEN + 3];
    if (domain.p && !name_pattern_canon(domain, name))
        return json_fail(json_get(obj, "domain"), e, "not a host name (example.org, *.example.org)");
    if (domain.p)
        r->domain = xstrdup(name);
    if (id.p && (id.n > 64 || !id.n || !http_value_ok(id)))
        return json_fail(json_get(obj, "id"), e, "must be 1 to 64 printable characters");
    if (id.p)
        *ret_id = xstrndup(id.p, id.n);
    if (deny && (json_has(obj, "methods") || json_has(obj, "paths") || json_has(obj, "websocket")))
        return json_fail(obj, e, "methods, paths and websocket belong to allow rules");
    if (!deny && json_has(obj, "final"))
        return json_fail(obj, e, "final belongs to deny rules");
    if (scope_parse(obj, &r->scope, !deny, e) || rule_protocol(obj, r, e))
        return -1;
    if (!deny && r->protocol == RP_UDP && r->domain && !r->scope.nports)
        return json_fail(obj, e, "UDP to a host name needs ports: datagrams are not inspected");
    if (scope_l7(&r->scope) && r->protocol && !(r->protocol & RP_WEB))
        return json_fail(obj, e, "methods and paths need protocol web, http or tls");
    return 0;
}

static void rule_defaults(struct rule *r, bool deny)
{
    if (!r->protocol)
        r->protocol = scope_l7(&r->scope) ? RP_WEB : r->domain && !deny ? RP_WEB : RP_ANY;
    if (scope_l7(&r->scope))
        r->protocol &= RP_WEB; /* "tcp" with paths would be no rule at all */
    if (r->domain && !deny && r->protocol == RP_ANY)
        r->protocol = RP_WEB | RP_TCP; /* QUIC is asked for by its own word */
    if (!r->scope.nports && r->domain && !deny && r->protocol & RP_WEB) {
        r->scope.port[0] = (struct port_range){80, 80};
        r->scope.port[1] = (struct port_range){443, 443};
        r->scope.nports = 2;
    }
}
char *policy_rule_text(const struct rule *r)
{
    struct buf b = {0};
    char cidr[IP_TEXT];
    if (!r->domain)
        cidr_text(&r->cidr, cidr);
    buf_puts(&b, r->domain ? r->domain : cidr);
    if (r->scope.nports == 1 && r->scope.port[0].from == r->scope.port[0].to)
        buf_printf(&b, " port %u", r->scope.port[0].from);
    return buf_take(&b);
}

static int rule_parse(struct json *v, struct rule *r, bool deny, struct err *e)
{
    char *id = NULL;
    struct str s;
    if (json_kind(v) == JSON_OBJ) {
        if (rule_object(v, r, deny, &id, e)) {
            free(id);
            return -1;
        }
    } else {
        if (json_to_str(v, &s, e))
            return -1;
        if (!rule_shorthand(r, s))
            return json_fail(v, e, "not a host name, address or range (example.org, *.example.org, 192.0.2.0/24, host:port)");
    }
    rule_defaults(r, deny);
    r->text = id ? id : policy_rule_text(r);
    return 0;
}

static int rules_parse(struct json *obj, const char *key, struct rule **out, size_t *n, struct err *e)
{
    struct json *arr = NULL;
    if (json_arr(obj, key, &arr, false, e))
        return -1;
    if (json_len(arr) > POLICY_RULES_MAX)
        return json_fail(arr, e, "more than 512 rules");
    *out = xcalloc(json_len(arr) + 1, sizeof **out);
    for (size_t i = 0; i < json_len(arr); i++) {
        (*n)++; /* first: a half-built one is freed too */
        if (rule_parse(json_at(arr, i), *out + i, !strcmp(key, "deny"), e))
            return -1;
    }
    return 0;
}

/* Headers that frame or route a message, or that the gate writes itself, cannot be injected. */
static bool header_reserved(struct str s)
{
    static const char *const no[] = {"host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer", "expect",
                                     "keep-alive", "proxy-connection", "proxy-authorization", "accept-encoding"};
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        if (str_ieqz(s, no[i]))
            return true;
    return false;
}
static char *lower_dup(struct str s)
{
    char *z = xstrndup(s.p, s.n);
    for (char *p = z; *p; p++)
        if (*p >= 'A' && *p <= 'Z')
            *p = (char)(*p + 32);
    return z;
}
static bool has_once(struct str s, const char *needle)
{
    const char *a = memmem(s.p, s.n, needle, strlen(needle));
    return a && !memmem(a + 1, s.n - (size_t)(a + 1 - s.p), needle, strlen(needle));
}

static int inject_kind(struct json *v, struct inject *j, struct err *e)
{
    struct str header = {0}, format = {0}, place = {0};
    if (json_str(v, "header", &header, false, e) || json_str(v, "format", &format, false, e) || json_str(v, "placeholder", &place, false, e))
        return -1;
    if (!header.p == !place.p)
        return json_fail(v, e, "needs exactly one of header and placeholder");
    if (header.p && (!http_token_ok(header) || header.n > 128 || header_reserved(header)))
        return json_fail(json_get(v, "header"), e, "not a header that can be set");
    if (format.p && (!header.p || format.n > 512 || !http_value_ok(format) || !has_once(format, "{secret}")))
        return json_fail(json_get(v, "format"), e, "needs header, and must contain {secret} once");
    if (place.p && (place.n < 8 || place.n > 256 || !http_value_ok(place)))
        return json_fail(json_get(v, "placeholder"), e, "must be 8 to 256 printable characters");
    if (header.p) {
        j->header = lower_dup(header);
        j->format = format.p ? xstrndup(format.p, format.n) : xstrdup("{secret}");
    } else
        j->placeholder = xstrndup(place.p, place.n);
    return 0;
}
static int inject_parse(struct json *v, struct inject *j, struct err *e)
{
    struct str domain = {0}, secret = {0};
    char name[NAME_MAX_LEN + 3];
    if (json_kind(v) != JSON_OBJ)
        return json_fail(v, e, "not an object");
    if (json_only(v, e, "domain", "ports", "methods", "paths", "websocket", "secret", "header", "format", "placeholder", NULL) ||
        json_str(v, "domain", &domain, true, e) || json_str(v, "secret", &secret, true, e) || scope_parse(v, &j->scope, true, e))
        return -1;
    if (!name_pattern_canon(domain, name) || !strcmp(name, "*"))
        return json_fail(json_get(v, "domain"), e, "not a host name (example.org, *.example.org)");
    if (!secret.n || secret.n > 128 || !http_value_ok(secret))
        return json_fail(json_get(v, "secret"), e, "must be 1 to 128 printable characters");
    j->domain = xstrdup(name);
    j->secret = xstrndup(secret.p, secret.n);
    if (!j->scope.nports)
        j->scope.port[j->scope.nports++] = (struct port_range){443, 443};
    return inject_kind(v, j, e);
}

static int injects_parse(struct json *obj, struct policy *p, unsigned flags, struct err *e)
{
    struct json *arr = NULL;
    if (json_arr(obj, "inject", &arr, false, e))
        return -1;
    if (json_len(arr) && flags & POLICY_CEILING)
        return json_fail(arr, e, "does not belong in a ceiling");
    if (json_len(arr) > POLICY_INJECT_MAX)
        return json_fail(arr, e, "more than 32 injections");
    p->inject = xcalloc(json_len(arr) + 1, sizeof *p->inject);
    for (size_t i = 0; i < json_len(arr); i++) {
        p->ninject++;
        if (inject_parse(json_at(arr, i), &p->inject[i], e))
            return -1;
    }
    return 0;
}

static int private_parse(struct json *obj, struct policy *p, unsigned flags, struct err *e)
{
    struct json *arr = NULL;
    if (json_arr(obj, "private", &arr, false, e))
        return -1;
    if (json_len(arr) && !(flags & POLICY_CEILING))
        return json_fail(arr, e, "only the operator can open closed addresses (in a ceiling)");
    if (json_len(arr) > POLICY_RULES_MAX)
        return json_fail(arr, e, "more than 512 ranges");
    p->open_private = xcalloc(json_len(arr) + 1, sizeof *p->open_private);
    for (size_t i = 0; i < json_len(arr); i++) {
        struct str s;
        if (json_to_str(json_at(arr, i), &s, e))
            return -1;
        if (!cidr_parse(s, &p->open_private[p->nprivate++]))
            return json_fail(json_at(arr, i), e, "not an address or range (10.1.0.0/16)");
    }
    return 0;
}

static int limits_parse(struct json *obj, struct policy_limits *l, struct err *e)
{
    struct json *lim = NULL;
    int64_t conns, rate, bytes, dns;
    if (json_obj(obj, "limits", &lim, false, e))
        return -1;
    if (!lim)
        return 0;
    if (json_only(lim, e, "connections", "bytes_per_second", "bytes", "dns_per_second", NULL) ||
        json_i64(lim, "connections", 0, POLICY_COUNT_MAX, 0, &conns, e) || json_i64(lim, "bytes_per_second", 0, POLICY_BYTES_MAX, 0, &rate, e) ||
        json_i64(lim, "bytes", 0, POLICY_BYTES_MAX, 0, &bytes, e) || json_i64(lim, "dns_per_second", 0, POLICY_COUNT_MAX, 0, &dns, e))
        return -1;
    *l = (struct policy_limits){(uint64_t)conns, (uint64_t)rate, (uint64_t)bytes, (uint64_t)dns};
    return 0;
}

static int mode_parse(struct json *obj, struct policy *p, struct err *e)
{
    struct str s = {0};
    if (json_str(obj, "mode", &s, false, e))
        return -1;
    p->mode = json_len(json_get(obj, "allow")) ? POLICY_ALLOW : POLICY_NONE;
    if (!s.p)
        return 0;
    for (int i = POLICY_NONE; i <= POLICY_OPEN; i++)
        if (str_eqz(s, mode_names[i])) {
            p->mode = (enum policy_mode)i;
            return 0;
        }
    return json_fail(json_get(obj, "mode"), e, "must be none, allow or open");
}

struct policy *policy_from_json(struct json *obj, unsigned flags, struct err *e)
{
    struct policy *p = xcalloc(1, sizeof *p);
    p->refs = 1;
    if (!obj)
        return p;
    if (json_kind(obj) != JSON_OBJ) {
        (void)json_fail(obj, e, "not an object");
        policy_unref(p);
        return NULL;
    }
    if (json_only(obj, e, "mode", "allow", "deny", "inject", "limits", "private", NULL) || mode_parse(obj, p, e) ||
        rules_parse(obj, "allow", &p->allow, &p->nallow, e) || rules_parse(obj, "deny", &p->deny, &p->ndeny, e) ||
        injects_parse(obj, p, flags, e) || private_parse(obj, p, flags, e) || limits_parse(obj, &p->limits, e)) {
        policy_unref(p);
        return NULL;
    }
    return p;
}

struct policy *policy_parse(const char *json, size_t n, unsigned flags, struct err *e)
{
    if (n > POLICY_TEXT_MAX) {
        (void)err_set(e, E_TOO_LARGE, "the network policy is longer than %u bytes", POLICY_TEXT_MAX);
        return NULL;
    }
    if (!n)
        return policy_from_json(NULL, flags, e);
    auto_json j = json_parse_obj(json, n, e);
    return j ? policy_from_json(j, flags, e) : NULL;
}
