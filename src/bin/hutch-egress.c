/* hutch-egress: the network gate. Composition root: everything that needs root
 * or the host's files is done here first, then both are given up for good, and
 * only then is a byte read that came from a sandbox. */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/ours.h"
#include "base/version.h"
#include "crypto/tls.h"
#include "crypto/x509.h"
#include "gate/gate.h"
#include "jail/privs.h"
#include "jail/seccomp.h"
#include "loop/loop.h"
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define FILES_MAX 65536 /* descriptors, if the hard limit allows */

struct options {
    const char *run, *log, *share, *ca_file;
    uint64_t uid, allow_uid;
    struct resolver_addr resolver[RESOLVERS_MAX];
    size_t nresolvers;
};

static int usage(void)
{
    (void)fprintf(stderr, "usage: hutch-egress --run DIR --log DIR --share DIR --uid N --allow-uid N [--resolver ADDR]... [--ca-file FILE]\n");
    return 64;
}
static bool parse(int argc, char **argv, struct options *o)
{
    for (int i = 1; i < argc; i += 2) {
        const char *k = argv[i], *v = argv[i + 1];
        if (i + 1 >= argc)
            return false;
        if (!strcmp(k, "--run"))
            o->run = v;
        else if (!strcmp(k, "--log"))
            o->log = v;
        else if (!strcmp(k, "--share"))
            o->share = v;
        else if (!strcmp(k, "--ca-file"))
            o->ca_file = v;
        else if (!strcmp(k, "--uid")) {
            if (!str_u64(str_of(v), &o->uid))
                return false;
        } else if (!strcmp(k, "--allow-uid")) {
            if (!str_u64(str_of(v), &o->allow_uid))
                return false;
        } else if (!strcmp(k, "--resolver")) {
            if (o->nresolvers == RESOLVERS_MAX || !resolver_addr_parse(str_of(v), &o->resolver[o->nresolvers++]))
                return false;
        } else
            return false;
    }
    return o->run && o->log && o->share && o->run[0] == '/' && o->log[0] == '/' && strlen(o->run) < 80 && strlen(o->share) < 256 && o->uid &&
           o->uid < 0xfffffffe && o->allow_uid < 0xfffffffe;
}

/* ---- while still root ------------------------------------------------------------------------------------------------ */

/* Held until the process ends: one gate per run directory. */
static int take_lock(const struct options *o, int run, struct err *e)
{
    auto_fd fd = ours_file(run, "egress.lock", O_RDWR, e);
    if (fd < 0)
        return -1;
    if (flock(fd, LOCK_EX | LOCK_NB))
        return err_set(e, E_CONFLICT, "another hutch-egress is serving %s", o->run);
    return take_fd(&fd);
}
/* Its mode is that of the descriptor it is bound to; its owner is changed before anybody can find it under its name. */
static int listen_control(const struct options *o, int run, struct err *e)
{
    static const char made[] = "egress.new";
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    auto_fd fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    (void)snprintf(un.sun_path, sizeof un.sun_path, "%s/%s", o->run, made);
    (void)unlinkat(run, made, 0); /* we hold the lock: nobody listens there */
    if (fd < 0 || fchmod(fd, 0600) || bind(fd, (void *)&un, sizeof un) || listen(fd, 8))
        return err_sys(e, errno, "control socket %s", un.sun_path);
    if (ours_give_socket(run, made, (uid_t)o->allow_uid, e))
        return -1;
    return renameat(run, made, run, "egress.sock")
               ? err_sys(e, errno, "control socket %s", un.sun_path)
               : take_fd(&fd);
}
/* Files are the gate's, readable by the daemon's group: the set-group bit hands it on. */
static int open_log(const struct options *o, struct err *e)
{
    const struct owner gate = {(uid_t)o->uid, (gid_t)o->allow_uid, 02750};
    const char *slash = strrchr(o->log, '/');
    auto_free char *dir = xasprintf("%.*s", (int)(slash - o->log) + 1, o->log);
    auto_fd top = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (top < 0)
        return err_sys(e, errno, "log directory %s", dir);
    int fd = ours_place(top, dir, e) ? -1 : ours_dir(top, slash + 1, &gate, (uid_t)o->uid, e);
    return fd < 0 ? err_wrap(e, "log directory") : fd;
}
static void host_resolvers(struct options *o)
{
    if (o->nresolvers)
        return;
    auto_free char *text = fd_slurp_at(AT_FDCWD, "/etc/resolv.conf", 65536, NULL);
    if (text)
        o->nresolvers = resolv_conf_parse(text, o->resolver, RESOLVERS_MAX);
    if (!o->nresolvers)
        log_warn("no DNS resolver is configured: names will not resolve in sandboxes until there is one");
}
static struct tls_trust *host_trust(const struct options *o, struct err *e)
{
    const char *files[2], *own = tls_trust_file();
    int n = 0;
    if (own)
        files[n++] = own;
    if (o->ca_file)
        files[n++] = o->ca_file;
    if (!n)
        log_warn("the host has no certificate bundle: hosts that need interception cannot be reached");
    return tls_trust_new(files, n, e);
}
/* One handshake with ourselves, so that libcrypto has loaded all it loads late while it still can. */
static int warm_up(struct tls_trust *trust, struct err *e)
{
    auto_buf cert = {0}, key = {0};
    if (x509_ca_make("hutch-egress", 1, &cert, &key, e))
        return -1;
    struct tls_ca *ca = tls_ca_new((struct str){cert.p, cert.n}, (struct str){key.p, key.n}, e);
    struct tls *srv = ca ? tls_server_new(ca, "warm.invalid", e) : NULL, *cli = srv ? tls_client_new(trust, "warm.invalid", e) : NULL;
    for (int i = 0; cli && i < 4; i++) {
        auto_buf wire = {0}, back = {0};
        (void)tls_read(cli, NULL, 0); /* ends in "unknown authority", as it should */
        if (tls_take(cli, &wire))
            tls_feed(srv, wire.p, wire.n);
        (void)tls_read(srv, NULL, 0);
        if (tls_take(srv, &back))
            tls_feed(cli, back.p, back.n);
    }
    int rc = cli && tls_error(cli) ? 0 : cli ? err_set(e, E_INTERNAL, "libssl trusts an unsigned certificate") : -1;
    tls_free(cli), tls_free(srv);
    tls_ca_free(ca);
    return rc;
}

