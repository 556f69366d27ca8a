/* hutch tls self-signed|show: certificates of this machine's daemon, as files.
 * Made here and not by the openssl program: it would be one more thing to
 * install on a server, and its configuration files differ. */
#include "base/cleanup.h"
#include "base/conf.h"
#include "base/fd.h"
#include "cli/args.h"
#include "cli/client.h"
#include "cli/cmds.h"
#include "cli/out.h"
#include "crypto/x509.h"
#include "tls/files.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CA_DAYS     3650
#define SERVER_DAYS 397 /* what browsers take at most */
#define NAMES_MAX   100
#define PEM_MAX     (1u << 20)

/* What hutchd would read: the environment, then its file of settings. */
static const char *setting(const struct conf *c, const char *name)
{
    const char *v = getenv(name);
    return v && *v ? v : (v = conf_get(c, name)) && *v ? v : NULL;
}

/* ---- self-signed ---- */
struct names {
    char *at[NAMES_MAX];
    int n;
};
static void names_free(struct names *s)
{
    for (int i = 0; i < s->n; i++)
        free(s->at[i]);
}
static void add_once(struct names *s, const char *name)
{
    for (int i = 0; i < s->n; i++)
        if (!strcasecmp(s->at[i], name))
            return;
    if (s->n < NAMES_MAX)
        s->at[s->n++] = xstrdup(name);
}
/* A name, and everything below it: sandboxes' ports are {port}-{id}.NAME. */
static int add_name(struct cli *x, struct names *s, const char *name)
{
    if (!x509_name_ok(name))
        return err_set(&x->err, E_INVALID, "'%.100s' is not a host name or address", name);
    if (s->n + 5 > NAMES_MAX)
        return err_set(&x->err, E_INVALID, "more than %d names", NAMES_MAX / 2);
    add_once(s, name);
    auto_free char *below = xasprintf("*.%s", name);
    if (!x509_is_address(name) && strchr(name, '.') &&
        *name != '*') /* no client takes a star right before a top-level name */
        add_once(s, below);
    return 0;
}
static int add_settings(struct cli *x, struct names *s, const struct conf *c)
{
    static const char *const vars[] = {"HUTCH_DOMAIN", "HUTCH_HOSTS"};
    for (size_t i = 0; i < sizeof vars / sizeof *vars; i++) {
        const char *value = setting(c, vars[i]);
        auto_free char *list = xstrdup(value ? value : "");
        char *rest = NULL;
        for (char *w = strtok_r(list, ", ", &rest); w; w = strtok_r(NULL, ", ", &rest)) {
            w[strcspn(w, ":")] = 0; /* a domain may have a port */
            if (add_name(x, s, w))
                return err_wrap(&x->err, "%s", vars[i]);
        }
    }
    return s->n ? 0 : add_name(x, s, "hutch.localhost");
}
static int collect(struct cli *x, struct args *a, const struct conf *c, struct names *s)
{
    static const char *const always[] = {"localhost", "127.0.0.1", "::1"};
    const char *name;
    int i = 0;
    while ((name = args_list(a, "name", &i)))
        if (add_name(x, s, name))
            return -1;
    if (!s->n && add_settings(x, s, c))
        return -1;
    for (size_t k = 0; k < sizeof always / sizeof *always; k++)
        add_once(s, always[k]);
    return 0;
}

