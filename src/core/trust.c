#include "core/trust.h"
#include "base/buf.h"
#include "core/agent.h"
#include <stdlib.h>

#define BUNDLE   "/etc/ssl/certs/ca-certificates.crt"
/* certifi's own copies too: programs that ask it for its file look at no environment. */
#define CERTIFI  "/usr/lib/python3*/dist-packages/certifi/cacert.pem /usr/local/lib/python3*/*-packages/certifi/cacert.pem " \
                 "/usr/local/lib/python3*/*-packages/pip/_vendor/certifi/cacert.pem /opt/*/lib/python3*/site-packages/certifi/cacert.pem"
#define BUNDLES  BUNDLE " /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/ca-bundle.pem /etc/ssl/cert.pem " CERTIFI
#define KEYSTORES "/etc/ssl/certs/java/cacerts /usr/lib/jvm/*/lib/security/cacerts"
#define TRUST_MS 60000
#define CA       "/etc/hutch/ca.pem"

/* Runs inside, as root, with the certificate as $1. Again: replaces what it put there before. */
static const char script[] =
    "set -e\n"
    "umask 022\n"
    "mkdir -p /etc/hutch /etc/ssl/certs /usr/local/share/ca-certificates\n"
    "printf '%s' \"$1\" >" CA "\n"
    "cp " CA " /usr/local/share/ca-certificates/hutch-gate.crt\n"
    "[ -e " BUNDLE " ] || : >" BUNDLE "\n"
    "for b in " BUNDLES "; do\n"
    "  [ -f \"$b\" ] || continue\n"
    "  { sed '/^# hutch gate$/,/^# hutch gate end$/d' \"$b\"; echo '# hutch gate'; cat " CA "; echo '# hutch gate end'; } >/etc/hutch/bundle\n"
    "  cat /etc/hutch/bundle >\"$b\"\n"
    "done\n"
    "rm -f /etc/hutch/bundle\n"
    "if command -v openssl >/dev/null 2>&1; then\n"
    "  ln -sf " CA " \"/etc/ssl/certs/$(openssl x509 -noout -hash -in " CA ").0\"\n"
    "fi\n"
    "if command -v keytool >/dev/null 2>&1; then\n"
    "  for k in " KEYSTORES "; do\n"
    "    [ -f \"$k\" ] || continue\n"
    "    keytool -delete -alias hutch-gate -keystore \"$k\" -storepass changeit >/dev/null 2>&1 || :\n"
    "    keytool -importcert -noprompt -alias hutch-gate -file " CA " -keystore \"$k\" -storepass changeit >/dev/null 2>&1 || :\n"
    "  done\n"
    "fi\n";

const char trust_undo[] =
    "if [ -f " CA " ]; then\n"
    "  for b in " BUNDLES "; do\n"
    "    [ -f \"$b\" ] || continue\n"
    "    awk 'NR == FNR { ca = ca $0 \"\\n\"; next } /^# hutch gate/ { next } /-----BEGIN/ { cert = \"\"; within = 1 }\n"
    "      within { cert = cert $0 \"\\n\" } !within { print } /-----END/ { within = 0; if (cert != ca) printf \"%s\", cert }' " CA " \"$b\" >/etc/hutch/bundle &&\n"
    "      cat /etc/hutch/bundle >\"$b\"\n"
    "  done\n"
    "  rm -f /etc/hutch/bundle /usr/local/share/ca-certificates/hutch-gate.crt /etc/ssl/certs/hutch-gate.pem " CA "\n"
    "  find -L /etc/ssl/certs -type l -exec rm -f {} +\n" /* links to it, which lead nowhere now */
    "  if command -v keytool >/dev/null 2>&1; then for k in " KEYSTORES "; do\n"
    "    [ -f \"$k\" ] && keytool -delete -alias hutch-gate -keystore \"$k\" -storepass changeit >/dev/null 2>&1\n"
    "  done; fi\n"
    "fi\n";

struct trust { struct call *call; bool ok; void (*done)(void *arg, const struct err *e); void *arg; };

static void on_event(void *arg, uint8_t ev, struct rec r)
{
    struct trust *t = arg;
    if (ev == EV_EXIT)
        t->ok = rec_u64_or(r, T_EXIT_KIND, 0) == EXIT_CODE && rec_u64_or(r, T_EXIT_CODE, 1) == 0;
}
static void on_data(void *arg, uint8_t chan, const unsigned char *p, size_t n)
{
    struct trust *t = arg;
    (void)chan, (void)p;
    call_credit(t->call, n);
}
static void on_done(void *arg, const struct err *e, struct rec r)
{
    struct trust t = *(struct trust *)arg;
    struct err why;
    (void)r;
    free(arg);
    if (e || !t.ok)
        err_set(&why, e ? e->code : E_GUEST, "the gate's certificate could not be put into the sandbox's trust stores%s%s", e ? ": " : "", e ? e->msg : "");
    t.done(t.arg, e || !t.ok ? &why : NULL);
}

int trust_install(struct agent *a, const char *pem, void (*done)(void *arg, const struct err *e), void *arg, struct err *e)
{
    static const struct call_ops ops = {.event = on_event, .data = on_data, .done = on_done};
    const char *const argv[] = {"/bin/sh", "-c", script, "trust", pem};
    struct trust *t = xcalloc(1, sizeof *t);
    auto_buf b = {0};
    *t = (struct trust){.done = done, .arg = arg};
    for (size_t i = 0; i < sizeof argv / sizeof *argv; i++)
        rec_put_str(&b, T_ARG, argv[i]);
    rec_put_str(&b, T_USER, "root");
    rec_put_u64(&b, T_TIMEOUT_MS, TRUST_MS);
    rec_put_u64(&b, T_CREDIT, 65536);
    if ((t->call = agent_call(a, OP_START, &b, &ops, t, e)))
        return 0;
    free(t);
    return -1;
}

void trust_env(struct kv *env)
{
    static const char *const bundle[] = {"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO", "AWS_CA_BUNDLE"};
    for (size_t i = 0; i < sizeof bundle / sizeof *bundle; i++)
        kv_set(env, str_of(bundle[i]), S(BUNDLE));
    kv_set(env, S("NODE_EXTRA_CA_CERTS"), S(CA));
    kv_set(env, S("npm_config_cafile"), S(BUNDLE));
}
