/* hutchd: the composition root. Starts hutch-spawn while it is still root,
 * gives up root, builds the objects and hands them to each other.
 *
 *   hutchd              run in the foreground (the CLI's `up` puts it behind)
 *   hutchd --doctor     report on this host as JSON and exit
 *   hutchd --settings   the table of settings (Markdown; =conf: a file to edit)
 *   hutchd --doors      every route and port that is served here, and what it asks for (docs/doors.md) */
#include "api/api.h"
#include "tier/vm/kvmprobe.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/notify.h"
#include "base/roff.h"
#include "base/version.h"
#include "core/core.h"
#include "core/doctor.h"
#include "core/host/settings.h"
#include "core/host/tenant.h"
#include "http/server.h"
#include "json/write.h"
#include "loop/job.h"
#include "loop/holder.h"
#include "loop/loop.h"
#include "loop/sock.h"
#include "spawn/place.h"
#include "spawn/starter.h"
#include "tls/files.h"
#include "tls/front.h"
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

struct daemon {
    struct config cfg;
    struct loop *loop;
    struct jobs *jobs;
    struct core *core;
    struct api *api;
    struct http_server *http;
    struct tls_files *tls; /* NULL: plain HTTP */
    struct tls_front *front;
    struct jobs *signers; /* threads of the handshakes: they wait for nothing else that blocks */
    struct sig term, intr, hup;
    int listener; /* TCP; -1: none, or the server's by now */
    int lease;    /* on the spawner this start brought along; -1: none, or it stays */
    int status;
    bool stopping, keep;
};

static int die(const struct err *e)
{
    log_error("%s", e->msg);
    return err_exit(e->code);
}

/* ---- identity ---- */

/* A folder opened before root was given up stays in reach, whatever its parents say: a clone in /root works. */
static void keep_in_reach(char *path, size_t n, int fd)
{
    if (fd >= 0 && access(path, X_OK))
        (void)snprintf(path, n, "/proc/self/fd/%d", fd); /* open as long as we live */
    else if (fd >= 0)
        (void)close(fd);
}

