#include "core/agent/trust.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/enc.h"
#include "base/log.h"
#include "core/agent/agent.h"
#include "image/jks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUNDLE "/etc/ssl/certs/ca-certificates.crt"
/* certifi's own copies too: programs that ask it for its file look at no environment. */
#define CERTIFI \
    "/usr/lib/python3*/dist-packages/certifi/cacert.pem /usr/local/lib/python3*/*-packages/certifi/cacert.pem " \
    "/usr/local/lib/python3*/*-packages/pip/_vendor/certifi/cacert.pem /opt/*/lib/python3*/site-packages/certifi/cacert.pem"
#define BUNDLES \
    BUNDLE " /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/ca-bundle.pem /etc/ssl/cert.pem " CERTIFI
#define KEYSTORES     "/etc/ssl/certs/java/cacerts /usr/lib/jvm/*/lib/security/cacerts"
#define CA            "/etc/hutch/ca.pem"
#define ALIAS         "hutch-gate"
#define JKS_DIR       "/etc/hutch/jks"     /* NAME.new: as we wrote it; NAME.old: as it was */
#define BY_KEYTOOL    "/etc/hutch/keytool" /* stores that keytool had to write */
#define KEYTOOL(verb) "keytool -" verb " -keystore \"$k\" -storepass changeit >/dev/null 2>&1"
#define TRUST_S \
    180 /* a Java machine may take a quarter of a minute to start under emulation, and keytool may need two */
#define STORES_MAX 8
#define OUT_MAX \
    (2 * JKS_MAX) /* of all stores together: it is the sandbox that says how much that is */
#define TEXT(n)  TEXT_(n)
#define TEXT_(n) #n

/* Every key store once, whatever links lead to it, as $k. */
#define EACH_KEYSTORE(body) \
    "seen=' '\n" \
    "for k in " KEYSTORES "; do\n" \
    "  [ -s \"$k\" ] || continue\n" \
    "  k=$(readlink -f \"$k\") || continue\n" \
    "  case $seen in *\" $k \"*) continue ;; esac\n" \
    "  seen=\"$seen$k \"\n" body "done\n"

/* Runs inside, as root, with the certificate as $1. Again: replaces what it put there before. Java's stores in its own format
 * come back ("jks SIZE PATH", then the bytes) and are written by the daemon, which takes no time; a store of another format
 * needs keytool, and that a Java machine. */
static const char script[] =
    "set -e\n"
    "umask 022\n"
    "mkdir -p /etc/hutch /etc/ssl/certs /usr/local/share/ca-certificates\n"
    "printf '%s' \"$1\" >" CA "\n"
    "cp " CA " /usr/local/share/ca-certificates/hutch-gate.crt\n"
    "[ -e " BUNDLE " ] || : >" BUNDLE "\n"
    "for b in " BUNDLES "; do\n"
    "  [ -f \"$b\" ] || continue\n"
    "  { sed '/^# hutch gate$/,/^# hutch gate end$/d' \"$b\"; echo '# hutch gate'; cat " CA
    "; echo '# hutch gate end'; } >/etc/hutch/bundle\n"
    "  cat /etc/hutch/bundle >\"$b\"\n"
    "done\n"
    "rm -f /etc/hutch/bundle\n"
    "if command -v openssl >/dev/null 2>&1; then\n"
    "  ln -sf " CA " \"/etc/ssl/certs/$(openssl x509 -noout -hash -in " CA ").0\"\n"
    "fi\n" EACH_KEYSTORE(
        "  if [ \"$(head -c 4 \"$k\" | od -An -tx1 | tr -d ' \\n')\" = feedfeed ]; then\n"
        "    n=$(($(wc -c <\"$k\")))\n"
        "    if [ $n -le $2 ]; then printf 'jks %s %s\\n' $n \"$k\"; head -c $n \"$k\"; fi\n"
        "  elif command -v keytool >/dev/null 2>&1; then\n"
        "    if grep -qxF \"$k\" " BY_KEYTOOL " 2>/dev/null; then " KEYTOOL(
            "delete -alias " ALIAS) " || :; fi\n"
                                    "    if " KEYTOOL(
                                        "importcert -noprompt -alias " ALIAS
                                        " -file " CA) "; then echo \"$k\" >>" BY_KEYTOOL "; fi\n"
                                                      "  fi\n");

/* $1: a key store, $2: its new size; the store comes by stdin. Java never sees half of one. */
static const char store_script[] =
    "set -e\n"
    "umask 022\n"
    "mkdir -p " JKS_DIR "\n"
    "n=" JKS_DIR "/$(printf %s \"$1\" | tr / _)\n"
    "cmp -s \"$1\" \"$n.new\" || cp -p \"$1\" \"$n.old\"\n"
    "cat >\"$n.new\"\n"
    "[ $(wc -c <\"$n.new\") -eq $2 ]\n"
    "{ cp -p \"$1\" \"$1.hutch\" && cat \"$n.new\" >\"$1.hutch\" && mv -f \"$1.hutch\" \"$1\"; } || { rm -f \"$1.hutch\"; exit 1; }\n";

