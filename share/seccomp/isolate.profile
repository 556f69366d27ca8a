# The warden of an isolate and its interpreter while that loads: programs of the
# template are started, files are read, one process forks. No caller's code
# runs under this list; that is isolate-call.profile, put on top of it per call.
# Format: src/jail/seccomp.h.
default errno EPERM

allow read write readv writev pread64 pwrite64 open openat openat2 close close_range stat fstat lstat newfstatat statx access faccessat
allow faccessat2 lseek dup dup2 dup3 fcntl getdents getdents64 getcwd readlink readlinkat statfs fstatfs fadvise64 ioctl umask
allow poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 eventfd eventfd2 signalfd4 pipe pipe2
allow brk mmap munmap mremap mprotect madvise mincore membarrier memfd_create
# processes and threads, without new namespaces; clone3 is absent for libc
errno ENOSYS clone3
allow clone if a0 & 0x7e020000 == 0
allow fork vfork execve execveat exit exit_group wait4 waitid kill tkill tgkill
allow getpid getppid gettid getpgid getpgrp getsid setsid set_tid_address set_robust_list get_robust_list rseq futex arch_prctl prctl
allow seccomp prlimit64 getrlimit setrlimit getrusage
allow getuid geteuid getgid getegid getresuid getresgid getgroups capget
allow rt_sigaction rt_sigprocmask rt_sigpending rt_sigtimedwait rt_sigsuspend rt_sigreturn sigaltstack pause restart_syscall
allow time gettimeofday clock_gettime clock_getres clock_nanosleep nanosleep getitimer setitimer times
allow timer_create timer_settime timer_gettime timer_getoverrun timer_delete timerfd_create timerfd_settime timerfd_gettime
allow sched_yield sched_getaffinity sched_getparam sched_getscheduler sched_get_priority_max sched_get_priority_min getpriority
allow sysinfo uname getcpu getrandom
# the warden and its interpreter talk over one pair; there are no other sockets
allow socketpair if a0 == 1
allow sendmsg recvmsg sendto recvfrom shutdown getsockopt
errno ENOSYS io_uring_setup io_uring_enter io_uring_register userfaultfd bpf
