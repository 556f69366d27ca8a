/* One description of a request or an answer: a table of members. The same rows
 * read a body or a query into a C struct and refuse what does not fit, and make
 * the OpenAPI document and docs/api.md. So no limit is written down twice.
 *
 *   static const struct field rows[] = {
 *       FIELD("count", F_INT, struct fork_spec, count, .min = 1, .max = FORK_MAX, .def = "1", .help = "How many copies."),
 *   };
 *   const struct shape fork_body = SHAPE("SandboxFork", rows);
 *
 * A refusal is E_INVALID (E_TOO_LARGE for sizes), names the member by its path
 * and says the limit: "volumes[1].path: at most 255 bytes". */
#pragma once
#include "base/err.h"
#include "http/stream.h"
#include "json/read.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum field_type {
    F_STR,    /* const char *: 1 to max bytes, no control characters */
    F_PATH,   /* const char *: 1 to max bytes, anything but NUL */
    F_TEXT,   /* struct str: any text, also empty; max 0: only the size of the body bounds it */
    F_BASE64, /* struct str: as it was sent */
    F_NAME,   /* const char *: ^[a-z0-9][a-z0-9-]{0,62}$ */
    F_INT,    /* an integer of any width, min to max */
    F_CORES,  /* uint32_t: thousandths, min to max; a number of cores outside */
    F_BOOL,   /* bool */
    F_WORD,   /* const char *: one of words */
    F_CHOICE, /* an enum: the place of the word in words */
    F_MODE,   /* uint32_t: permission bits, octal text outside */
    F_SIGNAL, /* int: a name or a number outside */
    F_ENV,    /* struct kv: variables. In a query: name "env." and every env.KEY=VALUE */
    F_META,   /* struct kv: metadata, likewise */
    F_ARGV, /* char **: an array of strings, or a string for /bin/bash -c. In a query the parameter repeats */
    F_OBJ,  /* a struct of its own, by the rows of `of`; not touched if the member is absent */
    F_LIST, /* an array of such structs inside the struct, at most max; how many goes to the size_t at `count` */
    F_JSON, /* struct json *: a value that the handler reads; `of` (may be NULL) only describes it */
    /* the rest describes answers and parts of F_JSON */
    F_TIME,   /* RFC 3339 */
    F_NUM,    /* any number */
    F_MAP,    /* string map */
    F_OBJECT, /* an object with members of any name */
    F_STRS,   /* array of strings */
    F_RULES,  /* array of strings, or of objects by the rows of `of` */
    F_PORTS,  /* array of ports, or of ranges "8000-8100" */
    F_BYTES,  /* raw bytes */
};
enum {
    F_REQUIRED = 1,
    F_NULL = 2 /* null is a value of its own here; elsewhere it means absent */
};

struct shape;
struct field {
    const char *name;
    enum field_type type;
    unsigned flags;
    size_t at, size; /* where in the struct */
    size_t count;    /* F_LIST: where the number of entries goes */
    int64_t min,
        max; /* of a number, of the bytes of a text, of the entries of a list; max 0: none, but for numbers */
    size_t
        max_of; /* offset into struct config of a uint32_t that replaces max if it is set; 0: none */
    const char *def; /* what an absent member means, as JSON; NULL: the struct keeps what it has */
    const char *words; /* "kill|pause" */
    const struct shape *of;
    const char *help; /* a sentence */
    const char *ex;   /* an example as JSON; NULL: one of its type */
};
struct shape {
    const char *name; /* in the OpenAPI document; NULL: it has no name of its own (a query) */
    const struct field *rows;
    size_t n;
    size_t size;              /* of the struct; 0: only described */
    const char *help, *media; /* media: NULL is application/json */
};

#define FIELD(name_, type_, struct_, member, ...) \
    { \
        .name = (name_), .type = (type_), .at = offsetof(struct_, member), \
        .size = sizeof(((struct_ *)0)->member), __VA_ARGS__ \
    }
#define SHAPE(name_, rows_, ...) \
    { \
        .name = (name_), .rows = (rows_), .n = sizeof(rows_) / sizeof *(rows_), __VA_ARGS__ \
    }
#define SHAPE_OF(name_, struct_, rows_, ...) \
    SHAPE(name_, rows_, .size = sizeof(struct_), __VA_ARGS__)

struct config;
/* Reads a whole JSON body (empty: {}) into the struct. Strings point into the tree that is returned, so free that
 * last; fields_free also after NULL. cfg (may be NULL) holds the limits that an operator sets. */
struct json *body_read(const char *p, size_t n, const struct shape *sh, void *into,
                       const struct config *cfg, struct err *e);
int fields_read(struct json *obj, const struct shape *sh, void *into, const struct config *cfg,
                struct err *e);
/* The names alone: every member is one of the shape's, and of its objects and lists. For what another parser reads. */
int fields_known(struct json *obj, const struct shape *sh, struct err *e);
/* Reads the query of a request. Its strings are copies: query_free. A parameter that no row names is left alone. */
int query_read(struct http_stream *s, const struct shape *sh, void *into, const struct config *cfg,
               struct err *e);
void fields_free(const struct shape *sh, void *into); /* maps and lists; what is freed is zeroed */
void query_free(const struct shape *sh, void *into);  /* these and the strings */

const struct field *shape_row(const struct shape *sh, struct str name); /* NULL: none */
int64_t field_max(const struct field *f, const struct config *cfg);
bool field_word(const char *words, size_t i, struct str *ret); /* the i-th of them */