/* A store that is as we left it gets back what it was. Others have our name in plain letters, ours or the one that
 * ca-certificates-java gives it; those keytool mends. */
const char trust_undo[] =
    "if [ -f " CA " ]; then\n"
    "  for b in " BUNDLES "; do\n"
    "    [ -f \"$b\" ] || continue\n"
    "    awk 'NR == FNR { ca = ca $0 \"\\n\"; next } /^# hutch gate/ { next } /-----BEGIN/ { cert = \"\"; within = 1 }\n"
    "      within { cert = cert $0 \"\\n\" } !within { print } /-----END/ { within = 0; if (cert != ca) printf \"%s\", cert }' " CA
    " \"$b\" >/etc/hutch/bundle &&\n"
    "      cat /etc/hutch/bundle >\"$b\"\n"
    "  done\n" EACH_KEYSTORE(
        "  n=" JKS_DIR "/$(printf %s \"$k\" | tr / _)\n"
        "  if cmp -s \"$k\" \"$n.new\"; then cp -p \"$n.old\" \"$k\"; fi\n"
        "  if grep -q hutch-gate \"$k\" || grep -qxF \"$k\" " BY_KEYTOOL " 2>/dev/null; then\n"
        "    " KEYTOOL(
            "delete -alias " ALIAS) "\n"
                                    "    " KEYTOOL(
                                        "delete -alias debian:hutch-gate.pem") "\n"
                                                                               "  fi\n") "  rm -rf /etc/hutch/bundle /usr/local/share/ca-certificates/hutch-gate.crt /etc/ssl/certs/hutch-gate.pem " CA
                                                                                         " " JKS_DIR
                                                                                         " " BY_KEYTOOL
                                                                                         "\n"
                                                                                         "  find -L /etc/ssl/certs -type l -exec rm -f {} +\n" /* links to it, which lead nowhere now */
                                                                                         "fi\n";

/* One certificate on its way in: first the script, then a command for each Java store that it brought back. */
struct trust {
    struct agent *agent;
    struct call *call;
    uint64_t exit_kind, exit_code;
    struct buf der, out,
        next;        /* the certificate; what the script said; what goes into the store now */
    size_t at, sent; /* of out, of next */
    int stores;
    int64_t until; /* for all of it: a policy may wait for this */
    void (*done)(void *arg, const struct err *e);
    void *arg;
};

static void over(struct trust *t, const struct err *e)
{
    struct trust last = *t;
    buf_free(&t->der), buf_free(&t->out), buf_free(&t->next);
    free(t);
    last.done(last.arg, e);
}

static void on_event(void *arg, uint8_t ev, struct rec r)
{
    struct trust *t = arg;
    if (ev == EV_EXIT)
        t->exit_kind = rec_u64_or(r, T_EXIT_KIND, 0), t->exit_code = rec_u64_or(r, T_EXIT_CODE, 1);
}
static void on_data(void *arg, uint8_t chan, const unsigned char *p, size_t n)
{
    struct trust *t = arg;
    if (chan == CH_STDOUT && !t->stores && t->out.n + n <= (size_t)OUT_MAX)
        buf_put(&t->out, p, n);
    call_credit(t->call, n);
}
static void on_room(void *arg)
{
    struct trust *t = arg;
    if (!t->next.n)
        return;
    while (t->sent < t->next.n) {
        size_t n = call_send(t->call, CH_STDIN, t->next.p + t->sent, t->next.n - t->sent);
        if (!n)
            return;
        t->sent += n;
    }
    t->next.n = 0;
    call_eof(t->call, CH_STDIN);
}

static void on_done(void *arg, const struct err *e, struct rec r);

static int run(struct trust *t, const char *const *argv, size_t n, struct err *e)
{
    static const struct call_ops ops = {
        .event = on_event, .data = on_data, .room = on_room, .done = on_done};
    auto_buf b = {0};
    t->exit_kind = t->exit_code = 0;
    for (size_t i = 0; i < n; i++)
        rec_put_str(&b, T_ARG, argv[i]);
    rec_put_str(&b, T_USER, "root");
    rec_put_u64(&b, T_STDIN, t->next.n > 0);
    int64_t left = (t->until - clock_mono()) / NS_PER_MS;
    rec_put_u64(&b, T_TIMEOUT_MS, left > 1 ? (uint64_t)left : 1);
    rec_put_u64(&b, T_CREDIT, 262144);
    if (!(t->call = agent_call(t->agent, OP_START, &b, &ops, t, e)))
        return -1;
    on_room(t); /* what the agent takes without a grant */
    return 0;
}

