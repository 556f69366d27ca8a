/* The host's HTTP proxies, for the gate (gate/via.h): the one for everything
 * (HUTCH_NETWORK_PROXY, else https_proxy or http_proxy of the environment that
 * the daemon was started in; no_proxy names exceptions), and those that the
 * tools behind presets are set to, for the hosts of the preset. */
#pragma once
#include "base/err.h"
#include "base/buf.h"
#include <stdbool.h>

struct core;
struct upstream {
    char addr[64]; /* "192.0.2.1:3128"; "": none */
    char *auth;
};

/* "http://[user:password@]host:port": the host is looked up, which may block. An empty text is none. */
int upstream_parse(const char *url, struct upstream *ret, struct err *e);
void upstream_free(struct upstream *u);
