/* Of core/network.c alone; here so that a sandbox can hold it. */
#pragma once
#include "base/clock.h"
#include "core/network.h"
#include "core/preset.h"

#define LATER_NS (20 * NS_PER_MS) /* after a create, so that it does not pay for the log of a closed sandbox */

struct network {
    char *text;             /* the client's form, checked */
    struct policy *policy;  /* the same without presets */
    char *preset[PRESETS_MAX];
    size_t npresets;
    char *ca_cert, *ca_key; /* PEM; only if something is intercepted */
};