/* The folder, not through a link: it lies in a home that is not root's. */
static int open_folder(struct cli *x, const char *path)
{
    struct stat st;
    if (mkdir(x->home, 0711) && errno != EEXIST)
        return err_sys(&x->err, errno, "cannot make %.150s", x->home);
    if (mkdir(path, 0755) && errno != EEXIST)
        return err_sys(&x->err, errno, "cannot make %.150s", path);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_sys(&x->err, errno, "cannot open %.150s", path);
    if (!fstat(fd, &st) && st.st_uid == geteuid())
        return fd;
    (void)close(fd);
    return err_set(&x->err, E_DENIED, "%.150s belongs to somebody else", path);
}
/* Beside its place, then renamed: the daemon never reads half a file. */
static int put_file(struct cli *x, int dir, const char *name, const struct buf *b, mode_t mode,
                    uid_t owner)
{
    auto_free char *tmp = xasprintf(".%s.%d", name, (int)getpid());
    auto_fd fd = openat(dir, tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0 && fd_write_all(fd, b->p, b->n) && !fchmod(fd, mode) &&
        (geteuid() || !fchown(fd, owner, owner)) && !fsync(fd) && !renameat(dir, tmp, dir, name))
        return 0;
    int why = errno;
    if (fd >= 0)
        (void)unlinkat(dir, tmp, 0);
    return err_sys(&x->err, why, "cannot write %s", name);
}
static int get_file(int dir, const char *name, struct buf *out)
{
    size_t n;
    auto_free char *p = fd_slurp_at(dir, name, PEM_MAX, &n);
    if (p)
        buf_put(out, p, n);
    return p ? 0 : -1;
}

/* The authority that clients trust already, or a new one. Its key stays root's. */
static int authority(struct cli *x, int dir, struct buf *cert, struct buf *key)
{
    char host[65] = "", cn[96];
    if (!get_file(dir, "ca.pem", cert)) {
        if (get_file(dir, "ca.key", key))
            return err_set(&x->err, E_CONFLICT,
                           "ca.pem is there, ca.key is not: remove ca.pem to begin anew");
        return x509_ca_check((struct str){cert->p, cert->n}, (struct str){key->p, key->n}, &x->err);
    }
    (void)gethostname(host, sizeof host - 1);
    (void)snprintf(cn, sizeof cn, "hutch on %.50s", host);
    if (x509_ca_make(cn, CA_DAYS, cert, key, &x->err))
        return -1;
    return put_file(x, dir, "ca.key", key, 0600, geteuid()) ||
                   put_file(x, dir, "ca.pem", cert, 0644, geteuid())
               ? -1
               : 0;
}

static void explain(const char *folder, const struct names *s, const struct conf *c)
{
    (void)printf("made %s/server.pem for", folder);
    for (int i = 0; i < s->n; i++)
        (void)printf("%s %s", i ? "," : "", s->at[i]);
    (void)printf("\n\nsettings of the daemon (in %s), then start it again:\n"
                 "  HUTCH_TLS_CERT=%s/server.pem\n  HUTCH_TLS_KEY=%s/server.key\n",
                 conf_path() ? conf_path() : "its environment", folder, folder);
    if (!setting(c, "HUTCH_DOMAIN") && strchr(s->at[0], '.') && s->n > 1 &&
        !strncmp(s->at[1], "*.", 2))
        (void)printf("  HUTCH_DOMAIN=%s\n", s->at[0]);
    (void)printf("\nclients must trust %s/ca.pem:\n"
                 "  hutch    HUTCH_CA=%s/ca.pem    (or hutch --cacert FILE)\n"
                 "  curl     --cacert %s/ca.pem\n"
                 "  Node.js  NODE_EXTRA_CA_CERTS=%s/ca.pem\n"
                 "  Python   SSL_CERT_FILE=%s/ca.pem    (requests: REQUESTS_CA_BUNDLE)\n",
                 folder, folder, folder, folder, folder);
}