/* ---- giving it up --------------------------------------------------------------------------------------------------------- */

#ifdef __SANITIZE_ADDRESS__
enum { SANITIZED = 1 }; /* the leak checker wants /proc and traces this process: such a build is for tests only */
#else
enum { SANITIZED = 0 };
#endif

/* Do not reorder: the root first (needs CAP_SYS_CHROOT), ids before capabilities, the filter last. */
static int confine(const struct options *o, int log_dir, const struct seccomp_prog *filter, struct err *e)
{
    if (!SANITIZED && (fchdir(log_dir) || chroot(".") || chdir("/")))
        return err_sys(e, errno, "chroot into the log directory");
    if (privs_limits(FILES_MAX, 8u << 20, e) || privs_bound(CAPS_NONE, e) || privs_ids((uid_t)o->uid, (gid_t)o->uid, e) ||
        privs_caps(CAPS_NONE, e) || privs_no_new(e))
        return -1;
    umask(027);
    if (SANITIZED) {
        log_warn("a sanitizer build: not confined");
        return prctl(PR_SET_DUMPABLE, 1) ? err_sys(e, errno, "PR_SET_DUMPABLE") : 0;
    }
    if (prctl(PR_SET_DUMPABLE, 0))
        return err_sys(e, errno, "PR_SET_DUMPABLE");
    return seccomp_install(filter, e);
}

static void on_term(void *arg) { loop_stop(arg); }

static int serve(struct options *o, struct err *e)
{
    char profile[300];
    struct seccomp_prog filter;
    host_resolvers(o);
    auto_fd run = open(o->run, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (run < 0)
        return err_sys(e, errno, "%s", o->run);
    auto_fd lock = ours_place(run, o->run, e) ? -1 : take_lock(o, run, e);
    if (lock < 0)
        return -1;
    struct tls_trust *trust = host_trust(o, e);
    (void)snprintf(profile, sizeof profile, "%s/seccomp/egress.profile", o->share);
    auto_fd log = -1, control = -1;
    if (!trust || warm_up(trust, e) || seccomp_load(profile, &filter, e) || (log = open_log(o, e)) < 0 || (control = listen_control(o, run, e)) < 0)
        return -1;
    struct loop *loop = loop_new();
    struct sig term, intr;
    sig_start(&term, loop, SIGTERM, on_term, loop);
    sig_start(&intr, loop, SIGINT, on_term, loop);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
    if (confine(o, log, &filter, e))
        return -1;
    seccomp_free(&filter);
    struct gate_setup setup = {.loop = loop, .control_fd = take_fd(&control), .allow_uid = (uid_t)o->allow_uid, .log_dir = take_fd(&log),
                               .trust = trust, .resolvers = o->resolver, .nresolvers = o->nresolvers};
    struct gate *g = gate_new(&setup, e);
    if (!g)
        return -1;
    log_info("ready: %zu resolvers", o->nresolvers);
    loop_run(loop);
    gate_free(g);
    sig_stop(&term), sig_stop(&intr);
    loop_free(loop);
    return 0;
}

int main(int argc, char **argv)
{
    struct options o = {0};
    struct err e = {0};
    if (argc == 2 && !strcmp(argv[1], "--version")) {
        printf("hutch-egress %s\n", version_full);
        return 0;
    }
    if (!parse(argc, argv, &o))
        return usage();
    log_init("hutch-egress", LOG_INFO);
    if (geteuid()) {
        log_error("hutch-egress must be started as root (it drops root before it serves)");
        return err_exit(E_DENIED);
    }
    if (serve(&o, &e)) {
        log_error("%s", e.msg);
        return err_exit(e.code);
    }
    return 0;
}
