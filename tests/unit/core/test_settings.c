/* The table of settings, its file, and what is said of names nobody knows. */
#include "base/log.h"
#include "core/host/config.h"
#include "core/host/settings.h"
#include "test.h"
#include <fcntl.h>

static void use_file(const char *text)
{
    static char path[64];
    (void)snprintf(path, sizeof path, "/tmp/hutch-settings-%d", (int)getpid());
    FILE *f = fopen(path, "we");
    CHECK(f && fputs(text, f) >= 0 && !fclose(f));
    setenv("HUTCH_CONFIG", path, 1);
}
/* What was logged meanwhile. */
static const char *logged(int pipefd[2])
{
    static char text[4096];
    ssize_t n = read(pipefd[0], text, sizeof text - 1);
    text[n < 0 ? 0 : n] = 0;
    return text;
}
static void catch (int pipefd[2])
{
    CHECK(!pipe2(pipefd, O_NONBLOCK | O_CLOEXEC));
    log_init("test", LOG_INFO);
    log_to(pipefd[1]);
}

TEST(settings, environment_wins_over_file)
{
    struct config c;
    struct err e = {0};
    char file[300];
    use_file(
        "HUTCH_POOL_VM=7\nHUTCH_POOL_CONTAINER=8\nHUTCH_POOL_CONTAINER=9\nHUTCH_PRESET_OWN=example.org\nhttps_proxy=http://127.0.0.1:1\n");
    setenv("HUTCH_POOL_VM", "3", 1);
    CHECK_INT(settings_read(file, sizeof file, &e), 0);
    (void)unlink(file);
    CHECK_STR(file, getenv("HUTCH_CONFIG"));
    CHECK_INT(config_load(&c, &e), 0);
    CHECK_INT(c.pool_vm, 3);
    CHECK_INT(c.pool_container, 9);
    CHECK_INT(c.pool_vm_started, 1);
    CHECK_STR(getenv("HUTCH_PRESET_OWN"), "example.org");
    CHECK_STR(getenv("https_proxy"), "http://127.0.0.1:1");
    config_fini(&c);
}

TEST(settings, unknown_names_are_reported)
{
    int p[2];
    char file[300];
    struct err e = {0};
    catch (p);
    use_file("\nHUTCH_POOL_VMS=7\nLD_PRELOAD=/x\n");
    CHECK_INT(settings_read(file, sizeof file, &e), 0);
    (void)unlink(file);
    const char *said = logged(p);
    CHECK(strstr(said, "HUTCH_POOL_VMS") && strstr(said, ":2: did you mean HUTCH_POOL_VM?"));
    CHECK(strstr(said, "LD_PRELOAD") && !getenv("LD_PRELOAD") && !getenv("HUTCH_POOL_VMS"));
    CHECK_INT(settings_unknown(), 0);
    setenv("HUTCH_LISTN", ":1", 1);
    setenv("HUTCH_QWERTYUIOP", "", 1);
    setenv("HUTCH_URL", "", 1);
    setenv("HUTCH_PRESET_X", "", 1);
    setenv("HUTCH_TEST_X", "", 1);
    CHECK_INT(settings_unknown(), 2);
    said = logged(p);
    CHECK(strstr(said, "HUTCH_LISTN: did you mean HUTCH_LISTEN?") &&
          strstr(said, "HUTCH_QWERTYUIOP: `hutchd --settings`"));
}

TEST(settings, the_table_is_sound)
{
    for (size_t i = 0; i < nsettings; i++) {
        const struct setting *s = &settings[i];
        CHECK(s->help && *s->help);
        if (s->kind == SET_GROUP)
            continue;
        for (size_t k = 0; k < i; k++)
            CHECK(!settings[k].name || strcmp(settings[k].name, s->name));
        if (s->kind == SET_NUMBER)
            CHECK(s->cap == sizeof(uint32_t) && s->min <= s->num && s->num <= s->max);
        else if (s->kind == SET_SWITCH)
            CHECK(s->cap == sizeof(bool));
        else if (s->kind == SET_TIER)
            CHECK(s->cap == sizeof(void *) && *s->def);
        else
            CHECK(s->def);
    }
}

TEST(settings, every_number_has_its_limits)
{
    for (size_t i = 0; i < nsettings; i++) {
        const struct setting *s = &settings[i];
        char v[16];
        struct config c;
        struct err e = {0};
        if (s->kind != SET_NUMBER)
            continue;
        (void)snprintf(v, sizeof v, "%u", s->max);
        setenv(s->name, v, 1);
        CHECK_INT(config_load(&c, &e), 0);
        uint32_t got;
        memcpy(&got, (char *)&c + s->at, sizeof got);
        CHECK_INT(got, s->max);
        config_fini(&c);
        (void)snprintf(v, sizeof v, "%llu", s->max + 1ull);
        setenv(s->name, v, 1);
        CHECK_INT(config_load(&c, &e), -1);
        CHECK(strstr(e.msg, s->name));
        config_fini(&c);
        unsetenv(s->name);
    }
}

/* The file that is shipped has every line commented out: reading it changes nothing, and what it shows is allowed. */
TEST(settings, the_shipped_file_is_valid)
{
    auto_buf b = {0};
    struct config c;
    struct err e = {0};
    char file[300];
    settings_write(SETTINGS_CONF, &b);
    use_file(b.p);
    CHECK_INT(settings_read(file, sizeof file, &e), 0);
    CHECK_STR(file, ""); /* nothing in it */
    for (char *s = b.p; (s = strstr(s, "\n#HUTCH_"));)
        s[1] = ' ', s += 2;
    use_file(b.p);
    CHECK_INT(settings_read(file, sizeof file, &e), 0);
    (void)unlink(file);
    CHECK_INT(config_load(&c, &e), 0);
    CHECK_STR(c.home, "/var/lib/hutch");
    CHECK_INT(c.max_volumes, 1000);
    config_fini(&c);
}
TEST_MAIN
