/* The names a FUSE kernel knows of. */
#include "guest/nodes.h"
#include "test.h"

static char path[256];
static const char *of(struct node *n) { return nodes_path(n, NULL, path, sizeof path) ? "(none)" : path; }

TEST(nodes, paths)
{
    struct nodes t;
    nodes_init(&t);
    struct node *a = nodes_enter(&t, &t.root, "a", 10), *b = nodes_enter(&t, a, "b", 11), *c = nodes_enter(&t, b, "c.txt", 12);
    CHECK_STR(of(&t.root), "");
    CHECK_STR(of(a), "a");
    CHECK_STR(of(c), "a/b/c.txt");
    CHECK(!nodes_path(b, "new", path, sizeof path));
    CHECK_STR(path, "a/b/new");
    CHECK(!nodes_path(&t.root, "top", path, sizeof path));
    CHECK_STR(path, "top");
    CHECK(!nodes_path(c, NULL, path, 10) && !strcmp(path, "a/b/c.txt"));
    CHECK(nodes_path(c, NULL, path, 9) < 0);
    CHECK(nodes_path(c, NULL, path, 4) < 0);
    CHECK(nodes_enter(&t, b, "c.txt", 12) == c && c->lookups == 2);
    CHECK(nodes_find(&t, c->id) == c && !nodes_find(&t, 4711));
    nodes_fini(&t);
}

TEST(nodes, forgetting_frees_what_nobody_needs)
{
    struct nodes t;
    nodes_init(&t);
    struct node *a = nodes_enter(&t, &t.root, "a", 1), *b = nodes_enter(&t, a, "b", 2);
    uint64_t ia = a->id, ib = b->id;
    nodes_forget(&t, ia, 1); /* its child still names it */
    CHECK(nodes_find(&t, ia) && !strcmp(of(b), "a/b"));
    nodes_forget(&t, ib, 99); /* more than there were */
    CHECK(!nodes_find(&t, ib) && !nodes_find(&t, ia));
    CHECK_INT(t.n, 0);
    nodes_forget(&t, NODE_ROOT, 1000);
    nodes_forget(&t, 12345, 1);
    CHECK_STR(of(&t.root), "");
    nodes_fini(&t);
}

TEST(nodes, another_file_under_the_same_name)
{
    struct nodes t;
    nodes_init(&t);
    struct node *d = nodes_enter(&t, &t.root, "d", 1), *old = nodes_enter(&t, d, "f", 2);
    struct node *new = nodes_enter(&t, d, "f", 3);
    CHECK(old != new);
    CHECK_STR(of(old), "(none)");
    CHECK_STR(of(new), "d/f");
    uint64_t id = old->id;
    nodes_forget(&t, id, 1);
    CHECK(!nodes_find(&t, id) && nodes_find(&t, new->id) == new);
    nodes_unname(&t, d, "f");
    CHECK_STR(of(new), "(none)");
    nodes_unname(&t, d, "f"); /* not there: nothing */
    nodes_fini(&t);
}

TEST(nodes, renaming)
{
    struct nodes t;
    nodes_init(&t);
    struct node *a = nodes_enter(&t, &t.root, "a", 1), *b = nodes_enter(&t, &t.root, "b", 2), *f = nodes_enter(&t, a, "f", 3),
                *g = nodes_enter(&t, b, "g", 4);
    nodes_rename(&t, a, "f", b, "g"); /* over g */
    CHECK_STR(of(f), "b/g");
    CHECK_STR(of(g), "(none)");
    nodes_rename(&t, &t.root, "b", a, "under"); /* a directory with what is in it */
    CHECK_STR(of(f), "a/under/g");
    nodes_rename(&t, b, "nobody", a, "new"); /* the kernel never looked at it */
    nodes_rename(&t, b, "g", b, "g");
    CHECK_STR(of(f), "a/under/g");
    struct node *h = nodes_enter(&t, a, "h", 5);
    nodes_exchange(&t, b, "g", a, "h");
    CHECK_STR(of(f), "a/h");
    CHECK_STR(of(h), "a/under/g");
    nodes_exchange(&t, b, "nobody", a, "h");
    CHECK_STR(of(f), "a/under/nobody");
    nodes_fini(&t);
}

TEST(nodes, many)
{
    struct nodes t;
    char name[32];
    nodes_init(&t);
    struct node *d = nodes_enter(&t, &t.root, "d", 1);
    uint64_t first = 0;
    for (int i = 0; i < 20000; i++) {
        snprintf(name, sizeof name, "file-%d", i);
        struct node *n = nodes_enter(&t, d, name, 100 + (uint64_t)i);
        first = first ? first : n->id;
    }
    CHECK_INT(t.n, 20001);
    CHECK_STR(of(nodes_find(&t, first + 12345)), "d/file-12345");
    for (int i = 0; i < 20000; i++)
        nodes_forget(&t, first + (uint64_t)i, 1);
    CHECK_INT(t.n, 1);
    nodes_fini(&t);
}

TEST_MAIN
