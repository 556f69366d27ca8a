/* WebSocket frames: any cut gives the same events. */
#include "http/ws.h"
#include <stdlib.h>
#include <string.h>

static void run(const char *p, size_t n, size_t step, bool masked, struct buf *log)
{
    struct ws_dec d;
    ws_dec_init(&d, masked, 4096);
    while (n) {
        size_t take = step < n ? step : n, used;
        struct ws_event ev;
        enum ws_dec_state r = ws_dec_push(&d, p, take, &used, &ev);
        if (used > take || d.msg.n > 4096)
            abort();
        p += used, n -= used;
        if (r == WS_DEC_ERROR) {
            buf_printf(log, "E%d", d.close_code);
            break;
        }
        if (r == WS_DEC_EVENT) {
            buf_printf(log, "%d:%d:%zu:", ev.op, ev.code, ev.data.n);
            buf_put(log, ev.data.p, ev.data.n);
        }
    }
    ws_dec_fini(&d);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n);
int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n)
{
    if (!n)
        return 0;
    struct buf a = {0}, b = {0};
    run((const char *)data + 1, n - 1, n, data[0] & 1, &a);
    run((const char *)data + 1, n - 1, 1, data[0] & 1, &b);
    if (a.n != b.n || (a.n && memcmp(a.p, b.p, a.n)))
        abort();
    buf_free(&a);
    buf_free(&b);
    return 0;
}
