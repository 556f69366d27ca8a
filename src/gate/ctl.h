/* The control protocol between hutchd and hutch-egress. hutch-egress listens on
 * $HUTCH_RUN/egress.sock (SEQPACKET) and takes connections of root and of the
 * daemon's uid only; the newest connection wins. It keeps its boxes when the
 * daemon goes away and serves them on; a daemon that (re)connects adds all its
 * boxes again (an unchanged GATE_ADD cuts nothing) and removes those it does
 * not know (GATE_LIST). A hutch-egress that (re)starts knows no boxes: the daemon
 * sees the connection end, connects again and adds them.
 *
 * One message = struct gate_head + a record (wire/rec.h), at most GATE_MSG_MAX
 * bytes, descriptors beside it. A request has a serial that is not 0; its reply
 * has the same op and serial, `code` (base/err.h) and G_MESSAGE on failure.
 * Messages from hutch-egress with serial 0 are records (GATE_RECORD).
 * Both ends are ours, but hutch-egress parses what guests send, so hutchd treats
 * what it says as untrusted text: bounded, well-formed UTF-8, nothing more.
 * hutchd uses gate/client.h, not this file.
 *
 * The program, started as root in the host's network namespace by hutch-spawn:
 *   hutch-egress --run DIR --log DIR --share DIR --uid N --allow-uid M [--resolver ADDR]… [--ca-file FILE]
 * It makes DIR/egress.sock (of M) and the log directory (of N, group M), takes DIR/egress.lock, loads the host's trust store,
 * resolv.conf and share/seccomp/egress.profile, gives up root, and only then serves. It ends on SIGTERM. */
#pragma once
#include <stdint.h>

#define GATE_VERSION 1
#define GATE_MSG_MAX (160u * 1024)
#define GATE_SECRET_MAX 8192u /* bytes of one secret */

struct gate_head { uint16_t version, op; uint32_t serial; int32_t code; uint32_t zero; };

enum gate_op {
    GATE_HELLO = 1, /* -> G_PID, G_COUNT boxes. First message of a connection. */
    /* A box, or the new state of one that is known: G_BOX, G_SANDBOX (id for log and records), G_POLICY (JSON), [G_CEILING*:
     * nested {G_NAME, G_POLICY}], [G_GROUP*: the host's, the tenant's], [G_CA_CERT, G_CA_KEY: PEM], [G_SOCK*: enum gate_sock, one descriptor each,
     * in order]. Sockets replace all earlier ones of the box if there is at least one. Replied when it is in force.
     * -> G_COUNT connections that were cut because the new policy denies them. */
    GATE_ADD,
    GATE_POLICY,    /* live update: G_BOX, G_POLICY, [G_CEILING*], [G_CA_CERT, G_CA_KEY] -> G_COUNT connections cut */
    GATE_REMOVE,    /* G_BOX: all its connections are cut, the log is finished; unknown box: no error */
    GATE_LIST,      /* -> G_BOX* */
    GATE_STATS,     /* [G_BOX; absent: all] -> G_STAT*: nested {G_BOX, G_CONNS, G_TOTAL, G_DENIED, G_IN, G_OUT, G_DNS, G_DNS_DENIED,
                     * G_SEQ, G_HASH of the last log line} */
    GATE_GROUP,     /* G_GROUP, [G_CONNS, G_RATE bytes/s, G_BYTES: a day: limits over all its boxes; 0 none] */
    GATE_SECRET,    /* G_NAME id, G_VALUE, [G_CALLS_MAX, G_BYTES_MAX: budget, 0 none], [G_CALLS, G_BYTES: used before]; replaces */
    GATE_SECRET_DROP,  /* G_NAME */
    GATE_SECRET_STATS, /* [G_NAME] -> G_STAT*: nested {G_NAME, G_CALLS, G_BYTES} */
    GATE_CONFIG,    /* [G_RESOLVER*: "address" or "address:port"], [G_LOG_BYTES per file], [G_LOG_FILES per sandbox],
                     * [G_LOG_DAYS after which what was not written to since goes; 0 never], [G_LOG_SANDBOXES that are gone and still have logs; 0: no limit], [G_VIA*: nested {G_NAME hosts, G_ADDR
                     * "address:port", [G_VALUE Proxy-Authorization], [G_COUNT 1: by name]}: the host's proxies, gate/via.h; all of them],
                     * [G_DIRECT*: what needs none], [G_UDP_IDLE seconds] */
    GATE_RECORD,    /* from hutch-egress: G_BOX, G_SANDBOX, G_KIND, G_SEQ, G_TIME_NS, and what applies of G_CONN, G_NAME, G_TYPE, G_ADDR, G_PORT,
                     * G_METHOD, G_PATH, G_STATUS, G_IN, G_OUT, G_MS, G_VERDICT, G_RULE, G_REASON, G_SECRET; G_LOST: records not sent
                     * before this one because the daemon did not read (they are in the log file) */
    GATE_OP_MAX
};

/* Sockets that hutch-spawn opens inside the box's network namespace. */
enum gate_sock {
    GATE_SOCK_TCP = 1,  /* listening, v4 or v6 (V6ONLY): nft redirects every TCP connection here; SO_ORIGINAL_DST tells where to */
    GATE_SOCK_PROXY,    /* listening: explicit proxy (HTTP CONNECT and absolute form), for HTTP_PROXY/HTTPS_PROXY */
    GATE_SOCK_DNS_UDP,  /* bound; nft redirects UDP port 53 here */
    GATE_SOCK_DNS_TCP,  /* listening; nft redirects TCP port 53 here */
    GATE_SOCK_UDP,      /* bound, transparent; nft leads every other datagram here as it is */
    GATE_SOCK_UDP_BACK, /* raw UDP, transparent: answers, from whoever was asked */
    GATE_SOCK_UDP_NO,   /* raw ICMP or ICMPv6, transparent: refusals */
    GATE_SOCK_MAX
};

enum gate_kind { /* of a record; in the log file by its name */
    GATE_K_DNS = 1,  /* "dns": a question */
    GATE_K_OPEN,     /* "open": a connection was allowed and made */
    GATE_K_CLOSE,    /* "close": it ended; bytes and duration */
    GATE_K_DENY,     /* "deny": a connection or request was refused */
    GATE_K_HTTP,     /* "http": a request inside a connection that is looked into; secret named if one was put in */
    GATE_K_FAIL,     /* "fail": allowed, but the far end could not be reached or broke the protocol */
    GATE_K_CUT,      /* "cut": an open connection ended by a policy update, a limit or the end of the box */
    GATE_K_POLICY,   /* "policy": a policy came into force */
    GATE_K_MAX
};

enum gate_tag {
    G_MESSAGE = 1, G_PID, G_COUNT, G_BOX, G_SANDBOX, G_POLICY, G_CEILING, G_NAME, G_GROUP, G_CA_CERT, G_CA_KEY, G_SOCK, G_STAT, G_CONNS,
    G_TOTAL, G_DENIED, G_IN, G_OUT, G_DNS, G_DNS_DENIED, G_SEQ, G_HASH, G_RATE, G_BYTES, G_VALUE, G_CALLS_MAX, G_BYTES_MAX, G_CALLS,
    G_RESOLVER, G_LOG_BYTES, G_LOG_FILES, G_KIND, G_TIME_NS, G_CONN, G_TYPE, G_ADDR, G_PORT, G_METHOD, G_PATH, G_STATUS, G_MS, G_VERDICT,
    G_RULE, G_REASON, G_SECRET, G_LOST, G_LOG_DAYS, G_VIA, G_DIRECT, G_UDP_IDLE, G_LOG_SANDBOXES,
};
