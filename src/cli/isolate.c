#include "cli/isolate.h"
#include "base/cleanup.h"
#include "base/enc.h"
#include "base/fd.h"
#include "cli/client.h"
#include "cli/out.h"
#include "cli/sandbox.h"
#include "json/valid.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define INPUT_MAX (2u << 20)

bool isolate_asked(const struct args *a)
{
    const char *tier = args_str(a, "isolation", NULL);
    return tier && !strcmp(tier, "isolate");
}

const char *isolate_language_of(const char *path)
{
    static const struct { const char *ext, *name; } langs[] = {{"py", "python"}, {"js", "js"}, {"mjs", "js"}, {"cjs", "js"}, {"php", "php"}, {"rb", "ruby"}};
    const char *base = strrchr(path, '/'), *dot = strrchr(base ? base : path, '.');
    for (size_t i = 0; dot && i < sizeof langs / sizeof *langs; i++)
        if (!strcmp(dot + 1, langs[i].ext))
            return langs[i].name;
    return NULL;
}

/* Options that mean something for a sandbox and nothing here are refused, not swallowed. */
static int refuse_others(struct cli *x, const struct args *a)
{
    static const char *const fine[] = {"isolation", "template", "timeout", "memory", "input", "function", "language", "json", "no-build"};
    for (int i = 0; i < a->nset; i++) {
        bool ok = false;
        for (size_t k = 0; k < sizeof fine / sizeof *fine; k++)
            ok |= !strcmp(a->set[i].opt->name, fine[k]);
        if (!ok)
            return err_set(&x->err, E_INVALID, "--%s has no effect in an isolate, which has no files, network, users or lifetime", a->set[i].opt->name);
    }
    return 0;
}

static int read_input(struct cli *x, const struct args *a, struct buf *out)
{
    const char *text = args_str(a, "input", NULL);
    if (!text)
        return 0;
    if (strcmp(text, "-")) {
        buf_puts(out, text);
    } else {
        size_t n;
        auto_free char *all = fd_slurp(STDIN_FILENO, INPUT_MAX, &n);
        if (!all)
            return err_set(&x->err, E_TOO_LARGE, "the input on standard input cannot be read, or is larger than %u MiB", INPUT_MAX >> 20);
        buf_put(out, all, n);
    }
    return json_valid((struct str){out->p, out->n}, &x->err) ? err_wrap(&x->err, "--input is not JSON") : 0;
}

static int make_body(struct cli *x, struct args *a, const char *language, struct str code, struct buf *out)
{
    int64_t seconds = 0, memory = 0;
    auto_buf input = {0};
    if (refuse_others(x, a) || read_input(x, a, &input) || args_seconds(a, "timeout", 1, 300, 0, &seconds, &x->err) ||
        args_int(a, "memory", 16, 65536, 0, &memory, &x->err))
        return -1;
    if (!str_utf8(code))
        return err_set(&x->err, E_INVALID, "the program is not UTF-8 text");
    struct jw w;
    jw_init(&w, out);
    jw_obj(&w);
    jw_kv_str(&w, "language", language);
    jw_kv_strn(&w, "code", code);
    if (input.n)
        jw_kv_raw(&w, "input", (struct str){input.p, input.n});
    if (args_str(a, "function", NULL))
        jw_kv_str(&w, "function", args_str(a, "function", NULL));
    if (args_str(a, "template", NULL))
        jw_kv_str(&w, "template", args_str(a, "template", NULL));
    if (seconds)
        jw_kv_i64(&w, "timeout_ms", seconds * 1000);
    if (memory)
        jw_kv_i64(&w, "memory_mib", memory);
    jw_end(&w);
    return 0;
}

static int post(struct cli *x, const struct buf *body, struct buf *ret)
{
    auto_client c = api_open(x);
    return !c || api_send(x, c, "POST", "/v1/eval", body) || api_check(x, c) || http_client_body(c, API_BODY_MAX, ret, &x->err) ? -1 : 0;
}

