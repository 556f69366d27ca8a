#include "base/netlink.h"
#include "base/cleanup.h"
#include <errno.h>
#include <linux/netlink.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void *room(struct nl *l, size_t n)
{
    size_t padded = (n + 3) & ~(size_t)3;
    if (l->full || padded > sizeof l->b - l->n) {
        l->full = true;
        return NULL;
    }
    void *p = l->b + l->n;
    memset(p, 0, padded);
    l->n += padded;
    return p;
}

void nl_begin(struct nl *l, unsigned type, unsigned flags, const void *head, size_t n, bool quiet)
{
    l->msg = l->n;
    struct nlmsghdr *h = room(l, sizeof *h);
    if (!h)
        return;
    *h = (struct nlmsghdr){.nlmsg_type = (uint16_t)type, .nlmsg_flags = (uint16_t)(NLM_F_REQUEST | flags | (quiet ? 0 : NLM_F_ACK)), .nlmsg_seq = ++l->seq};
    void *p = room(l, n);
    if (p)
        memcpy(p, head, n);
}

void nl_end(struct nl *l)
{
    uint32_t n = (uint32_t)(l->n - l->msg);
    if (!l->full)
        memcpy(l->b + l->msg, &n, sizeof n); /* nlmsg_len is the first member */
}

void nl_put(struct nl *l, unsigned attr, const void *p, size_t n)
{
    struct nlattr a = {.nla_len = (uint16_t)(sizeof a + n), .nla_type = (uint16_t)attr};
    unsigned char *at = room(l, sizeof a + n);
    if (!at)
        return;
    memcpy(at, &a, sizeof a);
    if (n)
        memcpy(at + sizeof a, p, n);
}

void nl_str(struct nl *l, unsigned attr, const char *s) { nl_put(l, attr, s, strlen(s) + 1); }
void nl_u32(struct nl *l, unsigned attr, uint32_t v) { nl_put(l, attr, &v, sizeof v); }

void nl_be32(struct nl *l, unsigned attr, uint32_t v)
{
    v = __builtin_bswap32(v);
    nl_put(l, attr, &v, sizeof v);
}

void nl_be64(struct nl *l, unsigned attr, uint64_t v)
{
    v = __builtin_bswap64(v);
    nl_put(l, attr, &v, sizeof v);
}

size_t nl_nest(struct nl *l, unsigned attr)
{
    size_t mark = l->n;
    nl_put(l, attr | NLA_F_NESTED, "", 0);
    return mark;
}

void nl_nest_end(struct nl *l, size_t mark)
{
    uint16_t n = (uint16_t)(l->n - mark);
    if (!l->full)
        memcpy(l->b + mark, &n, sizeof n);
}

/* Everything the kernel had to say; the first refusal counts. *ret_acks: how many messages it took. */
static int answers(int s, unsigned *ret_acks, struct err *e)
{
    unsigned char b[16384] __attribute__((aligned(4)));
    int rc = 0;
    for (;;) {
        ssize_t n = recv(s, b, sizeof b, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return rc;
        if (n <= 0)
            return err_sys(e, n ? errno : EIO, "netlink");
        for (struct nlmsghdr *h = (struct nlmsghdr *)b; NLMSG_OK(h, (size_t)n); h = NLMSG_NEXT(h, n)) {
            int err = 0;
            if (h->nlmsg_type != NLMSG_ERROR || h->nlmsg_len < NLMSG_LENGTH(sizeof(struct nlmsgerr)))
                continue;
            memcpy(&err, NLMSG_DATA(h), sizeof err);
            if (!err)
                ++*ret_acks;
            else if (!rc)
                rc = err_sys(e, -err, "message %u", ((const struct nlmsgerr *)NLMSG_DATA(h))->msg.nlmsg_seq);
        }
    }
}

static unsigned acks_wanted(const struct nl *l)
{
    unsigned want = 0;
    for (size_t at = 0; at + sizeof(struct nlmsghdr) <= l->n;) {
        struct nlmsghdr h;
        memcpy(&h, l->b + at, sizeof h);
        want += (h.nlmsg_flags & NLM_F_ACK) != 0;
        at += (h.nlmsg_len + 3u) & ~3u;
    }
    return want;
}

int nl_exchange(const struct nl *l, int family, struct err *e)
{
    struct sockaddr_nl to = {.nl_family = AF_NETLINK};
    unsigned acks = 0;
    if (l->full)
        return err_set(e, E_INTERNAL, "netlink: message too long");
    auto_fd s = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, family);
    if (s < 0)
        return err_sys(e, errno, "netlink socket");
    int big = 1 << 16;
    (void)setsockopt(s, SOL_SOCKET, SO_RCVBUF, &big, sizeof big);
    if (sendto(s, l->b, l->n, 0, (struct sockaddr *)&to, sizeof to) != (ssize_t)l->n)
        return err_sys(e, errno, "netlink send");
    if (answers(s, &acks, e))
        return -1;
    if (acks != acks_wanted(l))
        return err_set(e, E_INTERNAL, "netlink: %u of %u messages were answered", acks, acks_wanted(l));
    return 0;
}
