/* hutch snapshot export, import, trust, distrust: snapshots as signed files. */
#include "base/cleanup.h"
#include "cli/cmds.h"
#include "cli/out.h"
#include "cli/sandbox.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int snapshot_export(struct cli *x, struct args *a)
{
    const char *file = args_str(a, "output", "-");
    if (!strcmp(file, "-") && isatty(STDOUT_FILENO))
        return cli_usage(
            x, "snapshot export: will not write binary data to a terminal; use -o FILE or a pipe");
    auto_free char *t = url("/v1/snapshots/{}/pack", a->v[0]);
    return api_download(x, t, file, 0) ? cli_fail(x) : 0;
}

int snapshot_import(struct cli *x, struct args *a)
{
    struct stat st;
    auto_fd fd = !strcmp(a->v[0], "-") ? dup(STDIN_FILENO) : open(a->v[0], O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st)) {
        (void)err_sys(&x->err, errno, "cannot open '%.100s'", a->v[0]);
        return cli_fail(x);
    }
    auto_free char *t = xstrdup("/v1/snapshots/import");
    url_arg(&t, "name", args_str(a, "name", NULL));
    auto_client c = api_open(x);
    auto_buf body = {0};
    if (!c || api_send_fd(x, c, "POST", t, "application/vnd.hutch.pack", fd, S_ISREG(st.st_mode) ? st.st_size : -1) || http_client_body(c, API_BODY_MAX, &body, &x->err))
        return cli_fail(x);
    auto_json s = json_parse_obj(body.p, body.n, &x->err);
    if (!s)
        return cli_fail(x);
    if (args_flag(a, "json"))
        json_print(s);
    else
        (void)printf("%s\n", jget_str(s, "id", ""));
    return 0;
}

static int list(struct cli *x, struct args *a)
{
    static const char *const heads[] = {"NAME", "KEY", NULL};
    auto_json j = NULL;
    if (api_call(x, "GET", "/v1/signers", NULL, &j))
        return cli_fail(x);
    if (args_flag(a, "json")) {
        json_print(j);
        return 0;
    }
    struct json *all = json_get(j, "signers");
    struct table *t = table_new(heads);
    table_cell(t, ST_DIM, "this-home");
    table_cell(t, ST_PLAIN, jget_str(j, "own", ""));
    for (size_t i = 0; i < json_len(all); i++) {
        table_cell(t, ST_PLAIN, jget_str(json_at(all, i), "name", ""));
        table_cell(t, ST_PLAIN, jget_str(json_at(all, i), "key", ""));
    }
    table_print(t);
    return 0;
}

int snapshot_trust(struct cli *x, struct args *a)
{
    if (!a->n)
        return list(x, a);
    if (a->n != 2)
        return cli_usage(x, "snapshot trust: needs NAME and KEY; `hutch snapshot trust` on the other host shows the key");
    auto_free char *t = url("/v1/signers/{}", a->v[0]);
    auto_buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_str(&w, "key", a->v[1]);
    jw_end(&w);
    return api_call(x, "PUT", t, &b, NULL) ? cli_fail(x) : 0;
}

int snapshot_distrust(struct cli *x, struct args *a)
{
    auto_free char *t = url("/v1/signers/{}", a->v[0]);
    return api_call(x, "DELETE", t, NULL, NULL) ? cli_fail(x) : 0;
}
