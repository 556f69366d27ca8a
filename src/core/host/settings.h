/* The table of all settings: what config_load reads, what `hutchd --settings`
 * prints, what the man page and docs/configuration.md say. A setting is a
 * variable HUTCH_NAME of the environment; a file of settings (base/conf.h) puts
 * into the environment what is not there yet, so the environment wins. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

enum setting_kind {
    SET_GROUP, /* no setting: `help` is the title of those that follow */
    SET_TEXT,
    SET_DIR,    /* an absolute path */
    SET_NUMBER, /* a uint32_t */
    SET_SWITCH, /* 0 or 1, a bool */
    SET_WORD,   /* one of `words`, "a|b|c" */
    SET_TIER,
    SET_ELSEWHERE, /* read by whoever uses it; here for its name and its help */
};
struct setting {
    const char *name;
    enum setting_kind kind;
    size_t at, cap;         /* in struct config */
    uint32_t num, min, max; /* SET_NUMBER, SET_SWITCH */
    const char *def;        /* of the others, as it is parsed; SET_ELSEWHERE: as it is shown */
    const char *words;
    const char *help; /* Markdown, one line */
};
extern const struct setting settings[];
extern const size_t nsettings;

/* Puts the file of settings (conf_load) into the environment. *ret_file: the file that was used, "" if none. */
int settings_read(char *ret_file, size_t n, struct err *e);
/* Logs each HUTCH_ variable that nothing reads, with the nearest name. Returns how many. */
int settings_unknown(void);

enum settings_form { SETTINGS_MARKDOWN, SETTINGS_CONF, SETTINGS_MAN };
void settings_write(enum settings_form form, struct buf *out);
