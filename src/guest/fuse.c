/* Requests that go to the server, and its answers. What needs no server: fuse_local.c. */
#include "guest/fuse.h"
#include "base/cleanup.h"
#include "wire/share.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdlib.h>
#include <string.h>

#define OWN     (1ull << 63) /* ids of our own requests; the kernel counts up from small numbers */
#define CACHE_S 1            /* how long names and attributes may be believed without asking */

struct fuse_pending {
    struct list link;
    uint64_t unique, node, new_dir, fh;
    uint32_t op, flags;
    char *name, *new_name;
    unsigned char *msg; /* share_head, path, path2, FUSE message */
    size_t n;
};

struct fuse_handle { struct list link; uint64_t fh, node; uint32_t flags; bool dir; };

void fuse_init(struct fuse *f, int (*answer)(void *arg, const void *p, size_t n), void *arg)
{
    *f = (struct fuse){.next_fh = 1, .next_own = OWN, .answer = answer, .arg = arg};
    nodes_init(&f->nodes);
    list_init(&f->pending), list_init(&f->handles);
}

static void pending_free(struct fuse *f, struct fuse_pending *p)
{
    if (f->next == p) {
        f->next = p->link.next == &f->pending ? NULL : container_of(p->link.next, struct fuse_pending, link);
        f->next_at = 0;
    }
    list_del(&p->link);
    f->npending--;
    free(p->name), free(p->new_name), free(p->msg);
    free(p);
}

void fuse_fini(struct fuse *f)
{
    struct fuse_pending *p;
    struct fuse_handle *h;
    list_each(p, &f->pending, link)
        pending_free(f, p);
    list_each(h, &f->handles, link) {
        list_del(&h->link);
        free(h);
    }
    nodes_fini(&f->nodes);
}

bool fuse_room(const struct fuse *f) { return f->connected && f->npending < FUSE_PENDING_MAX; }

/* ---- requests ---- */
/* Where the name stands in the body of an operation on a name; SIZE_MAX: it is none. */
static size_t name_at(uint32_t op)
{
    switch (op) {
    case FUSE_LOOKUP: case FUSE_UNLINK: case FUSE_RMDIR: case FUSE_SYMLINK: return 0;
    case FUSE_MKNOD: return sizeof(struct fuse_mknod_in);
    case FUSE_MKDIR: return sizeof(struct fuse_mkdir_in);
    case FUSE_CREATE: return sizeof(struct fuse_create_in);
    case FUSE_RENAME: return sizeof(struct fuse_rename_in);
    case FUSE_RENAME2: return sizeof(struct fuse_rename2_in);
    case FUSE_LINK: return sizeof(struct fuse_link_in);
    default: return SIZE_MAX;
    }
}

static bool by_handle(uint32_t op)
{
    switch (op) {
    case FUSE_READ: case FUSE_WRITE: case FUSE_RELEASE: case FUSE_FSYNC: case FUSE_READDIR: case FUSE_RELEASEDIR:
    case FUSE_FSYNCDIR: case FUSE_LSEEK: case FUSE_FALLOCATE: case FUSE_STATFS:
        return true;
    default:
        return false;
    }
}

struct paths { char a[SHARE_PATH_MAX + 1], b[SHARE_PATH_MAX + 1]; uint64_t ino; const char *name, *new_name; uint64_t new_dir; };

static const char *string_at(const unsigned char *body, size_t n, size_t at)
{
    return at < n && memchr(body + at, 0, n - at) ? (const char *)body + at : NULL;
}

static int path_of(const struct node *n, const char *name, char out[SHARE_PATH_MAX + 1])
{
    return !n ? -ESTALE : nodes_path(n, name, out, SHARE_PATH_MAX + 1) ? -ESTALE : 0;
}

