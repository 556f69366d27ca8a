/* The dialects, in the order in which they are asked whether a request is theirs. */
#include "api/dialect.h"

/* clang-format off */
#define DIALECTS(X) \
    X(preview) /* ports of sandboxes, by host name */ \
    X(e2b) \
    X(mcp) \
    X(vercel)  /* a form of network policies, no calls */ \
    X(native)  /* last: takes what is left */
/* clang-format on */

#define DECLARE(name) extern const struct dialect name##_dialect;
DIALECTS(DECLARE)

#define ROW(name) &name##_dialect,
const struct dialect *const dialects[] = {DIALECTS(ROW)};
const size_t ndialects = sizeof dialects / sizeof *dialects;