static int drop_root(struct config *cfg, struct err *e)
{
    if (geteuid() || !cfg->uid)
        return 0;
    gid_t gid = (gid_t)cfg->uid;
    int bin = open(cfg->bin, O_PATH | O_DIRECTORY | O_CLOEXEC), share = open(cfg->share, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (setgroups(0, NULL) || setresgid(gid, gid, gid) || setresuid(cfg->uid, cfg->uid, cfg->uid))
        return err_sys(e, errno, "dropping root");
    keep_in_reach(cfg->bin, sizeof cfg->bin, bin);
    keep_in_reach(cfg->share, sizeof cfg->share, share);
    if (access(cfg->home, W_OK | X_OK))
        return err_set(e, E_DENIED, "uid %u cannot reach %s: make its parent directories searchable, or set HUTCH_UID", (unsigned)cfg->uid, cfg->home);
    (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return 0;
}

/* ---- doctor ---- */
static void print_doctor(const struct config *cfg)
{
    struct doctor_check checks[32];
    struct doctor_root root;
    doctor_try_as_root(cfg, &root);
    size_t n = doctor_run(cfg, &root, checks, 32);
    auto_buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_arr(&w, "checks");
    for (size_t i = 0; i < n; i++) {
        jw_obj(&w);
        jw_kv_str(&w, "name", checks[i].name);
        jw_kv_str(&w, "status", checks[i].status);
        jw_kv_str(&w, "found", checks[i].found);
        jw_kv_str(&w, "lost", checks[i].lost);
        jw_kv_str(&w, "fix", checks[i].fix);
        jw_end(&w);
    }
    jw_end(&w);
    jw_end(&w);
    puts(b.p);
}

static int decide_accel(struct config *cfg, struct err *e)
{
    struct kvm_verdict v;
    if (kvm_probe(&v, e))
        return -1;
    cfg->use_kvm = v.usable;
    (void)snprintf(cfg->accel_why, sizeof cfg->accel_why, "%s", v.reason);
    cfg->tsc_khz = tsc_khz_measure();
    return 0;
}

/* ---- life ---- */
static void stopped(void *arg)
{
    struct daemon *d = arg;
    loop_stop(d->loop);
}
static void http_stopped(void *arg)
{
    struct daemon *d = arg;
    (void)d;
}
static void begin_stop(struct daemon *d, bool keep)
{
    if (d->stopping)
        return;
    d->stopping = true;
    notify_send("STOPPING=1");
    log_info("stopping%s", keep ? ", leaving the sandboxes running" : "");
    if (d->http)
        http_server_stop(d->http, 2 * NS_PER_S, http_stopped, d);
    core_stop(d->core, keep, stopped, d);
}
static void on_term(void *arg) { begin_stop(arg, true); }  /* an upgrade or a supervisor: sandboxes stay */
static void on_intr(void *arg) { begin_stop(arg, false); } /* a person at a terminal */
static void on_hup(void *arg)
{
    struct daemon *d = arg;
    core_reload_tenants(d->core);
    if (d->tls)
        tls_files_look(d->tls);
}
static void on_shutdown(void *arg, bool keep) { begin_stop(arg, keep); }

/* ---- TLS ---- */
static void greeted(void *arg, struct transport *t)
{
    http_adopt_over(((struct daemon *)arg)->http, t);
}
static void listen_tls(struct daemon *d)
{
    tls_files_watch(d->tls, d->loop);
    d->signers = jobs_new(d->loop, 2);
    d->front = tls_front_new(d->loop, d->signers, d->tls, greeted, d);
    (void)http_listen_front(d->http, d->listener, tls_front_take,
                            d->front); /* the second of eight */
}
static int read_tls(
    struct daemon *d,
    struct err *e) /* as root: what only root can read is at least good for one start */
{
    if (!*d->cfg.tls_cert)
        return 0;
    d->tls = tls_files_new(d->cfg.tls_cert, d->cfg.tls_key, e);
    return d->tls ? 0 : err_wrap(e, "HUTCH_TLS_CERT, HUTCH_TLS_KEY");
}
static void check_tls(const struct config *cfg) /* as who we are from now on */
{
    if (*cfg->tls_cert && (access(cfg->tls_cert, R_OK) || access(cfg->tls_key, R_OK)))
        log_warn("uid %u cannot read %s and %s: a new certificate is taken over by a restart only",
                 (unsigned)cfg->uid, cfg->tls_cert, cfg->tls_key);
}

static void recovered(void *arg, const struct err *e)
{
    struct daemon *d = arg;
    struct err why;
    char sock[128];
    if (e) {
        d->status = die(e);
        loop_stop(d->loop);
        return;
    }
    (void)snprintf(sock, sizeof sock, "%s/hutch.sock", d->cfg.run);
    struct http_config hc = {.handler = api_handler, .arg = d->api, .server_name = "hutch"};
    d->http = http_server_new(d->loop, &hc);
    if (http_listen_unix(d->http, sock, 0666, &why) < 0) {
        http_server_free(d->http);
        d->http = NULL; /* so that nobody takes the socket of another away */
        d->status = die(&why);
        loop_stop(d->loop);
        return;
    }
    int port = sock_port(d->listener);
    if (d->tls)
        listen_tls(d);
    else
        (void)http_listen_fd(d->http, d->listener); /* the second of eight */
    d->listener = -1;
    spawn_lease_keep(&d->lease);
    notify_send("READY=1");
    log_info("listening on %s (port %d%s) and %s", d->cfg.listen, port, d->tls ? ", TLS" : "",
             sock);
}

/* ---- start ---- */

/* Connections wait until we are ready to answer them; what matters here is that nobody else can have the address, before anything
 * of this host is touched. */
static int listen_early(struct daemon *d, struct err *e)
{
    struct holder who;
    d->listener = sock_listen_tcp(d->cfg.listen, e);
    for (int i = 0; d->listener < 0 && e->sys == EADDRINUSE && i < 100; i++) { /* a predecessor that was killed just now */
        (void)usleep(10000);
        d->listener = sock_listen_tcp(d->cfg.listen, e);
    }
    if (d->listener >= 0)
        return 0;
    if (e->sys != EADDRINUSE)
        return err_wrap(e, "HUTCH_LISTEN");
    char by[160] = "by a process that is not visible from here", home[96];
    if (!holder_find(d->cfg.listen, &who)) {
        bool ours = !strcmp(who.name, "hutchd") && !holder_env(&who, "HUTCH_HOME", home, sizeof home);
        (void)snprintf(by, sizeof by, "by %s, pid %d%s%s", who.name, (int)who.pid, ours ? ", with the home " : "", !ours ? "" : *home ? home : "that is the default");
    }
    return err_set(e, E_CONFLICT, "HUTCH_LISTEN: %s is taken %s: stop that one, or set HUTCH_LISTEN to another address", d->cfg.listen, by);
}

static int start(struct daemon *d, struct err *e)
{
    struct config *cfg = &d->cfg;
    struct spawn_conf sc = {cfg->home, cfg->run, cfg->share, cfg->bin, cfg->uid, cfg->egress_uid};
    bool found;
    if (geteuid()) /* it would only see what is in its way, not why */
        return err_set(e, E_DENIED, "hutchd must be started as root (it starts hutch-spawn, then drops root)");
    /* do not reorder: whoever else lives on this host is found out before anything is changed */
    if (read_tls(d, e) || listen_early(d, e) || spawn_find(&sc, &found, e) || place_take(&sc, e))
        return -1;
    if ((!found && spawn_start(&sc, &d->lease, e)) || drop_root(cfg, e))
        return -1;
    check_tls(cfg);
    d->loop = loop_new();
    d->jobs = jobs_new(d->loop, 2);
    d->core = core_new(d->loop, d->jobs, cfg, e);
    return d->core ? 0 : -1;
}

/* ---- what is answered without a daemon, whatever the settings ---- */
#define OPTIONS  "[--doctor | --doors | --settings[=conf] | --version | --help]"
#define SYNOPSIS "hutchd " OPTIONS
static const struct {
    const char *name, *help;
} options[] = {
    {"--doctor",
     "Report on this host as JSON: what is there, what is lost without it, how to fix it."},
    {"--doors", "List every route and port that is served, and what it asks of a caller."},
    {"--settings", "Print the table of settings as Markdown. With =conf: as a file to edit."},
    {"--version", "Print the version and the commit it was built from."},
    {"--help", "Print this."},
};

static void help(struct buf *b)
{
    buf_puts(
        b,
        "usage: " SYNOPSIS "\n\n"
        "The daemon of hutch. Without an option it runs in the foreground; it must be\n"
        "started as root and gives root up. `hutch up` starts it in the background.\n\noptions:\n");
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        buf_printf(b, "  %-12s %s\n", options[i].name, options[i].help);
    buf_puts(b, "\nSettings are HUTCH_* variables of the environment, or lines of\n"
                "/etc/hutch/hutchd.conf; `hutchd --settings` lists them all.\n");
}

static void man(struct buf *b)
{
    buf_puts(
        b,
        ".TH HUTCHD 8 \"\" \"hutch " HUTCH_VERSION
        "\" \"System administration\"\n.SH NAME\nhutchd \\- the daemon of hutch\n.SH SYNOPSIS\n.B hutchd\n");
    roff_text(b, OPTIONS);
    buf_puts(
        b,
        "\n.SH DESCRIPTION\n"
        ".B hutchd\nruns code that nobody has read in microVMs, containers and isolates, and serves the HTTP API that\n.BR hutch (1)\n"
        "and others use.\nIt runs in the foreground, is started as root, starts\n.BR hutch\\-spawn (8)\n"
        "and then changes to an unprivileged user id.\n.SH OPTIONS\n");
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        buf_puts(b, ".TP\n.B ");
        roff_text(b, options[i].name);
        buf_putc(b, '\n');
        roff_text(b, options[i].help);
        buf_putc(b, '\n');
    }
    buf_puts(
        b,
        ".SH SETTINGS\nA setting is a variable of the environment, or a line NAME=VALUE of\n.IR /etc/hutch/hutchd.conf .\nThe environment wins.\n"
        "That file is for the home it names, or for the default home: a daemon whose environment has another HUTCH_HOME does not read it.\n"
        "A value that is not allowed stops the start; an unknown name is reported in the log.\n");
    settings_write(SETTINGS_MAN, b);
    buf_puts(
        b,
        ".SH SIGNALS\n.TP\nSIGTERM\nStop; sandboxes keep running for the next hutchd.\n.TP\nSIGINT\nStop, with all sandboxes.\n"
        ".TP\nSIGHUP\nRead HUTCH_TENANTS and the certificate again.\n"
        ".SH FILES\n.TP\n.I /etc/hutch/hutchd.conf\nSettings.\n.TP\n.I /var/lib/hutch\nState.\n.TP\n.I /run/hutch/hutch.sock\nThe API for this host.\n"
        ".SH SEE ALSO\n.BR hutch (1),\n.BR hutch\\-spawn (8)\n");
}

static int answer(int argc, char **argv)
{
    auto_buf b = {0};
    const char *o = argv[1];
    if (argc > 2)
        o = "";
    if (!strcmp(o, "--doors"))
        api_doors(&b);
    else if (!strcmp(o, "--settings"))
        settings_write(SETTINGS_MARKDOWN, &b);
    else if (!strcmp(o, "--settings=conf"))
        settings_write(SETTINGS_CONF, &b);
    else if (!strcmp(o, "--man"))
        man(&b);
    else if (!strcmp(o, "--version"))
        buf_printf(&b, "hutchd %s\n", version_full);
    else if (!strcmp(o, "--help") || !strcmp(o, "-h"))
        help(&b);
    else {
        (void)fprintf(stderr, "hutchd: unknown option '%s'\nusage: " SYNOPSIS "\n",
                      argv[argc > 2 ? 2 : 1]);
        return err_exit(E_INVALID);
    }
    (void)fputs(b.p, stdout);
    return fflush(stdout) ? 1 : 0;
}

int main(int argc, char **argv)
{
    struct daemon d = {.listener = -1, .lease = -1};
    struct err e;
    char file[300];
    bool doctor = argc == 2 && !strcmp(argv[1], "--doctor");
    log_init("hutchd", LOG_INFO);
    (void)signal(SIGPIPE, SIG_IGN);
    if (argc > 1 && !doctor)
        return answer(argc, argv);
    notify_keep();
    if (settings_read(file, sizeof file, &e))
        return die(&e);
    log_init("hutchd", LOG_INFO); /* HUTCH_LOG may be in the file */
    if (!doctor)
        (void)settings_unknown();
    if (config_load(&d.cfg, &e))
        return die(&e);
    (void)snprintf(d.cfg.key_prefix, sizeof d.cfg.key_prefix, "%s", api_key_prefix());
    if (decide_accel(&d.cfg, &e))
        return die(&e);
    if (doctor) {
        print_doctor(&d.cfg);
        return 0;
    }
    log_info("hutchd %s, settings from %s%s", version_full, *file ? file : "the environment",
             *file ? " and the environment" : "");
    umask(022);
    if (start(&d, &e)) {
        d.status = die(&e);
        spawn_lease_drop(&d.lease);
        return d.status;
    }
    d.api = api_new(d.core, d.jobs);
    api_on_shutdown(d.api, on_shutdown, &d);
    sig_start(&d.term, d.loop, SIGTERM, on_term, &d);
    sig_start(&d.intr, d.loop, SIGINT, on_intr, &d);
    sig_start(&d.hup, d.loop, SIGHUP, on_hup, &d);
    core_recover(d.core, recovered, &d);
    loop_run(d.loop);

    tls_front_free(d.front); /* before the server it hands connections to */
    http_server_free(d.http);
    char sock[128];
    (void)snprintf(sock, sizeof sock, "%s/hutch.sock", d.cfg.run);
    if (d.http)
        (void)unlink(sock);
    core_free(d.core);
    api_free(d.api); /* after core, which may still call back into it */
    jobs_free(d.jobs);
    if (d.signers)
        jobs_free(d.signers);
    tls_files_free(d.tls);
    sig_stop(&d.term), sig_stop(&d.intr), sig_stop(&d.hup);
    loop_free(d.loop);
    config_fini(&d.cfg);
    spawn_lease_drop(&d.lease);
    return d.status;
}
