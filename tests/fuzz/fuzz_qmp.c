/* libFuzzer: QMP lines from a hostile QEMU. Whatever comes in, a message that
 * parses is a message whose words are short, terminated and printable. */
#include "tier/vm/qmp.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void word(const char *s, size_t cap)
{
    size_t n = strnlen(s, cap);
    if (n == cap)
        abort();
    for (size_t i = 0; i < n; i++)
        if (s[i] < ' ' || s[i] > '~')
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct qmp_msg m;
    struct err e;
    if (qmp_parse((const char *)p, n, &m, &e)) {
        if (e.code != E_GUEST || !e.msg[0])
            abort();
        return 0;
    }
    word(m.name, sizeof m.name);
    word(m.status, sizeof m.status);
    word(m.desc, sizeof m.desc);
    if (m.kind == QMP_EVENT && !m.name[0])
        abort();
    return 0;
}
