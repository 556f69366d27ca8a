/* hutch events: what happened, and with -f what happens (server-sent events;
 * each event is one data line). --json prints one object per line. */
#include "base/cleanup.h"
#include "cli/cmds.h"
#include "cli/ndjson.h"
#include "cli/out.h"
#include "cli/sandbox.h"
#include <stdio.h>
#include <string.h>

static void show(struct json *e, bool as_json)
{
    if (as_json) {
        json_print(e);
        return;
    }
    auto_buf out = {0}, data = {0};
    struct json *d = json_get(e, "data");
    buf_printf(&out, "%lld ", (long long)jget_i64(e, "seq", 0));
    static const char *const keys[] = {"at", "type", "sandbox"};
    for (size_t i = 0; i < 3; i++) {
        if (i)
            buf_putc(&out, ' ');
        esc_put(&out, str_of(jget_str(e, keys[i], "-")));
    }
    if (json_len(d)) {
        json_dump(d, &data);
        buf_putc(&out, ' ');
        esc_put(&out, (struct str){data.p, data.n});
    }
    (void)printf("%s\n", out.p);
}

static int follow(struct cli *x, const char *target, bool as_json)
{
    auto_client c = api_open(x);
    if (!c || api_send(x, c, "GET", target, NULL) || api_check(x, c))
        return -1;
    struct lines l = {.c = c, .sigfd = -1};
    struct str line;
    int rc = 0;
    while (!rc && !ferror(stdout)) {
        enum lines_got got = lines_next(&l, -1, &line, &x->err);
        if (got == LINES_BROKEN)
            rc = -1;
        if (got == LINES_END)
            break;
        if (got != LINES_LINE || !str_starts(line, "data:"))
            continue; /* id:, event:, comments that keep the line open */
        struct str text = str_trim((struct str){line.p + 5, line.n - 5});
        auto_json e = json_parse_obj(text.p, text.n, NULL);
        if (e)
            show(e, as_json);
        (void)fflush(stdout);
    }
    splitter_free(&l.split);
    return rc;
}

static int exec_events(struct cli *x, struct args *a)
{
    bool f = args_flag(a, "follow"), as_json = args_flag(a, "json");
    auto_free char *t = url(f ? "/v1/events?follow=1" : "/v1/events?follow=0");
    url_arg(&t, "since", args_str(a, "since", NULL));
    url_arg(&t, "sandbox", a->n ? a->v[0] : NULL);
    if (f)
        return follow(x, t, as_json) ? cli_fail(x) : 0;
    auto_json j = NULL;
    if (api_call(x, "GET", t, NULL, &j))
        return cli_fail(x);
    struct json *list = json_get(j, "events");
    for (size_t i = 0; i < json_len(list); i++)
        show(json_at(list, i), as_json);
    return 0;
}

static const struct opt opts[] = {{"follow", 'f', 'f', NULL, "keep printing events as they happen", NULL}, {"since", 0, 's', "SEQ", "only events after this number", NULL}, OPT_JSON, OPT_END};
const struct cmd cmd_events = {.name = "events", .usage = "[-f] [ID]", .help = "show the events of sandboxes", .opts = opts, .max = 1, .words = "@id", .exec = exec_events};
