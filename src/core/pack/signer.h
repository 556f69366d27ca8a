/* Who signs snapshot packs: the key of this home (pack.key, made on first use)
 * and the keys it trusts (trust/<name>.pub, 64 hex digits each). What this home
 * signed it trusts. Small files, read when they are asked for. */
#pragma once
#include "base/err.h"
#include "crypto/sign.h"
#include <stddef.h>

#define SIGNER_NAME 64
#define SIGNERS_MAX 256
#define SIGNER_OWN  "this-home"

struct core;
struct signer {
    char name[SIGNER_NAME];
    char key[2 * SIGN_PUBLIC + 1];
};

int signer_secret(int home_fd, unsigned char ret[SIGN_SECRET], struct err *e);
/* The name of a trusted key. E_DENIED names the key and says what to do. Any thread. */
int signer_known(int home_fd, const unsigned char key[SIGN_PUBLIC], char ret[SIGNER_NAME],
                 struct err *e);

int signer_own(struct core *c, struct signer *ret, struct err *e);
int signer_list(struct core *c, struct signer *ret, size_t max, size_t *ret_n,
                struct err *e); /* by name; without our own */
int signer_trust(struct core *c, const char *name, const char *key,
                 struct err *e); /* E_CONFLICT: the name has another key */
int signer_distrust(struct core *c, const char *name, struct err *e);