/* The next store of the script's answer: its path, NULL if there is none. What is not as promised ends it: it is the sandbox's. */
static char *next_store(struct trust *t, struct str *ret)
{
    const char *p = t->out.p + t->at,
               *nl = t->out.n > t->at ? memchr(p, '\n', t->out.n - t->at) : NULL;
    unsigned long size;
    int n = 0;
    if (!nl || t->stores == STORES_MAX || sscanf(p, "jks %lu /%n", &size, &n) != 1 || !n ||
        p + n > nl || size > t->out.n - (size_t)(nl + 1 - t->out.p))
        return NULL;
    *ret = (struct str){nl + 1, size};
    t->at = (size_t)(nl + 1 - t->out.p) + size;
    t->stores++;
    return xstrndup(p + n - 1, (size_t)(nl - p - n + 1));
}

static void next(struct trust *t)
{
    struct str store;
    struct err e;
    for (char *path; (path = next_store(t, &store)); free(path)) {
        char size[24];
        t->sent = 0;
        if (jks_trust(store, ALIAS, (struct str){t->der.p, t->der.n},
                      (uint64_t)(clock_wall() / NS_PER_MS), &t->next, &e)) {
            log_warn("network: %.200s in a sandbox: %s; programs in Java will not trust the gate",
                     path, e.msg);
            continue;
        }
        (void)snprintf(size, sizeof size, "%zu", t->next.n);
        const char *const argv[] = {"/bin/sh", "-c", store_script, "trust", path, size};
        int rc = run(t, argv, sizeof argv / sizeof *argv, &e);
        free(path);
        if (rc)
            over(t, &e);
        return;
    }
    over(t, NULL);
}

static void on_done(void *arg, const struct err *e, struct rec r)
{
    struct trust *t = arg;
    struct err why;
    (void)r;
    bool ok = !e && t->exit_kind == EXIT_CODE && !t->exit_code;
    t->next.n = 0;
    if (!e && t->exit_kind == EXIT_TIMEOUT) {
        err_why(
            &why, REASON_TRUST_STORE, E_TIMEOUT,
            "adding the gate's certificate to the sandbox's trust stores took longer than " TEXT(
                TRUST_S) " s: Java's keytool is slow, or the host is busy");
        over(t, &why);
    } else if (!ok && (e || !t->stores)) {
        err_why(&why, REASON_TRUST_STORE, e ? e->code : E_GUEST,
                "cannot add the gate's certificate to the sandbox's trust stores%s%s",
                e ? ": " : "", e ? e->msg : "");
        over(t, &why);
    } else {
        if (!ok)
            log_warn(
                "network: a Java key store in a sandbox could not be written; programs in Java will not trust the gate");
        next(t);
    }
}

/* What is between the lines of a PEM file. */
static int pem_der(const char *pem, struct buf *ret, struct err *e)
{
    static const char begin[] = "-----BEGIN CERTIFICATE-----", end[] = "-----END";
    const char *from = strstr(pem, begin), *to = from ? strstr(from, end) : NULL;
    auto_buf text = {0};
    for (const char *p = from ? from + sizeof begin - 1 : ""; to && p < to; p++)
        if (*p != '\n' && *p != '\r')
            buf_putc(&text, *p);
    return text.n && base64_decode(text.p, text.n, ret)
               ? 0
               : err_set(e, E_INTERNAL, "the gate's certificate is not PEM");
}

int trust_install(struct agent *a, const char *pem, void (*done)(void *arg, const struct err *e),
                  void *arg, struct err *e)
{
    const char *const argv[] = {"/bin/sh", "-c", script, "trust", pem, TEXT(JKS_MAX)};
    struct trust *t = xcalloc(1, sizeof *t);
    *t = (struct trust){
        .agent = a, .until = clock_mono() + TRUST_S * NS_PER_S, .done = done, .arg = arg};
    if (!pem_der(pem, &t->der, e) && !run(t, argv, sizeof argv / sizeof *argv, e))
        return 0;
    buf_free(&t->der);
    free(t);
    return -1;
}

void trust_env(struct kv *env)
{
    static const char *const bundle[] = {"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
                                         "PIP_CERT",      "GIT_SSL_CAINFO",     "AWS_CA_BUNDLE"};
    for (size_t i = 0; i < sizeof bundle / sizeof *bundle; i++)
        kv_set(env, str_of(bundle[i]), S(BUNDLE));
    kv_set(env, S("NODE_EXTRA_CA_CERTS"), S(CA));
    kv_set(env, S("npm_config_cafile"), S(BUNDLE));
}
