#include "gate/via.h"
#include "gate/name.h"
#include "gate/resolve.h"
#include "http/parse.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void via_free(struct via *v)
{
    if (v->auth)
        explicit_bzero(v->auth, strlen(v->auth));
    free(v->hosts), free(v->auth);
    *v = (struct via){0};
}
void via_copy(struct via *to, const struct via *from)
{
    *to = *from;
    to->hosts = from->hosts ? xstrdup(from->hosts) : NULL;
    to->auth = from->auth ? xstrdup(from->auth) : NULL;
}
void vias_free(struct vias *v)
{
    for (size_t i = 0; i < v->n; i++)
        via_free(&v->at[i]);
    for (size_t i = 0; i < v->ndirect; i++)
        free(v->direct[i]);
    *v = (struct vias){0};
}
bool vias_add(struct vias *v, struct str hosts, struct str addr, struct str auth, bool by_name)
{
    struct resolver_addr a;
    struct via *x = &v->at[v->n];
    if (v->n == VIA_MAX || !hosts.n || hosts.n > NAME_MAX_LEN + 2 || auth.n > 1024 || !http_value_ok(auth) || !resolver_addr_parse(addr, &a))
        return false;
    *x = (struct via){.hosts = xstrndup(hosts.p, hosts.n), .auth = auth.n ? xstrndup(auth.p, auth.n) : NULL, .ip = a.ip, .port = a.port, .by_name = by_name};
    v->n++;
    return true;
}
bool vias_direct(struct vias *v, struct str word)
{
    while (word.n > 1 && word.p[0] == '.')
        word.p++, word.n--;
    if (v->ndirect == VIA_MAX || !word.n || word.n > NAME_MAX_LEN)
        return false;
    v->direct[v->ndirect++] = xstrndup(word.p, word.n);
    return true;
}

static bool below(const char *suffix, struct str name)
{
    size_t n = strlen(suffix);
    return name.n >= n && str_ieqz((struct str){name.p + name.n - n, n}, suffix) && (name.n == n || name.p[name.n - n - 1] == '.');
}
static bool is_range(const char *text, const struct ip *ip, bool *ret)
{
    struct cidr c;
    if (!cidr_parse(str_of(text), &c))
        return false;
    *ret = ip && cidr_has(&c, ip);
    return true;
}
const struct via *via_for(const struct vias *v, struct str name, const struct ip *ip)
{
    bool hit;
    for (size_t i = 0; i < v->ndirect; i++) {
        const char *d = v->direct[i];
        if (!strcmp(d, "*") || (is_range(d, ip, &hit) ? hit : below(d, name)))
            return NULL;
    }
    for (size_t i = 0; i < v->n; i++) {
        const char *h = v->at[i].hosts;
        if (!strcmp(h, "*") || (is_range(h, ip, &hit) ? hit : name.n && name_match(str_of(h), name)))
            return &v->at[i];
    }
    return NULL;
}

void via_ask(const struct via *v, const struct ip *ip, struct str name, uint16_t port, struct buf *out)
{
    char text[IP_TEXT], to[NAME_MAX_LEN + 16];
    ip_text(ip, text);
    if (v->by_name && name.n)
        (void)snprintf(to, sizeof to, "%.*s:%u", (int)name.n, name.p, port);
    else
        (void)snprintf(to, sizeof to, ip->v6 ? "[%s]:%u" : "%s:%u", text, port);
    buf_printf(out, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n", to, to);
    if (v->auth)
        buf_printf(out, "Proxy-Authorization: %s\r\n", v->auth);
    buf_puts(out, "\r\n");
}
int via_answer(const char *p, size_t n, size_t *ret_head)
{
    const char *end = n >= 4 ? memmem(p, n, "\r\n\r\n", 4) : NULL;
    size_t k = n < 7 ? n : 7;
    if (memcmp(p, "HTTP/1.", k))
        return -1;
    if (!end)
        return n < VIA_ANSWER_MAX ? 0 : -1;
    *ret_head = (size_t)(end - p) + 4;
    if (end - p < 12 || p[8] != ' ' || p[9] < '1' || p[9] > '5' || p[10] < '0' || p[10] > '9' || p[11] < '0' || p[11] > '9')
        return -1;
    return (p[9] - '0') * 100 + (p[10] - '0') * 10 + (p[11] - '0');
}