static int rename_paths(struct fuse *f, const struct fuse_in_header *in, const unsigned char *body, size_t n, struct paths *p)
{
    size_t at = name_at(in->opcode);
    uint64_t dir;
    if (!(p->name = string_at(body, n, at)) || !(p->new_name = string_at(body, n, at + strlen(p->name) + 1)))
        return -EINVAL;
    memcpy(&dir, body, sizeof dir); /* newdir is first in both forms */
    p->new_dir = dir;
    int rc = path_of(nodes_find(&f->nodes, in->nodeid), p->name, p->a);
    return rc ? rc : path_of(nodes_find(&f->nodes, dir), p->new_name, p->b);
}

static int paths_of(struct fuse *f, const struct fuse_in_header *in, const unsigned char *body, size_t n, struct paths *p)
{
    struct node *node = nodes_find(&f->nodes, in->nodeid);
    size_t at = name_at(in->opcode);
    p->a[0] = p->b[0] = 0, p->ino = 0, p->name = p->new_name = NULL, p->new_dir = 0;
    if (in->opcode == FUSE_RENAME || in->opcode == FUSE_RENAME2)
        return rename_paths(f, in, body, n, p);
    if (in->opcode == FUSE_LINK) { /* the node is the directory, the body names what is linked */
        struct fuse_link_in b;
        if (!(p->name = string_at(body, n, at)))
            return -EINVAL;
        memcpy(&b, body, sizeof b);
        struct node *old = nodes_find(&f->nodes, b.oldnodeid);
        int rc = path_of(old, NULL, p->a);
        p->ino = old ? old->ino : 0;
        return rc ? rc : path_of(node, p->name, p->b);
    }
    if (at != SIZE_MAX) {
        p->name = string_at(body, n, at);
        return p->name ? path_of(node, p->name, p->a) : -EINVAL;
    }
    int rc = path_of(node, NULL, p->a);
    if (rc && (by_handle(in->opcode) || in->opcode == FUSE_GETATTR || in->opcode == FUSE_SETATTR)) { /* a file without a name is still reached by its handle */
        p->a[0] = 0;
        p->ino = UINT64_MAX; /* should the handle be unknown there, the top directory must not answer for it */
        return 0;
    }
    p->ino = node ? node->ino : 0;
    return rc;
}

static struct fuse_pending *queue(struct fuse *f, const struct fuse_in_header *in, const void *fuse_msg, size_t n, const struct paths *p, uint64_t fh)
{
    struct fuse_pending *q = xcalloc(1, sizeof *q);
    struct share_head head = {.path_n = (uint16_t)strlen(p->a), .path2_n = (uint16_t)strlen(p->b), .ino = p->ino, .fh = fh};
    q->unique = in->unique, q->node = in->nodeid, q->op = in->opcode, q->fh = fh;
    q->n = sizeof head + head.path_n + head.path2_n + n;
    head.length = (uint32_t)q->n;
    q->msg = xmalloc(q->n);
    unsigned char *at = q->msg;
    memcpy(at, &head, sizeof head), at += sizeof head;
    memcpy(at, p->a, head.path_n), at += head.path_n;
    memcpy(at, p->b, head.path2_n), at += head.path2_n;
    memcpy(at, fuse_msg, n);
    list_add_tail(&f->pending, &q->link);
    f->npending++;
    if (!f->next)
        f->next = q, f->next_at = 0;
    return q;
}

/* The kernel asks for the attributes of a file without a name by its node; a handle on it will do as well. */
static void lend_handle(struct fuse *f, struct fuse_pending *q, size_t body_at)
{
    struct fuse_handle *h;
    list_each(h, &f->handles, link) {
        if (h->node != q->node)
            continue;
        if (q->op == FUSE_GETATTR) {
            struct fuse_getattr_in b;
            memcpy(&b, q->msg + body_at, sizeof b);
            b.getattr_flags |= FUSE_GETATTR_FH, b.fh = h->fh;
            memcpy(q->msg + body_at, &b, sizeof b);
        } else {
            struct fuse_setattr_in b;
            memcpy(&b, q->msg + body_at, sizeof b);
            b.valid |= FATTR_FH, b.fh = h->fh;
            memcpy(q->msg + body_at, &b, sizeof b);
        }
        return;
    }
}

