# What processes of a container may ask of the host's kernel. PID 1 lives under
# it too. Allow-list: a call the kernel gains later is refused until somebody
# adds it here. Format: src/jail/seccomp.h.
#
# no_new_privs is not set (sudo must work inside), see docs/decisions.
default errno EPERM

# ---- files
allow read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 open openat openat2 creat close close_range
allow stat fstat lstat newfstatat statx access faccessat faccessat2 lseek dup dup2 dup3 fcntl flock
allow getdents getdents64 getcwd chdir fchdir rename renameat renameat2 mkdir mkdirat rmdir link linkat unlink unlinkat
allow symlink symlinkat readlink readlinkat chmod fchmod fchmodat chown fchown lchown fchownat umask utime utimes utimensat
allow futimesat truncate ftruncate fallocate fsync fdatasync sync syncfs sync_file_range statfs fstatfs ustat
allow mknod mknodat chroot fadvise64 readahead sendfile splice tee vmsplice copy_file_range
allow setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr removexattr lremovexattr fremovexattr
allow inotify_init inotify_init1 inotify_add_watch inotify_rm_watch
maybe allow fchmodat2 cachestat setxattrat getxattrat listxattrat removexattrat file_getattr file_setattr

# ---- terminals: no typing into somebody's terminal (TIOCSTI), no selection pasting (TIOCLINUX)
errno EPERM ioctl if a1 & 0xffffffff == 0x5412
errno EPERM ioctl if a1 & 0xffffffff == 0x541c
allow ioctl

# ---- waiting
allow poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_wait epoll_wait_old epoll_pwait epoll_pwait2
allow eventfd eventfd2 signalfd signalfd4 timerfd_create timerfd_settime timerfd_gettime pipe pipe2

# ---- memory
allow brk mmap munmap mremap mprotect madvise mincore msync mlock mlock2 munlock mlockall munlockall memfd_create memfd_secret
allow mbind get_mempolicy set_mempolicy set_mempolicy_home_node migrate_pages move_pages membarrier remap_file_pages
allow pkey_alloc pkey_free pkey_mprotect process_madvise process_mrelease
maybe allow map_shadow_stack mseal

# ---- processes; new namespaces are refused by argument, clone3 cannot be filtered that way and is absent for libc
errno ENOSYS clone3
allow clone if a0 & 0x7e020000 == 0
allow unshare if a0 & 0x7e020080 == 0
# a cgroup namespace is how the agent marks what belongs to one command (src/guest/tree.h): it needs CAP_SYS_ADMIN, the agent's alone
allow unshare if a0 == 0x02000000
allow fork vfork execve execveat exit exit_group wait4 waitid getpid getppid gettid getpgid getpgrp setpgid getsid setsid
allow set_tid_address set_robust_list get_robust_list rseq futex futex_waitv arch_prctl prctl modify_ldt set_thread_area get_thread_area
maybe allow futex_wake futex_wait futex_requeue
allow pidfd_open pidfd_send_signal pidfd_getfd
errno EPERM prlimit64 if a0 & 0xffffffff == 1
errno EPERM ptrace if a1 & 0xffffffff == 1
allow ptrace
errno EPERM process_vm_readv if a0 & 0xffffffff == 1
errno EPERM process_vm_writev if a0 & 0xffffffff == 1
allow process_vm_readv process_vm_writev kcmp
# PER_LINUX, PER_LINUX32, ADDR_NO_RANDOMIZE with either, "ask"
allow personality if a0 & 0xffffffff == 0
allow personality if a0 & 0xffffffff == 8
allow personality if a0 & 0xffffffff == 0x40000
allow personality if a0 & 0xffffffff == 0x40008
allow personality if a0 & 0xffffffff == 0xffffffff

# ---- ids and rights; the kernel checks them against the box's own user namespace
allow getuid geteuid getgid getegid getresuid getresgid getgroups setuid setgid setreuid setregid setresuid setresgid setgroups
allow setfsuid setfsgid capget capset seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self

# ---- signals
allow kill tkill tgkill rt_sigaction rt_sigprocmask rt_sigpending rt_sigtimedwait rt_sigqueueinfo rt_tgsigqueueinfo rt_sigsuspend
allow rt_sigreturn sigaltstack pause alarm restart_syscall

