#include "gate/name.h"
#include <stdint.h>
#include <string.h>

static bool label_char(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

/* WHATWG's "ends in a number": digits, or 0x and hex digits. */
static bool numeric(const char *p, size_t n)
{
    size_t i = 0;
    bool hex = n >= 2 && p[0] == '0' && p[1] == 'x';
    for (i = hex ? 2 : 0; i < n; i++) {
        bool digit = p[i] >= '0' && p[i] <= '9';
        if (!digit && !(hex && p[i] >= 'a' && p[i] <= 'f'))
            return false;
    }
    return true;
}

bool name_canon(struct str s, char out[NAME_MAX_LEN + 1])
{
    if (s.n && s.p[s.n - 1] == '.')
        s.n--;
    if (!s.n || s.n > NAME_MAX_LEN)
        return false;
    size_t label = 0; /* where the current one begins */
    for (size_t i = 0; i <= s.n; i++) {
        unsigned char c = i < s.n ? (unsigned char)s.p[i] : '.';
        if (c >= 'A' && c <= 'Z')
            c = (unsigned char)(c - 'A' + 'a');
        if (c == '.') {
            if (i == label || i - label > 63)
                return false;
            if (i == s.n && numeric(out + label, i - label))
                return false;
            label = i + 1;
        } else if (!label_char(c))
            return false;
        if (i < s.n)
            out[i] = (char)c;
    }
    out[s.n] = 0;
    return true;
}

bool name_pattern_canon(struct str s, char out[NAME_MAX_LEN + 3])
{
    if (str_eqz(s, "*")) {
        memcpy(out, "*", 2);
        return true;
    }
    if (!str_starts(s, "*."))
        return name_canon(s, out);
    out[0] = '*', out[1] = '.';
    return name_canon((struct str){s.p + 2, s.n - 2}, out + 2);
}

static bool ends(struct str name, const char *suffix, size_t n) { return name.n >= n && !memcmp(name.p + name.n - n, suffix, n); }

bool name_match(struct str pattern, struct str name)
{
    if (!pattern.n || !name.n)
        return false;
    if (pattern.p[0] != '*')
        return str_eq(pattern, name);
    if (pattern.n == 1)
        return true;
    return name.n > pattern.n - 1 && ends(name, pattern.p + 1, pattern.n - 1); /* with its dot */
}

bool name_special(struct str name)
{
    static const char *const tail[] = {"localhost", "local", "internal", "intranet", "private", "corp", "home", "lan", "home.arpa", "localdomain",
                                       "onion", "invalid", "alt", "in-addr.arpa", "ip6.arpa"};
    if (!memchr(name.p, '.', name.n))
        return true;
    for (size_t i = 0; i < sizeof tail / sizeof *tail; i++) {
        size_t n = strlen(tail[i]);
        if (name.n > n && name.p[name.n - n - 1] == '.' && ends(name, tail[i], n))
            return true;
    }
    return false;
}

bool name_split_port(struct str s, struct str *ret_host, uint16_t *ret_port)
{
    struct str host = s, port = {NULL, 0};
    if (s.n && s.p[0] == '[') {
        const char *end = memchr(s.p, ']', s.n);
        if (!end)
            return false;
        host = (struct str){s.p + 1, (size_t)(end - s.p) - 1};
        size_t at = (size_t)(end - s.p) + 1;
        if (at < s.n && s.p[at] != ':')
            return false;
        if (at < s.n)
            port = (struct str){s.p + at + 1, s.n - at - 1};
    } else {
        const char *colon = memchr(s.p ? s.p : "", ':', s.n);
        if (colon) {
            host.n = (size_t)(colon - s.p);
            port = (struct str){colon + 1, s.n - host.n - 1};
        }
    }
    if (!host.n)
        return false;
    if (port.p) {
        uint64_t v;
        if (!port.n || port.n > 5 || !str_u64(port, &v) || !v || v > 65535)
            return false;
        *ret_port = (uint16_t)v;
    }
    *ret_host = host;
    return true;
}