int fuse_request(struct fuse *f, const void *msg, size_t n)
{
    const unsigned char *p = msg;
    struct fuse_in_header in;
    if (n < sizeof in)
        return -1;
    memcpy(&in, p, sizeof in);
    if (in.len != n || n > SHARE_IO_MAX + 4096 || in.unique & OWN)
        return -1;
    const unsigned char *body = p + sizeof in;
    size_t body_n = n - sizeof in;
    if (fuse_local(f, &in, body, body_n))
        return 0;
    struct paths *where = xmalloc(sizeof *where);
    int rc = paths_of(f, &in, body, body_n, where);
    if (rc) {
        fuse_answer(f, in.unique, rc, NULL, 0);
        free(where);
        return 0;
    }
    bool opens = in.opcode == FUSE_OPEN || in.opcode == FUSE_OPENDIR || in.opcode == FUSE_CREATE;
    struct fuse_pending *q = queue(f, &in, msg, n, where, opens ? f->next_fh++ : 0);
    q->name = where->name ? xstrdup(where->name) : NULL;
    q->new_name = where->new_name ? xstrdup(where->new_name) : NULL;
    q->new_dir = where->new_dir;
    if (body_n >= 4 && (in.opcode == FUSE_OPEN || in.opcode == FUSE_CREATE))
        memcpy(&q->flags, body, 4); /* open flags come first in both */
    if (in.opcode == FUSE_RENAME2 && body_n >= sizeof(struct fuse_rename2_in))
        memcpy(&q->flags, body + offsetof(struct fuse_rename2_in, flags), 4);
    if (where->ino == UINT64_MAX && ((in.opcode == FUSE_GETATTR && body_n >= sizeof(struct fuse_getattr_in)) ||
                                     (in.opcode == FUSE_SETATTR && body_n >= sizeof(struct fuse_setattr_in))))
        lend_handle(f, q, q->n - body_n);
    if (body_n >= 8 && (in.opcode == FUSE_RELEASE || in.opcode == FUSE_RELEASEDIR))
        memcpy(&q->fh, body, 8);
    free(where);
    return 0;
}

const unsigned char *fuse_next(struct fuse *f, size_t *ret_n)
{
    if (!f->next || !f->connected)
        return NULL;
    *ret_n = f->next->n - f->next_at;
    return f->next->msg + f->next_at;
}

void fuse_sent(struct fuse *f, size_t n)
{
    f->next_at += n;
    if (f->next && f->next_at == f->next->n) {
        struct list *l = f->next->link.next;
        f->next = l == &f->pending ? NULL : container_of(l, struct fuse_pending, link);
        f->next_at = 0;
    }
}

/* ---- our own requests ---- */
static void queue_own(struct fuse *f, uint32_t op, uint64_t node, const void *body, size_t n, const struct paths *p, uint64_t fh)
{
    unsigned char msg[sizeof(struct fuse_in_header) + 64];
    struct fuse_in_header in = {.len = (uint32_t)(sizeof in + n), .opcode = op, .unique = f->next_own++, .nodeid = node};
    memcpy(msg, &in, sizeof in);
    memcpy(msg + sizeof in, body, n);
    (void)queue(f, &in, msg, sizeof in + n, p, fh);
}

/* The kernel never heard of this handle: the one who waited for it was killed. */
static void close_unheard(struct fuse *f, const struct fuse_handle *h)
{
    struct fuse_release_in b = {.fh = h->fh};
    struct paths *p = xcalloc(1, sizeof *p);
    queue_own(f, h->dir ? FUSE_RELEASEDIR : FUSE_RELEASE, h->node, &b, sizeof b, p, 0);
    free(p);
}

