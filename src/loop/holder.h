/* Who has a TCP address that we wanted, for the message. From /proc, so root
 * sees more than others and nobody sees into another container. */
#pragma once
#include <sys/types.h>

struct holder { pid_t pid; char name[17]; };
int holder_find(const char *addr, struct holder *ret); /* "host:port" as in sock.h; -1: cannot tell */
int holder_env(const struct holder *h, const char *var, char *ret, size_t n); /* from its environment; -1: cannot be read; not set: "" */
