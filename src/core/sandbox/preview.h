/* Who may reach the ports of a sandbox, and under what name: options that every dialect sets and
 * api/preview reads. */
#pragma once
#include "core/sandbox/sandbox.h"
#include <string.h>

#define OPT_PREVIEW_TOKEN     "preview_token" /* absent: its ports are public */
/* The Host that servers inside see; ${PORT} is the port. */
#define OPT_PREVIEW_MASK_HOST "preview_mask_host"

/* Homes of version 0.1.0 and before hold these under the name of the dialect that set them:
 * DIALECT.traffic_token, DIALECT.mask_host. */
static inline const char *preview_option(const struct sandbox *sb, const char *key, const char *old)
{
    const char *now = kv_get(&sb->options, key);
    for (size_t i = 0; !now && i < sb->options.n; i++) {
        const char *dot = strchr(sb->options.at[i].k, '.');
        if (dot && !strcmp(dot, old))
            now = sb->options.at[i].v;
    }
    return now;
}
static inline const char *sandbox_preview_token(const struct sandbox *sb)
{
    return preview_option(sb, OPT_PREVIEW_TOKEN, ".traffic_token");
}
static inline const char *sandbox_preview_mask_host(const struct sandbox *sb)
{
    return preview_option(sb, OPT_PREVIEW_MASK_HOST, ".mask_host");
}
