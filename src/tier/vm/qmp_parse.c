/* The pure half of qmp.h: one line in, one typed message out. */
#include "tier/vm/qmp.h"
#include "json/read.h"
#include <stdio.h>
#include <string.h>

static int bad(struct err *e, const char *what)
{
    return err_set(e, E_GUEST, "the emulator's control channel: %s", what);
}

/* Names and states are short words; anything else is not copied on. */
static bool copy_word(struct str s, char out[QMP_NAME])
{
    if (!s.n || s.n >= QMP_NAME)
        return false;
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9') &&
            c != '_' && c != '-')
            return false;
    }
    memcpy(out, s.p, s.n);
    out[s.n] = '\0';
    return true;
}

static void copy_text(struct str s, char *out, size_t cap)
{
    size_t n = s.n < cap ? s.n : cap - 1;
    for (size_t i = 0; i < n; i++)
        out[i] = s.p[i] >= ' ' && s.p[i] <= '~' ? s.p[i] : '?';
    out[n] = '\0';
}

static void copy_status(struct json *obj, char out[QMP_NAME])
{
    struct str s = {0};
    if (json_kind(obj) == JSON_OBJ && !json_str(obj, "status", &s, true, NULL))
        (void)copy_word(s, out); /* stays "" when it is no word */
}

static int parse_greeting(struct json *g, struct qmp_msg *m, struct err *e)
{
    struct json *version = json_get(g, "version"), *q = json_get(version, "qemu");
    int64_t major, minor, micro;
    if (!q || json_i64(q, "major", 0, 999, -1, &major, NULL) ||
        json_i64(q, "minor", 0, 999, -1, &minor, NULL) ||
        json_i64(q, "micro", 0, 9999, -1, &micro, NULL) || major < 0 || minor < 0 || micro < 0)
        return bad(e, "a greeting without a version");
    m->kind = QMP_GREETING;
    (void)snprintf(m->name, sizeof m->name, "%d.%d.%d", (int)major, (int)minor, (int)micro);
    return 0;
}

int qmp_parse(const char *p, size_t n, struct qmp_msg *ret, struct err *e)
{
    while (n && (p[n - 1] == '\r' || p[n - 1] == ' '))
        n--;
    if (n > QMP_LINE_MAX)
        return bad(e, "a line that is too long");
    auto_json root = json_parse_obj(p, n, NULL);
    if (!root)
        return bad(e, "a line that is not a JSON object");
    struct qmp_msg m = {0};
    struct str s = {0};
    int kinds = json_has(root, "QMP") + json_has(root, "return") + json_has(root, "error") +
                json_has(root, "event");
    if (kinds != 1)
        return bad(e, "a message of an unknown kind");
    if (json_has(root, "id")) {
        int64_t id;
        if (json_to_i64(json_get(root, "id"), 0, INT64_MAX, &id, NULL))
            return bad(e, "an answer with a wrong id");
        m.has_id = true;
        m.id = (uint64_t)id;
    }
    if (json_has(root, "QMP")) {
        if (parse_greeting(json_get(root, "QMP"), &m, e))
            return -1;
    } else if (json_has(root, "return")) {
        m.kind = QMP_RETURN;
        copy_status(json_get(root, "return"), m.status);
    } else if (json_has(root, "error")) {
        m.kind = QMP_ERROR;
        struct json *x = json_get(root, "error");
        if (json_kind(x) != JSON_OBJ || json_str(x, "class", &s, true, NULL) ||
            !copy_word(s, m.name))
            return bad(e, "an error without a class");
        if (json_str(x, "desc", &s, true, NULL))
            return bad(e, "an error without a text");
        copy_text(s, m.desc, sizeof m.desc);
    } else {
        m.kind = QMP_EVENT;
        if (json_str(root, "event", &s, true, NULL) || !copy_word(s, m.name))
            return bad(e, "an event without a name");
        struct json *data = json_get(root, "data");
        copy_status(data, m.status);
        if (json_kind(data) == JSON_OBJ)
            (void)json_bool(data, "guest", false, &m.guest, NULL); /* absent or odd: false */
    }
    *ret = m;
    return 0;
}
