/* A file of settings, NAME=VALUE a line:
 *
 *   # a comment
 *   HUTCH_LISTEN=127.0.0.1:4882
 *   HUTCH_NETWORK_CEILING='{"allow": ["example.org"]}'
 *
 * Spaces around name and value do not count; one pair of quotes around the
 * whole value is taken off. There are no escapes and no variables. Lines that
 * are empty or begin with # or ; are nothing. */
#pragma once
#include "base/err.h"
#include "base/str.h"

#define CONF_FILE "/etc/hutch/hutchd.conf"
#define CONF_HOME "/var/lib/hutch" /* HUTCH_HOME where nobody says another */
#define CONF_UID  64882            /* HUTCH_UID likewise */
#define CONF_MAX  (1u << 20)

/* The file that HUTCH_CONFIG names, else CONF_FILE; NULL: HUTCH_CONFIG is "none". */
const char *conf_path(void);

struct conf_line {
    char *name, *value;
    int line;
};
struct conf {
    struct conf_line *at;
    size_t n;
};
/* E_INVALID with the number of the line. `name` is for the message. */
int conf_parse(const char *name, struct str text, struct conf *ret, struct err *e);
/* The settings for a process of this environment. The file in /etc is that of the home it names, or of the default home: for a HUTCH_HOME that is another
 * one it counts as empty. */
int conf_load(struct conf *ret, struct err *e);
/* A file that is not there is empty unless HUTCH_CONFIG asked for it. One that somebody else than root (or we ourselves) can write is refused. */
int conf_read(const char *path, struct conf *ret, struct err *e);
const char *conf_get(const struct conf *c, const char *name); /* the last one wins; NULL: none */
void conf_free(struct conf *c);
static inline void cleanup_conf(struct conf *c) { conf_free(c); }
#define auto_conf __attribute__((cleanup(cleanup_conf))) struct conf
