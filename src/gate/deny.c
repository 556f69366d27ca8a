/* A refusal that a program, a person or a model can read. */
#include "gate/conn.h"
#include "http/parse.h"
#include "json/write.h"
#include <string.h>

const char deny_alert[7] = {0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x31};

/* Header values must hold one line of printable bytes. */
static void put_line(struct buf *out, const char *s)
{
    for (; *s; s++)
        buf_putc(out, (unsigned char)*s < ' ' || (unsigned char)*s >= 127 ? '?' : *s);
}

void deny_http(struct buf *out, int status, const char *code, const char *rule, const char *reason, bool head)
{
    auto_buf body = {0};
    struct jw w;
    jw_init(&w, &body);
    jw_obj(&w);
    jw_kv_obj(&w, "error");
    jw_kv_str(&w, "code", code);
    jw_kv_str(&w, "message", reason);
    if (rule && *rule)
        jw_kv_str(&w, "rule", rule);
    jw_kv_str(&w, "hint", status == 403 ? "this is the sandbox's network policy, not a fault of the network; trying again will not help. "
                                          "Whoever runs the sandbox can allow it."
                                        : "the sandbox's network policy allows this, but the server could not be used; trying again may help.");
    jw_end(&w);
    jw_end(&w);
    buf_putc(&body, '\n');
    buf_printf(out, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\nConnection: close\r\nCache-Control: no-store\r\nX-Hutch-Reason: ",
               status, http_reason(status), body.n);
    put_line(out, reason);
    buf_puts(out, "\r\n\r\n");
    if (!head)
        buf_put(out, body.p, body.n);
}
