/* The gate's certificate authority of one sandbox, put into the trust stores
 * inside it: OpenSSL's bundle (curl, git, wget, Ruby, PHP…), and by environment
 * Python's certifi, Node and the rest; Java's key store where there is one. */
#pragma once
#include "base/err.h"
#include "json/kv.h"
struct agent;
/* done once, never inside the call; -1 + e: not even begun. */
int trust_install(struct agent *a, const char *pem, void (*done)(void *arg, const struct err *e),
                  void *arg, struct err *e) __attribute__((warn_unused_result));
void trust_env(struct kv *env);
/* Shell, to be run inside as root: takes it out again, also where update-ca-certificates has spread it. For trees that outlive
 * the sandbox. */
extern const char trust_undo[];
