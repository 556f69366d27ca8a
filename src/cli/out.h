/* What people see: escaping, tables, times, colours, progress. Text from the
 * server is foreign (names, metadata, log lines come from clients and guests):
 * everything printed through here is escaped. Only exec, run and cp write raw
 * bytes, because there the bytes are the result. */
#pragma once
#include "base/buf.h"
#include "base/str.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Control bytes, DEL, C1, broken UTF-8 and bidirectional overrides become \xNN or \u{NNNN}. */
void esc_put(struct buf *out, struct str s);
void esc_text(struct str s, char *out, size_t cap); /* cut to fit */
size_t text_width(const char *s);                   /* columns of escaped text */

bool out_colour(FILE *f); /* a terminal, NO_COLOR unset, TERM not dumb */
enum style { ST_PLAIN, ST_GOOD, ST_WARN, ST_BAD, ST_DIM, ST_BOLD };
const char *style_on(enum style s);
#define STYLE_OFF "\033[0m"
enum style state_style(const char *state); /* of a sandbox */

struct table;
struct table *table_new(const char *const *heads); /* NULL-terminated; a head starting with '>' is right-aligned */
void table_cell(struct table *t, enum style st, const char *text); /* NULL or "": "-"; rows fill left to right */
void table_cellf(struct table *t, enum style st, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void table_fit(struct table *t, size_t columns); /* cut long cells so that a line has at most so many */
void table_render(const struct table *t, bool colour, struct buf *out);
void table_print(struct table *t); /* to stdout, then frees it */
void table_free(struct table *t);

void dur_format(int64_t ns, char out[24]);         /* "42s" "4m58s" "2h05m" "3d4h"; negative: "-" */
void ms_format(double ms, char out[24]);           /* "3.2 ms" "850 ms" "22.6 s" "2m05s" */
bool dur_parse(const char *s, int64_t *ret_s);     /* "90" "5m" "1h30m" "2d" */
void bytes_format(int64_t n, char out[24]);        /* "512 B" "1.5 GiB"; negative: "-" */
bool time_parse(struct str rfc3339, int64_t *ret_wall_ns);

/* One line that redraws itself on a terminal; otherwise a line per step, without what it counts. On stderr, never stdout. */
struct progress {
    bool tty, colour, shown;
    int percent; /* -1: unknown */
    char step[160], last[160];
    int64_t began, drawn;
};
void progress_begin(struct progress *p);
void progress_set(struct progress *p, int percent, const char *step /* escaped here; NULL keeps */);
void progress_tick(struct progress *p); /* redraws the elapsed time; cheap to call often */
void progress_line(struct progress *p, const char *line); /* a log line above the bar */
void progress_end(struct progress *p, const char *last_words /* NULL: just clears */);
