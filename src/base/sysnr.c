#include "base/sysnr.h"
#include <stddef.h>
#include <string.h>

static const struct { const char *name; int nr; } table[] = {
#include "base/syscalls.inc"
};

int sysnr(const char *name)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(table[i].name, name))
            return table[i].nr;
    return -1;
}

const char *sysnr_name(int nr)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].nr == nr)
            return table[i].name;
    return NULL;
}