/* As sandbox_create does: the first use builds what it needs. */
static int post_building(struct cli *x, struct args *a, const struct buf *body, struct buf *ret)
{
    if (!post(x, body, ret))
        return 0;
    if (x->err.code != E_NOT_FOUND || args_str(a, "template", NULL) || args_flag(a, "no-build"))
        return -1;
    auto_json built = NULL;
    x->hint[0] = 0;
    if (build_builtin(x, "base", "base", false, &built) && x->err.code != E_CONFLICT)
        return -1;
    x->hint[0] = 0;
    return post(x, body, ret);
}

static void put_stream(FILE *f, struct json *r, const char *key, const char *key64)
{
    struct str s = {0};
    auto_buf raw = {0};
    if (!json_str(r, key64, &s, false, NULL) && s.p && base64_decode(s.p, s.n, &raw))
        (void)fwrite(raw.p, 1, raw.n, f);
    else if (!json_str(r, key, &s, false, NULL) && s.p)
        (void)fwrite(s.p, 1, s.n, f);
    (void)fflush(f);
}

static int show_error(struct json *r, struct json *e)
{
    const char *code = jget_str(e, "code", ""), *trace = jget_str(e, "traceback", "");
    char message[1024], hint[256];
    esc_text(str_of(jget_str(e, "message", "")), message, sizeof message);
    esc_text(str_of(jget_str(e, "hint", "")), hint, sizeof hint);
    if (!strcmp(code, "exception") && *trace) {
        for (const char *p = trace; *p;) { /* line by line: escaping would take the line ends, too */
            size_t n = strcspn(p, "\n");
            auto_buf line = {0};
            esc_put(&line, (struct str){p, n});
            (void)fprintf(stderr, "%s\n", line.p ? line.p : "");
            p += n + (p[n] == '\n');
        }
    } else if (strcmp(code, "exit")) {
        (void)fprintf(stderr, "hutch: %s: %s\n", code, message);
        if (*hint)
            (void)fprintf(stderr, "hint: %s\n", hint);
    }
    if (!strcmp(code, "timeout") || !strcmp(code, "cpu"))
        return 124;
    if (!strcmp(code, "memory"))
        return 137;
    int64_t sig = jget_i64(r, "signal", 0), status = jget_i64(r, "exit_code", 1);
    return sig ? 128 + (int)(sig & 0x7f) : status ? (int)(status & 0xff) : 1;
}

int isolate_run(struct cli *x, struct args *a, const char *language, struct str code, bool show)
{
    static const char head[] = "{\"value\":";
    auto_buf body = {0}, answer = {0};
    if (make_body(x, a, language, code, &body) || post_building(x, a, &body, &answer))
        return cli_fail(x);
    if (args_flag(a, "json")) {
        (void)printf("%s\n", answer.p);
        return 0;
    }
    /* The value comes first and is cut out as text: numbers in it may be larger than any of ours. */
    struct str value = {answer.p + sizeof head - 1, 0};
    if (answer.n > sizeof head && !memcmp(answer.p, head, sizeof head - 1))
        value.n = json_extent((struct str){value.p, answer.n - (sizeof head - 1)});
    const char *rest = value.p + value.n;
    if (!value.n || *rest != ',') {
        (void)err_set(&x->err, E_INTERNAL, "the server's response is malformed");
        return cli_fail(x);
    }
    auto_buf text = {0};
    buf_putc(&text, '{');
    buf_puts(&text, rest + 1);
    auto_json r = json_parse(text.p, text.n, &x->err);
    if (!r) {
        (void)err_wrap(&x->err, "the server's response");
        return cli_fail(x);
    }
    put_stream(stdout, r, "stdout", "stdout_base64");
    put_stream(stderr, r, "stderr", "stderr_base64");
    if (json_get(r, "error"))
        return show_error(r, json_get(r, "error"));
    if (show && !str_eqz(value, "null"))
        (void)printf("%.*s\n", (int)value.n, value.p);
    return 0;
}
