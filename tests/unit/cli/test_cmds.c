/* Verbs against a fake daemon: exit codes, streams, clean-up, copying. */
#include "cli/cli.h"
#include "cli/tar.h"
#include "fake.h"
#include <pty.h>
#include <poll.h>
#include <sys/stat.h>
#include <termios.h>
#include <utmp.h>

static pid_t start_cli(const char *in, const char *const *argv)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid)
        return pid;
    char p[128];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGINT, SIG_DFL); /* a runner in the background hands down an ignored one */
    int fd = open(in ? in : "/dev/null", O_RDONLY);
    dup2(fd, 0);
    (void)snprintf(p, sizeof p, "%s/out", dir);
    dup2(open(p, O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
    (void)snprintf(p, sizeof p, "%s/err", dir);
    dup2(open(p, O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
    int argc = 0;
    char *copy[32] = {0};
    for (; argv[argc]; argc++)
        copy[argc] = strdup(argv[argc]);
    int rc = cli_main(argc, copy);
    fflush(NULL);
    _exit(rc);
}
static int end_cli(pid_t pid)
{
    int st;
    waitpid(pid, &st, 0);
    return WIFEXITED(st) ? WEXITSTATUS(st) : 1000 + WTERMSIG(st);
}
#define CLI(...) end_cli(start_cli(NULL, (const char *const[]){"hutch", __VA_ARGS__, NULL}))
#define CLI_IN(in, ...) end_cli(start_cli(in, (const char *const[]){"hutch", __VA_ARGS__, NULL}))

static void has(const char *file, const char *what)
{
    char *t = slurp(file);
    if (!strstr(t, what)) {
        printf("# %s lacks \"%s\": %s\n", file, what, t);
        CHECK(0);
    }
    free(t);
}
static void lacks(const char *file, const char *what)
{
    char *t = slurp(file);
    CHECK(!strstr(t, what));
    free(t);
}
static bool wait_logged(const char *what)
{
    for (int i = 0; i < 500 && !logged(what); i++)
        usleep(10000);
    return logged(what);
}

TEST(cli, tables_are_escaped_and_paged)
{
    fake_start(true, true);
    CHECK_INT(CLI("ls"), 0);
    has("out", "evil\\x1b[31m");
    lacks("out", "\033");
    has("out", "vm/tcg");
    CHECK_INT(CLI("ls", "--json"), 0);
    has("out", "},{\"id\""); /* both pages, one array */
    CHECK_INT(CLI("ls", "-q"), 0);
    has("out", ID "\n" ID "\n");
    CHECK_INT(CLI("info", "web"), 0);
    has("out", "own kernel");
    has("out", "meta         k=v\\n");
    CHECK_INT(CLI("doctor"), 0);
    has("out", "fix: enable it");
    CHECK_INT(CLI("events", "-f"), 0);
    has("out", "sandbox.running");
    CHECK_INT(CLI("top"), 0);
    has("out", "CPU%");
    CHECK_INT(CLI("top", "--json"), 0);
    has("out", "[{\"sandbox\":{\"id\"");
    CHECK_INT(CLI("version"), 0);
    has("out", "hutchd 9.9");
}

TEST(cli, errors_have_codes_and_hints)
{
    fake_start(true, true);
    CHECK_INT(CLI("info", "nobody"), 66);
    has("err", "hutch: no such sandbox\n  hint: a hint\n");
    CHECK_INT(CLI("pause", "web"), 69); /* whatever the server refuses is shown */
    has("err", "pause does not exist yet");
    CHECK_INT(CLI("resume", "--timeout", "never", "web"), 64);
    CHECK_INT(CLI("kill", "nobody", "web"), 66); /* the second is still killed */
    CHECK(logged("delete"));
    CHECK_INT(CLI("ls", "--jsno"), 64);
    has("err", "did you mean --json?");
    CHECK_INT(CLI("lls"), 64);
    CHECK_INT(CLI("stop", "web"), 64);
    has("err", "unknown verb 'stop'\n  hint: `hutch pause ID` stops");
    CHECK_INT(CLI("pull", "x"), 64);
    lacks("err", "kill");
    CHECK_INT(CLI("template", "biuld"), 64);
    has("err", "unknown template verb 'biuld'; did you mean 'build'?");
    CHECK_INT(CLI("snapshot", "web"), 64);
    has("err", "`hutch help snapshot` lists the verbs");
    CHECK_INT(CLI("snapshot", "create", "put"), 66); /* a sandbox may be called like a verb */
    has("err", "no such path");
    CHECK_INT(CLI("run"), 64);
    CHECK_INT(CLI("run", "echo", "x"), 64);
    has("err", "hutch run -- echo");
    CHECK_INT(CLI("run", "missing.py"), 66);
    CHECK_INT(CLI("help", "run"), 0);
    CHECK_INT(CLI("template", "build", "--help"), 0);
    CHECK_INT(CLI("template"), 64);
    CHECK_INT(CLI("timeout", "web", "1w"), 64);
}

TEST(run, streams_status_and_cleans_up)
{
    fake_start(false, true);
    static const struct { const char *cmd; int rc; const char *err; } c[] = {
        {"zero", 0, "to stderr\n"}, {"three", 3, ""}, {"signal", 139, ""}, {"oom", 137, "out of memory"}, {"timeout", 124, "longer than 1 s"},
        {"interrupt", 66, "the sandbox ended: timeout"}, {"cut", 69, "hutch:"},
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        CHECK_INT(CLI("run", "--timeout", "9", "-e", "A=b", "--", c[i].cmd, "--x"), c[i].rc);
        has("err", c[i].err);
        CHECK_INT(CLI("info", ID), 66); /* destroyed */
    }
    CHECK(logged("\"timeout_s\":39"));
    CHECK(logged("\"env\":{\"A\":\"b\"}"));
    CHECK(logged("\"timeout_ms\":9000"));
    CHECK_INT(CLI("run", "--", "zero"), 0);
    char *o = slurp("out");
    CHECK(!memcmp(o, "raw\0\xff\n", 6));
    free(o);
}

TEST(run, script_goes_in)
{
    fake_start(false, true);
    char p[128];
    (void)snprintf(p, sizeof p, "%s/my.py", dir);
    FILE *f = fopen(p, "w");
    fputs("print(1)\n", f);
    fclose(f);
    CHECK_INT(CLI("run", p, "--flag", "x"), 0);
    CHECK(logged("put /home/user/my.py 0755 9"));
    CHECK(logged("\"cmd\":[\"python3\",\"/home/user/my.py\",\"--flag\",\"x\"]"));
    CHECK(logged("PYTHONUNBUFFERED"));
    CHECK(logged("delete"));
}

TEST(run, builds_base_when_missing)
{
    fake_start(false, false);
    CHECK_INT(CLI("run", "--no-build", "--", "zero"), 66);
    CHECK(!logged("build"));
    CHECK_INT(CLI("run", "--", "zero"), 0);
    CHECK(logged("build {\"name\":\"base\",\"builtin\":\"base\"}"));
    has("err",
        "unpacking\na \\x1b[31m line\nReading done\ntemplate base is ready"); /* a step once, and no literal \\r */
    lacks("out", "unpacking");
}

TEST(run, stdin_is_forwarded)
{
    fake_start(false, true);
    char p[128];
    (void)snprintf(p, sizeof p, "%s/in", dir);
    FILE *f = fopen(p, "w");
    for (int i = 0; i < 60000; i++)
        fprintf(f, "line %d\n", i);
    fclose(f);
    CHECK_INT(CLI_IN(p, "run", "--", "cat"), 0);
    char cmd[256];
    (void)snprintf(cmd, sizeof cmd, "cmp '%s/in' '%s/out'", dir, dir);
    CHECK_INT(system(cmd), 0);
}

/* Input that cannot be delivered ends the command with the reason; it neither hangs nor looks complete. */
TEST(run, refused_stdin_is_an_error)
{
    fake_start(false, true);
    CHECK_INT(CLI_IN("/etc/passwd", "run", "--", "full"), 75);
    has("err", "standard input: too much unread input");
    CHECK(logged("client left"));
    CHECK(logged("delete"));
}

TEST(run, signals_kill_the_sandbox)
{
    fake_start(false, true);
    static const int sigs[] = {SIGINT, SIGTERM};
    for (int i = 0; i < 2; i++) {
        pid_t pid = start_cli(NULL, (const char *const[]){"hutch", "run", "--", "hang", NULL});
        CHECK(wait_logged("exec"));
        usleep(100000);
        kill(pid, sigs[i]);
        CHECK_INT(end_cli(pid), 128 + sigs[i]);
        CHECK(logged("delete"));
        char p[128];
        (void)snprintf(p, sizeof p, "%s/calls", dir);
        CHECK(!truncate(p, 0));
    }
}

TEST(exec, forwards_the_first_signal)
{
    fake_start(true, true);
    char fifo[128];
    (void)snprintf(fifo, sizeof fifo, "%s/fifo", dir);
    CHECK(!mkfifo(fifo, 0600));
    int keep = open(fifo, O_RDWR | O_CLOEXEC);
    pid_t pid = start_cli(fifo, (const char *const[]){"hutch", "exec", "web", "--", "cat", NULL});
    CHECK(wait_logged("exec"));
    usleep(100000);
    kill(pid, SIGINT);
    CHECK_INT(end_cli(pid), 130);
    CHECK(logged("signal {\"signal\":2,\"group\":true}"));
    close(keep);
    CHECK_INT(CLI("exec", "web", "-d", "--user", "root", "--", "sleep", "9"), 0);
    has("out", "78\n");
    CHECK(logged("\"user\":\"root\""));
}

TEST(cp, files_both_ways)
{
    fake_start(true, true);
    char p[128], q[128];
    (void)snprintf(p, sizeof p, "%s/a.bin", dir);
    (void)snprintf(q, sizeof q, "%s/b.bin", dir);
    int fd = open(p, O_WRONLY | O_CREAT, 0640);
    char data[200000];
    random_bytes(data, sizeof data);
    CHECK_INT(write(fd, data, sizeof data), (ssize_t)sizeof data);
    close(fd);
    CHECK_INT(CLI("cp", p, "web:/tmp"), 0); /* into the folder */
    CHECK(logged("put /tmp/a.bin 0640 200000"));
    CHECK_INT(CLI("cp", "web:/tmp/a.bin", q), 0);
    char cmd[300];
    (void)snprintf(cmd, sizeof cmd, "cmp '%s' '%s'", p, q);
    CHECK_INT(system(cmd), 0);
    CHECK_INT(CLI("cp", "web:/tmp/a.bin", "-"), 0);
    (void)snprintf(cmd, sizeof cmd, "cmp '%s' '%s/out'", p, dir);
    CHECK_INT(system(cmd), 0);
    CHECK_INT(CLI_IN(p, "cp", "-", "web:/x/y"), 0);
    CHECK(logged("put /x/y 0644 200000"));
    CHECK_INT(CLI("cp", "web:/nope", q), 66);
    CHECK_INT(CLI("cp", "nobody:/nope", q), 66);
    has("err", "no such sandbox");
    CHECK_INT(CLI("cp", "a", "b"), 64);
    CHECK_INT(CLI("cp", "/nonexistent-file", "web:/tmp"), 66);
}

TEST(cp, folders_both_ways)
{
    fake_start(true, true);
    char cmd[512];
    (void)snprintf(cmd, sizeof cmd,
                   "cd '%s' && mkdir -p src/sub/%0120d src/empty && head -c 300000 /dev/urandom > src/sub/big && echo hi > src/sub/%0120d/f && "
                   "ln -s sub/big src/link && : > src/none && chmod 755 src/sub/big && mkdir dst", dir, 7, 7);
    CHECK_INT(system(cmd), 0);
    char p[128], q[128];
    (void)snprintf(p, sizeof p, "%s/src", dir);
    (void)snprintf(q, sizeof q, "%s/dst", dir);
    CHECK_INT(CLI("cp", p, "web:/new"), 0);
    CHECK(logged("tar -xf - -C"));
    CHECK_INT(CLI("cp", "web:/tree", q), 0); /* dst exists: becomes dst/tree */
    (void)snprintf(cmd, sizeof cmd, "diff -r --no-dereference '%s/src' '%s/dst/tree' && test -x '%s/dst/tree/sub/big'", dir, dir, dir);
    CHECK_INT(system(cmd), 0);
}

static struct untar_may may = {.bytes = 1 << 20, .entries = 100, .links_out = true};
static int untar_cmd(const char *shell) /* archive made by the system's tar, unpacked by ours into dir/root */
{
    char p[128], cmd[1024];
    struct err e = {0};
    (void)snprintf(p, sizeof p, "%s/root", dir);
    mkdir(p, 0755);
    int root = open(p, O_RDONLY | O_DIRECTORY);
    (void)snprintf(cmd, sizeof cmd, "cd '%s' && %s", dir, shell);
    FILE *f = popen(cmd, "r");
    struct untar u;
    untar_init(&u, root, &may);
    int rc = 0;
    char d[777];
    size_t n;
    while ((n = fread(d, 1, sizeof d, f)) > 0)
        if (!rc)
            rc = untar_push(&u, d, n, &e);
    pclose(f);
    if (untar_end(&u, &e))
        rc = -1;
    close(root);
    return rc;
}

TEST(untar, dialects)
{
    fake_dir();
    char cmd[1024];
    (void)snprintf(cmd, sizeof cmd, "cd '%s' && mkdir -p t/%0180d && echo a > t/%0180d/%0150d && ln -s %0140d t/l && echo b > t/b", dir, 1, 1, 2, 3);
    CHECK_INT(system(cmd), 0);
    (void)snprintf(cmd, sizeof cmd, "cd '%s' && mkdir -p u/%080d/%060d && echo c > u/%080d/%060d/c && ln -s x u/l", dir, 1, 2, 1, 2);
    CHECK_INT(system(cmd), 0); /* ustar: long names by the prefix field */
    static const char *const format[] = {"gnu", "posix", "ustar"};
    for (int i = 0; i < 3; i++) {
        (void)snprintf(cmd, sizeof cmd, "tar --format=%s -cf - -C %s .", format[i], i == 2 ? "u" : "t");
        CHECK_INT(untar_cmd(cmd), 0);
        (void)snprintf(cmd, sizeof cmd, "cd '%s' && diff -r --no-dereference %s root && rm -rf root", dir, i == 2 ? "u" : "t");
        CHECK_INT(system(cmd), 0);
    }
}

TEST(untar, hostile_archives)
{
    fake_dir();
    char cmd[512], p[128];
    (void)snprintf(cmd, sizeof cmd, "cd '%s' && mkdir out t && echo x > t/f && ln -s '%s/out' t/d && mkfifo t/p", dir, dir);
    CHECK_INT(system(cmd), 0);
    /* dotdot */
    CHECK_INT(untar_cmd("tar -P --transform='s,^f,../out/f,' -cf - -C t f"), -1);
    /* a link to a folder, then a file through it */
    CHECK_INT(untar_cmd("{ tar -cf a.tar -C t d; tar --transform='s,^f,d/f,' -rf a.tar -C t f; cat a.tar; }"), -1);
    /* without that link, which is left out, d is a folder like any other */
    (void)snprintf(cmd, sizeof cmd, "rm '%s/root/d'", dir);
    CHECK_INT(system(cmd), 0);
    may.links_out = false;
    CHECK_INT(untar_cmd("cat a.tar"), 0);
    may.links_out = true;
    (void)snprintf(cmd, sizeof cmd, "test -f '%s/root/d/f' && ! test -L '%s/root/d'", dir, dir);
    CHECK_INT(system(cmd), 0);
    /* bounds */
    may.bytes = 1;
    CHECK_INT(untar_cmd("tar -cf - -C t f"), -1);
    may.bytes = 1 << 20, may.entries = 2;
    CHECK_INT(untar_cmd("tar --transform='s,^f,new/er/f,' -cf - -C t f"), -1);
    may.entries = 100;
    /* a link, then a file of the same name: the link is replaced, not followed */
    CHECK_INT(untar_cmd("{ ln -s out/g t/g; tar -cf b.tar -C t g; tar --transform='s,^f,g,' -rf b.tar -C t f; cat b.tar; }"), 0);
    /* absolute names stay beneath */
    (void)snprintf(cmd, sizeof cmd, "tar -P --transform='s,^f,%s/out/abs,' -cf - -C t f", dir);
    CHECK_INT(untar_cmd(cmd), 0);
    /* pipes are skipped, cut archives refused, noise refused */
    CHECK_INT(untar_cmd("tar -cf - -C t p"), 0);
    (void)snprintf(p, sizeof p, "%s/root/p", dir);
    CHECK(access(p, F_OK));
    CHECK_INT(untar_cmd("tar -cf - -C t f | head -c 513"), -1);
    CHECK_INT(untar_cmd("head -c 4096 /dev/urandom"), -1);
    (void)snprintf(cmd, sizeof cmd, "test -z \"$(ls -A '%s/out')\"", dir);
    CHECK_INT(system(cmd), 0);
}

TEST(template, recipe_and_context_as_multipart)
{
    fake_start(true, true);
    char cmd[256], p[128], q[128];
    (void)snprintf(cmd, sizeof cmd, "cd '%s' && mkdir ctx && echo in-context > ctx/f && echo 'FROM base' > recipe", dir);
    CHECK_INT(system(cmd), 0);
    (void)snprintf(p, sizeof p, "%s/recipe", dir);
    (void)snprintf(q, sizeof q, "%s/ctx", dir);
    CHECK_INT(CLI("template", "build", "mine", "-f", p, "-c", q), 0);
    has("err", "template base is ready");
    CHECK(logged("name=\"recipe\""));
    CHECK(logged("FROM base"));
    CHECK_INT(CLI("template", "build", "broken"), 70);
    has("err", "hutch: RUN failed");
}

static bool same_modes(const struct termios *a, const struct termios *b) /* not memcmp: the struct has holes */
{
    return a->c_iflag == b->c_iflag && a->c_oflag == b->c_oflag && a->c_cflag == b->c_cflag && a->c_lflag == b->c_lflag && !memcmp(a->c_cc, b->c_cc, sizeof a->c_cc);
}

/* A real terminal pair: bytes both ways, the resize, the status, and the terminal as it was. */
TEST(sh, terminal_session_and_restore)
{
    fake_start(true, true);
    int master, slave;
    struct winsize w = {.ws_col = 101, .ws_row = 33};
    CHECK(!openpty(&master, &slave, NULL, NULL, &w));
    struct termios before, during, after;
    tcgetattr(slave, &before);
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        login_tty(slave);
        char *av[] = {strdup("hutch"), strdup("sh"), strdup("web"), NULL};
        _exit(cli_main(3, av));
    }
    CHECK(wait_logged("pty cols=101&rows=33"));
    for (int i = 0; i < 200; i++) {
        tcgetattr(slave, &during);
        if (!(during.c_lflag & ICANON))
            break;
        usleep(10000);
    }
    CHECK(!(during.c_lflag & (ICANON | ECHO | ISIG)));
    CHECK_INT(write(master, "hello\003", 6), 6);
    char got[64] = "";
    struct pollfd pf = {.fd = master, .events = POLLIN};
    while (!strstr(got, "hello\003") && poll(&pf, 1, 5000) > 0) {
        size_t n = strlen(got);
        CHECK(read(master, got + n, sizeof got - n - 1) > 0);
    }
    CHECK(strstr(got, "hello\003"));
    w.ws_col = 50;
    ioctl(master, TIOCSWINSZ, &w);
    kill(pid, SIGWINCH);
    CHECK(wait_logged("{\"resize\":{\"cols\":50,\"rows\":33}}"));
    CHECK_INT(write(master, "q", 1), 1);
    CHECK_INT(end_cli(pid), 5);
    tcgetattr(slave, &after);
    CHECK(same_modes(&before, &after));

    pid = fork(); /* and when we are told to go */
    if (!pid) {
        login_tty(slave);
        char *av[] = {strdup("hutch"), strdup("sh"), strdup("web"), NULL};
        _exit(cli_main(3, av));
    }
    for (int i = 0; i < 200; i++) {
        tcgetattr(slave, &during);
        if (!(during.c_lflag & ICANON))
            break;
        usleep(10000);
    }
    kill(pid, SIGTERM);
    CHECK_INT(end_cli(pid), 143);
    tcgetattr(slave, &after);
    CHECK(same_modes(&before, &after));
    CHECK_INT(CLI("sh", "web"), 64); /* no terminal */
}

TEST(up, down_and_a_daemon_that_dies)
{
    fake_start(true, true);
    CHECK_INT(CLI("up"), 0);
    has("out", "is already running");
    CHECK_INT(CLI("down"), 0);
    CHECK_INT(CLI("down"), 0);
    has("err", "is not running");
    CHECK_INT(CLI("ls"), 69);
    has("err", "hutch up");
    /* a hutchd in PATH that only complains */
    char path[256];
    (void)snprintf(path, sizeof path, "%s/bin", dir);
    CHECK_INT(mkdir(path, 0755), 0);
    (void)snprintf(path, sizeof path, "%s/bin/hutchd", dir);
    FILE *f = fopen(path, "w");
    CHECK(f != NULL);
    (void)fputs("#!/bin/sh\n[ \"$1\" = --doctor ] && exec echo '{\"checks\":[{\"name\":\"cgroups\",\"status\":\"ok\",\"found\":\"version 2\"}]}'\n"
                "echo '2026-01-01T00:00:00.000Z ERROR hutchd: no luck today'\nexit 3\n", f);
    (void)fclose(f);
    CHECK_INT(chmod(path, 0755), 0);
    (void)snprintf(path, sizeof path, "%s/bin:/usr/bin:/bin", dir);
    setenv("PATH", path, 1);
    unsetenv("HUTCH_NO_START");
    int rc = CLI("ls");
    has("err", "ERROR hutchd: no luck today");
    has("err", "hutch: hutchd did not start: no luck today\n");
    CHECK_INT(rc, 69);
    rc = CLI("doctor"); /* checks the host although no daemon runs */
    has("out", "cgroups  version 2");
    has("err", "hutch: hutchd did not start: no luck today\n");
    CHECK_INT(rc, 69);
}

/* A missing daemon is started by whoever needs it first, once, even if several do. */
TEST(up, starts_the_daemon_on_demand)
{
    fake_dir();
    char self[512] = "", cmd[1400], path[256];
    CHECK(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    (void)snprintf(cmd, sizeof cmd, "mkdir '%s/bin' && printf '#!/bin/sh\\necho started\\nexec %s --serve\\n' > '%s/bin/hutchd' && chmod +x '%s/bin/hutchd'", dir, self, dir, dir);
    CHECK_INT(system(cmd), 0);
    (void)snprintf(path, sizeof path, "%s/bin:/usr/bin:/bin", dir);
    setenv("PATH", path, 1);
    unsetenv("HUTCH_NO_START");
    pid_t pid[4];
    for (int i = 0; i < 4; i++)
        pid[i] = start_cli(NULL, (const char *const[]){"hutch", "ls", "-q", NULL});
    for (int i = 0; i < 4; i++)
        CHECK_INT(end_cli(pid[i]), 0);
    char *log = slurp("log/hutchd.log");
    CHECK_STR(log, "started\n");
    free(log);
    CHECK_INT(CLI("up", "--foreground"), 73);
    CHECK_INT(CLI("down"), 0);
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "--serve")) { /* as the daemon of the test above */
        (void)snprintf(dir, sizeof dir, "%s", getenv("HUTCH_RUN"));
        alarm(30);
        fake_serve(true, true);
    }
    return test_main(argc, argv);
}