static void open_again(struct fuse *f, const struct fuse_handle *h)
{
    struct fuse_open_in b = {.flags = h->flags & ~(uint32_t)O_TRUNC};
    struct paths *p = xcalloc(1, sizeof *p);
    struct node *node = nodes_find(&f->nodes, h->node);
    if (node && !nodes_path(node, NULL, p->a, sizeof p->a)) {
        p->ino = node->ino;
        queue_own(f, h->dir ? FUSE_OPENDIR : FUSE_OPEN, h->node, &b, sizeof b, p, h->fh);
    } /* else: its name is gone, and with the old server the file; what uses the handle hears EBADF */
    free(p);
}

void fuse_disconnected(struct fuse *f) { f->connected = false; }

void fuse_connected(struct fuse *f)
{
    struct list old;
    struct fuse_pending *p;
    struct fuse_handle *h;
    list_init(&old);
    list_each(p, &f->pending, link) {
        if (p->unique & OWN) { /* of an earlier connection */
            pending_free(f, p);
            continue;
        }
        list_del(&p->link);
        list_add_tail(&old, &p->link);
    }
    f->next = NULL, f->next_at = 0;
    list_each(h, &f->handles, link)
        open_again(f, h);
    list_each(p, &old, link) {
        struct share_head head;
        list_del(&p->link);
        list_add_tail(&f->pending, &p->link);
        memcpy(&head, p->msg, sizeof head);
        head.flags |= SHARE_AGAIN;
        memcpy(p->msg, &head, sizeof head);
        if (!f->next)
            f->next = p;
    }
    f->connected = true;
}

/* ---- answers ---- */
static void handle_new(struct fuse *f, const struct fuse_pending *p, uint64_t node)
{
    struct fuse_handle *h = xcalloc(1, sizeof *h);
    *h = (struct fuse_handle){.fh = p->fh, .node = node, .flags = p->flags, .dir = p->op == FUSE_OPENDIR};
    list_add(&f->handles, &h->link);
}

static struct fuse_handle *handle_find(struct fuse *f, uint64_t fh)
{
    struct fuse_handle *h;
    list_each(h, &f->handles, link)
        if (h->fh == fh)
            return h;
    return NULL;
}

static void handle_drop(struct fuse *f, uint64_t fh)
{
    struct fuse_handle *h = handle_find(f, fh);
    if (h) {
        list_del(&h->link);
        free(h);
    }
}

/* The name a file was found or made under gets a node. 0: the kernel must not see this answer. */
static uint64_t enter(struct fuse *f, const struct fuse_pending *p, unsigned char *body, size_t n)
{
    struct fuse_entry_out o;
    struct node *dir = nodes_find(&f->nodes, p->node);
    if (n < sizeof o || !dir || !p->name)
        return 0;
    memcpy(&o, body, sizeof o);
    struct node *node = nodes_enter(&f->nodes, dir, p->name, o.attr.ino);
    o.nodeid = node->id, o.generation = 0;
    o.entry_valid = o.attr_valid = CACHE_S, o.entry_valid_nsec = o.attr_valid_nsec = 0;
    memcpy(body, &o, sizeof o);
    return node->id;
}

/* What was learnt of a file's size before it was opened may be old: close-to-open, as network file systems have it. */
static void distrust(struct fuse *f, uint64_t node)
{
    struct { struct fuse_out_header h; struct fuse_notify_inval_inode_out o; } m = {
        .h = {.len = sizeof m, .error = FUSE_NOTIFY_INVAL_INODE}, .o = {.ino = node, .off = -1}};
    (void)f->answer(f->arg, &m, sizeof m); /* not cached: fine */
}

static void renamed(struct fuse *f, const struct fuse_pending *p)
{
    struct node *from = nodes_find(&f->nodes, p->node), *to = nodes_find(&f->nodes, p->new_dir);
    if (!from || !to)
        return;
    if (p->flags & 2u) /* RENAME_EXCHANGE */
        nodes_exchange(&f->nodes, from, p->name, to, p->new_name);
    else
        nodes_rename(&f->nodes, from, p->name, to, p->new_name);
}

