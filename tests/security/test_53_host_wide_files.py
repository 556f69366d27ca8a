"""Files of /proc and /sys that are one for the whole machine: what they tell of others, and what two sandboxes could tell each other."""
from attack import attack
from hutchtest import *

FILES = ("/proc/cmdline", "/proc/locks", "/proc/modules", "/proc/config.gz", "/proc/consoles", "/proc/iomem", "/proc/ioports", "/proc/swaps", "/proc/schedstat",
         "/proc/softirqs", "/proc/interrupts", "/proc/buddyinfo", "/proc/pagetypeinfo", "/proc/zoneinfo", "/proc/pressure/cpu", "/proc/pressure/io",
         "/proc/timer_list", "/proc/sched_debug", "/proc/keys", "/proc/key-users", "/proc/diskstats", "/proc/partitions", "/proc/kallsyms", "/proc/kmsg",
         "/proc/vmallocinfo", "/proc/slabinfo", "/proc/kpagecount", "/proc/sys/fs/aio-nr", "/proc/sys/fs/file-nr", "/proc/sys/fs/inode-nr",
         "/proc/sys/fs/inode-state", "/proc/sys/fs/dentry-state", "/proc/sys/fs/quota/lookups", "/proc/sys/kernel/pty/nr", "/proc/sys/kernel/pty/max",
         "/sys/kernel/notes", "/sys/kernel/vmcoreinfo", "/sys/kernel/uevent_seqnum", "/sys/kernel/boot_params/data", "/sys/class/dmi/id/product_name",
         "/sys/block/loop0/size", "/sys/module/kernel/parameters/panic", "/sys/firmware/acpi/tables/DSDT")


@attack("host-wide-files")
def read_them(t, a):
    r = a.both("""
        def rd(p):
            with open(p, "rb") as f: b = f.read(4096)
            if not b: raise OSError(errno.ENODATA, "")
            return "%%d bytes" %% len(b)
        for p in %r: tryit(p, lambda p=p: rd(p))
    """ % (FILES,))
    a.judge(r)
    # and what programs look at is there
    for p in ("/proc/stat", "/proc/meminfo", "/proc/loadavg", "/proc/uptime", "/proc/version", "/proc/filesystems", "/proc/cpuinfo", "/proc/self/mountinfo",
              "/proc/sys/fs/file-max", "/proc/sys/kernel/osrelease", "/proc/sys/kernel/random/boot_id"):
        true(a.box.ok(["cat", p]), p)
    a.must_live()


@attack("host-wide-files")
def locks_tell_nothing(t, a):
    """A lock of the neighbour with a number in its offset is a message, where /proc/locks can be read."""
    sign = 0x5EC2E7 << 24
    with a.neighbour.box.stream(["python3", "-c", f"""
import fcntl, struct, time
f = open('/tmp/lock', 'w')
fcntl.fcntl(f, 37, struct.pack('hhqqixxxx', 1, 0, {sign}, 1, 0))
print('locked', flush=True)
time.sleep(60)
"""], user="user", deadline=60) as s:
        s.wait_output(b"locked")
        for user in ("user", "root"):
            lacks(a.box.exec(["cat", "/proc/locks"], user=user).text, str(sign))
