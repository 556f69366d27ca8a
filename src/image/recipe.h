/* Recipe files: a subset of Dockerfile syntax for building templates, parsed by
 * pure functions over bounded text.
 *
 *   FROM debian:12 | FROM template[:tag]         first, once
 *   RUN command line | RUN ["program", "arg"]
 *   COPY [--chown=user[:group]] [--chmod=octal] src... dst | COPY ["src", "dst"]
 *   ENV name=value ... | ENV name value
 *   WORKDIR path        USER name[:group]
 *   START command       READY command            once each, line or JSON form
 *   KERNELS language ... | KERNELS none          once: code kernels that run in its snapshot
 *
 * Comments, blank lines, `\` continuations and `# syntax=` lines as in Docker.
 * Everything else is refused with its line number; instructions that Docker
 * knows and we do not are named and say what to use instead.
 *
 * Words of ENV, WORKDIR, COPY and USER may hold $NAME and ${NAME[:-word|:+word]}.
 * Their values depend on the template in FROM, so words are kept in a form where
 * quoting is resolved and every literal `\` and `$` is escaped by `\`;
 * recipe_expand gives the final text. RUN, START and READY are left to the
 * shell of the sandbox. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>

#define RECIPE_BYTES_MAX (256u << 10)
#define RECIPE_STEPS_MAX 256
#define RECIPE_WORDS_MAX 256   /* of one instruction */
#define RECIPE_LINE_MAX  65536 /* after joining continuations */
#define RECIPE_KEY       32
#define RECIPE_KERNELS_MAX 128

enum recipe_kind { RECIPE_RUN = 1, RECIPE_COPY, RECIPE_ENV, RECIPE_WORKDIR, RECIPE_USER };

/* A command: one string for /bin/sh -c, or an argument vector. */
struct recipe_cmd { bool shell; char **argv; size_t argc; /* 0: none given */ };

struct recipe_step {
    enum recipe_kind kind;
    int line;
    struct recipe_cmd cmd; /* RUN */
    char **word;           /* COPY: sources, then the destination; ENV: name, value, name, value; WORKDIR, USER: one */
    size_t nwords;
    char *chown;           /* COPY: "user[:group]" or NULL */
    int chmod;             /* COPY: -1 if not given */
};

struct recipe {
    char *from, *tag; /* "debian" "12", or a template's name and tag ("" if none) */
    bool debian;
    struct recipe_step *step;
    size_t nsteps;
    struct recipe_cmd start, ready;
    char *kernels; /* the words after KERNELS; NULL: not given */
};

int recipe_parse(const char *text, size_t n, struct recipe *ret, struct err *e) __attribute__((warn_unused_result));
void recipe_fini(struct recipe *r);
const char *recipe_kind_name(enum recipe_kind k); /* "RUN" */
void recipe_describe(const struct recipe_step *s, struct buf *out); /* for build logs: "RUN make", one line */

/* lookup: value of a variable, NULL if unset. -1 when the result grows over RECIPE_LINE_MAX. */
int recipe_expand(const char *word, const char *(*lookup)(void *arg, const char *name, size_t n), void *arg, struct buf *out, struct err *e)
    __attribute__((warn_unused_result));

/* Cache keys: key[i] identifies the tree after step i. `base` is the content
 * hash of what FROM names; `content` gives the hash of the files that a COPY
 * step brings in (-1 stops). Canonical form of a step, little-endian:
 *   u8 kind, u8 shell, u32 chmod, then each word and chown as u32 length + bytes,
 *   preceded by their u32 count;  key[i] = sha256(key[i-1] || form || content). */
int recipe_keys(const struct recipe *r, const unsigned char base[RECIPE_KEY],
                int (*content)(void *arg, size_t step, unsigned char out[RECIPE_KEY], struct err *e), void *arg,
                unsigned char (*ret)[RECIPE_KEY] /* nsteps */, struct err *e) __attribute__((warn_unused_result));
