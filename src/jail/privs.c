#include "jail/privs.h"
#include "jail/sys.h"
#include <grp.h>
#include <linux/capability.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/resource.h>

/* Like the common container runtimes' default, without MKNOD (no use in a user namespace): enough for sudo, package
 * managers, ping, servers on low ports. None of them counts outside the box's own user namespace. SYS_ADMIN and
 * SYS_PTRACE are for the agent alone, which names the host and finds stray descendants with them and, by holding more than any user process can, cannot be traced by one: it
 * drops them (and more) from the bounding set of everything it starts. The filter forbids what else it would allow. */
const uint64_t CAPS_BOX = CAP_BIT(CAP_CHOWN) | CAP_BIT(CAP_DAC_OVERRIDE) | CAP_BIT(CAP_DAC_READ_SEARCH) | CAP_BIT(CAP_FOWNER) |
                          CAP_BIT(CAP_FSETID) | CAP_BIT(CAP_KILL) | CAP_BIT(CAP_SETGID) | CAP_BIT(CAP_SETUID) | CAP_BIT(CAP_SETPCAP) |
                          CAP_BIT(CAP_NET_BIND_SERVICE) | CAP_BIT(CAP_NET_RAW) | CAP_BIT(CAP_IPC_OWNER) | CAP_BIT(CAP_SYS_CHROOT) |
                          CAP_BIT(CAP_SYS_NICE) | CAP_BIT(CAP_LEASE) | CAP_BIT(CAP_AUDIT_WRITE) | CAP_BIT(CAP_SETFCAP) |
                          CAP_BIT(CAP_SYS_ADMIN) | CAP_BIT(CAP_SYS_PTRACE);
const uint64_t CAPS_UNTAR =
    CAP_BIT(CAP_CHOWN) | CAP_BIT(CAP_DAC_OVERRIDE) | CAP_BIT(CAP_FOWNER) | CAP_BIT(CAP_FSETID) | CAP_BIT(CAP_SETFCAP);
const uint64_t CAPS_KEEPER =
    CAP_BIT(CAP_CHOWN) | CAP_BIT(CAP_DAC_OVERRIDE) | CAP_BIT(CAP_DAC_READ_SEARCH) | CAP_BIT(CAP_FOWNER) | CAP_BIT(CAP_FSETID);

int privs_death_signal(struct err *e)
{
    return prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 ? err_sys(e, errno, "PR_SET_PDEATHSIG") : 0;
}

int privs_ids(uid_t uid, gid_t gid, struct err *e)
{
    /* raw calls: a libc's wrappers would try to synchronise threads */
    if (syscall(SYS_setgroups, 0, NULL) < 0)
        return err_sys(e, errno, "setgroups");
    if (syscall(SYS_setresgid, gid, gid, gid) < 0)
        return err_sys(e, errno, "setresgid");
    if (syscall(SYS_setresuid, uid, uid, uid) < 0)
        return err_sys(e, errno, "setresuid");
    return 0;
}

int privs_bound(uint64_t keep, struct err *e)
{
    for (int c = 0; c < 64; c++) {
        if (keep >> c & 1)
            continue;
        if (prctl(PR_CAPBSET_DROP, c, 0, 0, 0) < 0) {
            if (errno == EINVAL)
                break; /* past the last capability of this kernel */
            return err_sys(e, errno, "PR_CAPBSET_DROP %d", c);
        }
    }
    return 0;
}

static int caps_write(uint64_t permitted, uint64_t effective)
{
    struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct d[2] = {{(uint32_t)effective, (uint32_t)permitted, 0},
                                          {(uint32_t)(effective >> 32), (uint32_t)(permitted >> 32), 0}};
    return (int)syscall(SYS_capset, &h, d);
}

static int caps_read(uint64_t *permitted)
{
    struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct d[2] = {{0}};
    if (syscall(SYS_capget, &h, d) < 0)
        return -1;
    *permitted = (uint64_t)d[0].permitted | (uint64_t)d[1].permitted << 32;
    return 0;
}

int privs_caps(uint64_t keep, struct err *e)
{
    uint64_t have;
    (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); /* EINVAL before 4.3: then there is nothing to clear */
    if (caps_read(&have) < 0)
        return err_sys(e, errno, "capget");
    if (caps_write(have & keep, have & keep) < 0)
        return err_sys(e, errno, "capset");
    return 0;
}

int privs_no_new(struct err *e)
{
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? err_sys(e, errno, "PR_SET_NO_NEW_PRIVS") : 0;
}

static int limit(int what, uint64_t soft, bool lower_hard, struct err *e)
{
    struct rlimit r;
    if (getrlimit(what, &r) < 0)
        return err_sys(e, errno, "getrlimit %d", what);
    r.rlim_cur = soft > r.rlim_max ? r.rlim_max : soft;
    if (lower_hard)
        r.rlim_max = r.rlim_cur;
    return setrlimit(what, &r) < 0 ? err_sys(e, errno, "setrlimit %d", what) : 0;
}

int privs_limits(uint64_t nofile, uint64_t stack_bytes, struct err *e)
{
    if (limit(RLIMIT_CORE, 0, true, e) || limit(RLIMIT_NOFILE, nofile, false, e) || limit(RLIMIT_STACK, stack_bytes, false, e))
        return -1;
    return 0;
}

int privs_act_as(uid_t uid, struct err *e)
{
    uint64_t have;
    if (caps_read(&have) < 0)
        return err_sys(e, errno, "capget");
    if (syscall(SYS_setresuid, -1, uid, -1) < 0)
        return err_sys(e, errno, "setresuid %u", (unsigned)uid);
    (void)setfsuid(0); /* it went along with the other; our real id allows the way back */
    return caps_write(have, have) < 0 ? err_sys(e, errno, "capset") : 0;
}

int privs_fs_as(uid_t uid, gid_t gid, struct err *e)
{
    uint64_t have;
    (void)setfsgid(gid);
    (void)setfsuid(uid);
    /* the calls report no failure; asking for an impossible id returns the current one */
    if ((uid_t)setfsuid((uid_t)-1) != uid || (gid_t)setfsgid((gid_t)-1) != gid)
        return err_set(e, E_INTERNAL, "setfsuid %u refused", (unsigned)uid);
    if (caps_read(&have) < 0 || caps_write(have, have) < 0)
        return err_sys(e, errno, "capset");
    return 0;
}