static int exec_self_signed(struct cli *x, struct args *a)
{
    struct err ignored;
    auto_conf c = {0};
    auto_buf ca = {0}, ca_key = {0}, cert = {0}, key = {0};
    struct names s = {0};
    auto_free char *folder = xasprintf("%s/tls", x->home);
    (void)conf_load(&c, &ignored); /* hutchd says what is wrong with it */
    const char *uid = setting(&c, "HUTCH_UID");
    uid_t owner = uid ? (uid_t)strtoul(uid, NULL, 10) : CONF_UID;
    auto_fd dir = -1;
    int rc = collect(x, a, &c, &s);
    if (!rc)
        rc = (dir = open_folder(x, folder)) < 0 ? -1 : authority(x, dir, &ca, &ca_key);
    if (!rc)
        rc = x509_server_make((struct str){ca.p, ca.n}, (struct str){ca_key.p, ca_key.n},
                              (const char *const *)s.at, s.n, SERVER_DAYS, &cert, &key, &x->err);
    /* The key first: a daemon that looks in between finds a pair that does not belong together, and waits for the second. */
    if (!rc)
        rc = put_file(x, dir, "server.key", &key, 0600, owner) ||
                     put_file(x, dir, "server.pem", &cert, 0644, owner)
                 ? -1
                 : 0;
    if (!rc)
        explain(folder, &s, &c);
    if (ca_key.p)
        explicit_bzero(ca_key.p, ca_key.n);
    if (key.p)
        explicit_bzero(key.p, key.n);
    names_free(&s);
    return rc ? cli_fail(x) : 0;
}

/* ---- show ---- */
static void show_json(const char *path, const struct x509_facts *f)
{
    auto_buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_str(&w, "file", path);
    jw_kv_str(&w, "subject", f->subject);
    jw_kv_str(&w, "issuer", f->issuer);
    jw_kv_str(&w, "names", f->names);
    jw_kv_str(&w, "valid_from", f->from);
    jw_kv_str(&w, "valid_until", f->to);
    jw_kv_i64(&w, "days_left", tls_days_left(f));
    jw_kv_str(&w, "sha256", f->sha256);
    jw_end(&w);
    (void)printf("%s\n", b.p);
}
static int exec_show(struct cli *x, struct args *a)
{
    struct err ignored;
    struct x509_facts f;
    auto_conf c = {0};
    (void)conf_load(&c, &ignored);
    auto_free char *made = xasprintf("%s/tls/server.pem", x->home);
    const char *set = setting(&c, "HUTCH_TLS_CERT"), *path = a->n ? a->v[0] : set ? set : made;
    if (tls_files_facts(path, &f, &x->err)) {
        if (!a->n && !set && x->err.sys == ENOENT)
            (void)snprintf(
                x->hint, sizeof x->hint,
                "HUTCH_TLS_CERT is not set; `hutch tls self-signed` makes a certificate");
        return cli_fail(x);
    }
    if (args_flag(a, "json")) {
        show_json(path, &f);
        return 0;
    }
    int left = tls_days_left(&f);
    char text[2][256];
    esc_text(str_of(f.subject), text[0], sizeof text[0]);
    esc_text(str_of(f.issuer), text[1], sizeof text[1]);
    (void)printf(
        "file      %s\nsubject   %s\nissuer    %s\nnames     %s\nvalid     %s to %s (%s%d days%s)\nsha256    %s\n",
        path, text[0], text[1], *f.names ? f.names : "none", f.from, f.to, left < 0 ? "ended " : "",
        left < 0 ? -left : left, left < 0 ? " ago" : " left", f.sha256);
    return 0;
}

static const struct opt self_opts[] = {
    {"name", 0, 'l', "HOST", "a name or address of this machine (may repeat); *.HOST is added",
     NULL},
    OPT_END};
static const struct opt show_opts[] = {OPT_JSON, OPT_END};
static const struct cmd tls_self = {
    .name = "self-signed",
    .usage = "[--name HOST]…",
    .help = "make a certificate, signed by an authority of this machine",
    .opts = self_opts,
    .exec = exec_self_signed};
static const struct cmd tls_show = {.name = "show",
                                    .usage = "[FILE]",
                                    .help = "show the daemon's certificate, or one in a file",
                                    .opts = show_opts,
                                    .max = 1,
                                    .words = "@file",
                                    .exec = exec_show};
static const struct cmd *const subs[] = {&tls_self, &tls_show, NULL};
const struct cmd cmd_tls = {
    .name = "tls", .usage = "self-signed|show", .help = "certificates for https", .sub = subs};