# ---- time, without setting it
allow time gettimeofday clock_gettime clock_getres clock_nanosleep nanosleep getitimer setitimer times
allow timer_create timer_settime timer_gettime timer_getoverrun timer_delete

# ---- limits, scheduling, facts
allow getrlimit setrlimit prlimit64 getrusage getpriority setpriority ioprio_get ioprio_set sysinfo uname getcpu getrandom
allow sethostname # the agent's; user processes lack the capability
allow sched_yield sched_setparam sched_getparam sched_setscheduler sched_getscheduler sched_get_priority_max sched_get_priority_min
allow sched_rr_get_interval sched_setaffinity sched_getaffinity sched_setattr sched_getattr

# ---- sockets; what those of these families reach is the network namespace's business. The others are absent, as from a kernel that
# lacks them: vsock is in no namespace and leads to whoever runs the host, AF_ALG, AF_XDP, AF_RDS, AF_TIPC and the like are code of the
# kernel that few read, and asking for one makes the host load its module. Not AF_PACKET either (17): raw packets of IP are enough for
# ping and traceroute, and frames have been the way out of containers whose root holds CAP_NET_RAW more than once.
# Order: unix, what fails for any other family, then the families, then the protocols of the last one, netlink.
allow socket if a0 & 0xffffffff == 1                    # AF_UNIX
errno EPROTONOSUPPORT socket if a2 & 0xffffffff == 33   # IPPROTO_DCCP; each of these six is a module of its own
errno EPROTONOSUPPORT socket if a2 & 0xffffffff == 115  # IPPROTO_L2TP
errno EPROTONOSUPPORT socket if a2 & 0xffffffff == 132  # IPPROTO_SCTP
errno EPROTONOSUPPORT socket if a2 & 0xffffffff == 136  # IPPROTO_UDPLITE
errno EPROTONOSUPPORT socket if a2 & 0xffffffff == 256  # IPPROTO_SMC
errno EPROTONOSUPPORT socket if a2 & 0xffffffff == 262  # IPPROTO_MPTCP: who offers it falls back to TCP
errno EAFNOSUPPORT socket if a1 & 0xf == 10             # SOCK_PACKET of AF_INET is AF_PACKET under another name
errno EAFNOSUPPORT socket if a1 & 0xf == 5              # SOCK_SEQPACKET: SCTP without its number
errno EAFNOSUPPORT socket if a1 & 0xf == 6              # SOCK_DCCP: likewise, and the host would load its module
allow socket if a0 & 0xffffffff == 2                    # AF_INET
allow socket if a0 & 0xffffffff == 10                   # AF_INET6
errno EAFNOSUPPORT socket if a0 & 0xffffffff != 16      # AF_NETLINK:
allow socket if a2 & 0xffffffff == 0                    # NETLINK_ROUTE: addresses and links, every resolver asks
allow socket if a2 & 0xffffffff == 4                    # NETLINK_SOCK_DIAG: ss
allow socket if a2 & 0xffffffff == 15                   # NETLINK_KOBJECT_UEVENT: libudev; nothing is told outside the host's own namespace
errno EPROTONOSUPPORT socket                            # netfilter, xfrm, generic, audit, crypto …
allow socketpair if a0 & 0xffffffff == 1
errno EAFNOSUPPORT socketpair
allow bind listen accept accept4 connect getsockname getpeername sendto recvfrom sendmsg recvmsg sendmmsg recvmmsg
allow setsockopt getsockopt shutdown

# ---- System V and POSIX IPC, own namespace
allow shmget shmat shmctl shmdt semget semop semtimedop semctl msgget msgsnd msgrcv msgctl
allow mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr

# ---- probed by libraries and expected to be missing rather than forbidden
errno ENOSYS io_uring_setup io_uring_enter io_uring_register userfaultfd bpf
# one number, fs.aio-max-nr, is all there is of these for the whole machine
errno ENOSYS io_setup io_destroy io_submit io_cancel io_getevents io_pgetevents
# ---- named refusals, so that a reader need not search for what is absent: mount umount2 pivot_root fsopen fsconfig fsmount
# fspick open_tree move_mount mount_setattr setns perf_event_open keyctl add_key request_key kexec_load kexec_file_load
# init_module finit_module delete_module swapon swapoff reboot open_by_handle_at name_to_handle_at acct quotactl
# settimeofday clock_settime clock_adjtime vhangup lookup_dcookie syslog iopl ioperm nfsservctl fanotify_init
