/* The first bytes of a connection: is it TLS, and which server name does its
 * ClientHello ask for? Pure. Strict: every length must fit exactly, an extension
 * may come once, the name list holds one host name. The hello may be cut into
 * any number of records (RFC 8446 5.1). */
#pragma once
#include "gate/name.h"
#include <stddef.h>
#include <stdint.h>

#define HELLO_MAX (24u * 1024) /* bytes on the wire; real ones have 200 to 2,500 */

struct hello {
    char sni[NAME_MAX_LEN + 1]; /* canonical; "" if there was none */
    bool ech;                   /* encrypted hello (or its grease): the name seen need not be the name meant */
};
enum hello_result { HELLO_MORE, HELLO_GOT, HELLO_NOT_TLS, HELLO_BAD };
/* p[0..n): everything the client sent so far. On HELLO_BAD *why says it in words. */
enum hello_result hello_parse(const uint8_t *p, size_t n, struct hello *ret, const char **why);

/* Could these bytes be the beginning of an HTTP/1 request line? -1: not yet decidable. */
int hello_is_http(const uint8_t *p, size_t n);
