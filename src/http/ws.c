/* WebSocket frames (RFC 6455 5.2), no I/O:
 *
 *   byte 0  FIN(1) RSV(3, zero: no extensions) opcode(4)
 *   byte 1  MASK(1) length(7); 126: 16 bits follow, 127: 64 bits follow
 *   4 bytes of mask if MASK, then the payload
 *
 * Lengths must be in their shortest form; control frames are at most 125 bytes
 * and never fragmented. */
#include "http/ws.h"
#include "base/enc.h"
#include "base/sha1.h"
#include <string.h>

void ws_dec_init(struct ws_dec *d, bool want_mask, size_t max_message)
{
    *d = (struct ws_dec){.want_mask = want_mask, .max_message = max_message, .need = 2};
}
void ws_dec_fini(struct ws_dec *d) { buf_free(&d->msg); }

static enum ws_dec_state bad(struct ws_dec *d, int code, const char *why)
{
    d->close_code = code;
    d->why = why;
    return WS_DEC_ERROR;
}

static bool is_control(int op) { return op >= WS_CLOSE; }

/* U+0000 is fine in text, so the check runs between the NULs. */
static bool utf8_ok(const char *p, size_t n)
{
    while (n) {
        const char *z = memchr(p, 0, n);
        size_t len = z ? (size_t)(z - p) : n;
        if (!str_utf8((struct str){p, len}))
            return false;
        len += z != NULL;
        p += len, n -= len;
    }
    return true;
}

/* The head is complete as far as it is known: 0, or an error; d->need grows when more is wanted. */
static enum ws_dec_state head_step(struct ws_dec *d)
{
    unsigned char *h = d->head;
    if (d->nhead == 2 && d->need == 2) {
        d->fin = h[0] & 0x80;
        d->op = h[0] & 15;
        if (h[0] & 0x70)
            return bad(d, WS_PROTOCOL, "reserved bits set");
        if (!!(h[1] & 0x80) != d->want_mask)
            return bad(d, WS_PROTOCOL, d->want_mask ? "client frame without a mask" : "server frame with a mask");
        unsigned len = h[1] & 0x7f;
        if (is_control(d->op)) {
            if (d->op > WS_PONG)
                return bad(d, WS_PROTOCOL, "unknown opcode");
            if (!d->fin || len > 125)
                return bad(d, WS_PROTOCOL, "control frame fragmented or too long");
        } else if (d->op > WS_BINARY) {
            return bad(d, WS_PROTOCOL, "unknown opcode");
        } else if (d->op == WS_CONT ? !d->msg_op : d->msg_op != 0) {
            return bad(d, WS_PROTOCOL, "fragments out of order");
        }
        d->need = 2 + (len == 126 ? 2 : len == 127 ? 8 : 0) + (d->want_mask ? 4 : 0);
        if (d->need > 2)
            return WS_DEC_MORE;
    }
    unsigned len = h[1] & 0x7f, at = 2;
    d->left = len;
    if (len == 126) {
        d->left = (uint64_t)h[2] << 8 | h[3];
        at = 4;
        if (d->left < 126)
            return bad(d, WS_PROTOCOL, "length not in its shortest form");
    } else if (len == 127) {
        d->left = 0;
        for (int i = 0; i < 8; i++)
            d->left = d->left << 8 | h[2 + i];
        at = 10;
        if (d->left < 65536 || d->left >> 63)
            return bad(d, WS_PROTOCOL, "length not in its shortest form");
    }
    if (d->want_mask)
        memcpy(d->mask, h + at, 4);
    if (!is_control(d->op)) {
        if (d->left > d->max_message - d->msg.n)
            return bad(d, WS_TOO_BIG, "message too large");
        if (d->op != WS_CONT)
            d->msg_op = d->op;
    }
    d->in_payload = true;
    d->mask_at = 0;
    d->nctl = 0;
    return WS_DEC_MORE;
}

static void unmask(struct ws_dec *d, char *p, size_t n)
{
    if (!d->want_mask)
        return;
    unsigned at = d->mask_at;
    size_t i = 0;
    for (; i < n && (at & 3); i++)
        p[i] = (char)((unsigned char)p[i] ^ d->mask[at++ & 3]);
    uint32_t m4;
    memcpy(&m4, d->mask, 4);
    uint64_t m8 = (uint64_t)m4 << 32 | m4;
    for (; i + 8 <= n; i += 8) {
        uint64_t v;
        memcpy(&v, p + i, 8);
        v ^= m8;
        memcpy(p + i, &v, 8);
    }
    for (; i < n; i++)
        p[i] = (char)((unsigned char)p[i] ^ d->mask[at++ & 3]);
    d->mask_at = (unsigned)((d->mask_at + n) & 3);
}