/* Success: what it means for names and handles, and the parts of the body that are ours. false: malformed. */
static bool learn(struct fuse *f, const struct fuse_pending *p, unsigned char *body, size_t n, uint64_t *ret_node)
{
    struct node *dir = nodes_find(&f->nodes, p->node);
    struct fuse_attr_out attr;
    switch (p->op) {
    case FUSE_LOOKUP: case FUSE_MKDIR: case FUSE_MKNOD: case FUSE_SYMLINK: case FUSE_LINK:
        return (*ret_node = enter(f, p, body, n)) != 0;
    case FUSE_CREATE:
        if (n < sizeof(struct fuse_entry_out) + sizeof(struct fuse_open_out) || !(*ret_node = enter(f, p, body, n)))
            return false;
        handle_new(f, p, *ret_node);
        return true;
    case FUSE_OPEN: case FUSE_OPENDIR:
        if (n < sizeof(struct fuse_open_out))
            return false;
        handle_new(f, p, p->node);
        if (p->op == FUSE_OPEN)
            distrust(f, p->node);
        return true;
    case FUSE_GETATTR: case FUSE_SETATTR:
        if (n < sizeof attr)
            return false;
        memcpy(&attr, body, sizeof attr);
        if (p->node == NODE_ROOT)
            attr.attr.ino = NODE_ROOT;
        attr.attr_valid = CACHE_S, attr.attr_valid_nsec = 0;
        memcpy(body, &attr, sizeof attr);
        return true;
    case FUSE_UNLINK: case FUSE_RMDIR:
        if (dir)
            nodes_unname(&f->nodes, dir, p->name);
        return true;
    case FUSE_RENAME: case FUSE_RENAME2:
        renamed(f, p);
        return true;
    default:
        return true;
    }
}

/* The kernel did not take it: nobody waits any more. What it would have known of is undone. */
static void unlearn(struct fuse *f, const struct fuse_pending *p, uint64_t node)
{
    struct fuse_handle *h = p->fh ? handle_find(f, p->fh) : NULL;
    if (h && (p->op == FUSE_OPEN || p->op == FUSE_OPENDIR || p->op == FUSE_CREATE)) {
        close_unheard(f, h);
        handle_drop(f, p->fh);
    }
    if (node)
        nodes_forget(&f->nodes, node, 1);
}

static struct fuse_pending *pending_find(struct fuse *f, uint64_t unique)
{
    struct fuse_pending *p;
    list_each(p, &f->pending, link) {
        if (p == f->next)
            return NULL; /* not sent yet: it cannot have been answered */
        if (p->unique == unique)
            return p;
    }
    return NULL;
}

int fuse_reply(struct fuse *f, const void *msg, size_t n)
{
    struct fuse_out_header o;
    if (n < sizeof o || n > SHARE_MSG_MAX)
        return -1;
    memcpy(&o, msg, sizeof o);
    if (o.len != n || o.error > 0 || o.error < -4095 || (o.error && n != sizeof o))
        return -1;
    struct fuse_pending *p = pending_find(f, o.unique);
    if (!p)
        return -1;
    if (p->unique & OWN) { /* nobody but us asked */
        pending_free(f, p);
        return 0;
    }
    auto_free unsigned char *copy = xmalloc(n);
    uint64_t node = 0;
    memcpy(copy, msg, n);
    if (p->op == FUSE_RELEASE || p->op == FUSE_RELEASEDIR)
        handle_drop(f, p->fh); /* whatever the server said */
    if (!o.error && !learn(f, p, copy + sizeof o, n - sizeof o, &node)) {
        fuse_answer(f, o.unique, -EIO, NULL, 0);
        pending_free(f, p);
        return 0;
    }
    if (f->answer(f->arg, copy, n) && !o.error)
        unlearn(f, p, node);
    pending_free(f, p);
    return 0;
}