static bool close_code_ok(int c) /* RFC 6455 7.4 */
{
    return (c >= 1000 && c <= 1003) || (c >= 1007 && c <= 1014) || (c >= 3000 && c <= 4999);
}

static enum ws_dec_state frame_done(struct ws_dec *d, struct ws_event *ev)
{
    d->in_payload = false;
    d->nhead = 0;
    d->need = 2;
    *ev = (struct ws_event){.op = (enum ws_op)d->op};
    if (is_control(d->op)) {
        ev->data = (struct str){(char *)d->ctl, d->nctl};
        if (d->op != WS_CLOSE)
            return WS_DEC_EVENT;
        ev->code = WS_NO_STATUS;
        if (d->nctl == 1)
            return bad(d, WS_PROTOCOL, "malformed close frame");
        if (d->nctl >= 2) {
            ev->code = d->ctl[0] << 8 | d->ctl[1];
            ev->data.p += 2, ev->data.n -= 2;
            if (!close_code_ok(ev->code))
                return bad(d, WS_PROTOCOL, "invalid close code");
            if (!utf8_ok(ev->data.p, ev->data.n))
                return bad(d, WS_BAD_DATA, "close reason is not UTF-8");
        }
        return WS_DEC_EVENT;
    }
    if (!d->fin)
        return WS_DEC_MORE;
    ev->op = (enum ws_op)d->msg_op;
    d->msg_op = 0;
    buf_reserve(&d->msg, 0);
    d->msg.p[d->msg.n] = 0;
    ev->data = (struct str){d->msg.p, d->msg.n};
    if (ev->op == WS_TEXT && !utf8_ok(ev->data.p, ev->data.n))
        return bad(d, WS_BAD_DATA, "text is not UTF-8");
    return WS_DEC_EVENT;
}

enum ws_dec_state ws_dec_push(struct ws_dec *d, const char *in, size_t n, size_t *used, struct ws_event *ev)
{
    *used = 0;
    if (d->why)
        return WS_DEC_ERROR;
    if (!d->msg_op && d->msg.n) { /* handed out by the push before */
        if (d->msg.cap > 65536)
            buf_free(&d->msg);
        d->msg.n = 0;
    }
    for (;;) {
        if (!d->in_payload) {
            while (d->nhead < d->need && *used < n)
                d->head[d->nhead++] = (unsigned char)in[(*used)++];
            if (d->nhead < d->need)
                return WS_DEC_MORE;
            if (head_step(d) == WS_DEC_ERROR)
                return WS_DEC_ERROR;
            continue;
        }
        size_t take = n - *used < d->left ? n - *used : (size_t)d->left;
        if (take) {
            if (is_control(d->op)) {
                memcpy(d->ctl + d->nctl, in + *used, take); /* at most 125, see head_step */
                unmask(d, (char *)d->ctl + d->nctl, take);
                d->nctl += (unsigned)take;
            } else {
                buf_put(&d->msg, in + *used, take); /* bounded by max_message */
                unmask(d, d->msg.p + d->msg.n - take, take);
            }
            *used += take;
            d->left -= take;
        }
        if (d->left)
            return WS_DEC_MORE;
        enum ws_dec_state r = frame_done(d, ev);
        if (r != WS_DEC_MORE)
            return r;
    }
}

void ws_frame(struct buf *out, enum ws_op op, const void *p, size_t n, bool mask)
{
    unsigned char h[14];
    size_t nh = 2;
    h[0] = (unsigned char)(0x80 | op);
    h[1] = mask ? 0x80 : 0;
    if (n < 126) {
        h[1] |= (unsigned char)n;
    } else if (n < 65536) {
        h[1] |= 126, h[2] = (unsigned char)(n >> 8), h[3] = (unsigned char)n;
        nh = 4;
    } else {
        h[1] |= 127;
        put_be64(h + 2, n);
        nh = 10;
    }
    if (mask) {
        random_bytes(h + nh, 4);
        nh += 4;
    }
    buf_reserve(out, nh + n);
    buf_put(out, h, nh);
    size_t at = out->n;
    buf_put(out, p, n);
    if (mask)
        for (size_t i = 0; i < n; i++)
            out->p[at + i] = (char)((unsigned char)out->p[at + i] ^ h[nh - 4 + (i & 3)]);
}

void ws_accept_key(struct str key, char out[29])
{
    auto_buf b = {0}, e = {0};
    unsigned char digest[20];
    buf_put(&b, key.p, key.n);
    buf_puts(&b, "258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    sha1(b.p, b.n, digest);
    base64_encode(digest, sizeof digest, &e);
    memcpy(out, e.p, 28);
    out[28] = 0;
}
