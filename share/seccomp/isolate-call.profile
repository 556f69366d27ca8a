# What the caller's code may ask of the kernel in an isolate: memory, time,
# randomness, and the four descriptors it was born with. Everything else ends
# the process; the library in it says which call it was (src/zygote/zygote.c).
# Format: src/jail/seccomp.h.
default trap

# ---- the pipes it has
allow read write readv writev close
# ---- memory of its own: private and anonymous, never executable, never growing down a stack that is not one
trap mmap if a2 & 0x4 != 0
allow mmap if a3 & 0x123 == 0x22
trap mprotect if a2 & 0x4 != 0
allow mprotect
allow brk munmap mremap
trap madvise if a2 & 0xffffffff == 12         # MADV_MERGEABLE: equal pages shared with strangers show by their timing
allow madvise
# ---- locks: waiting and waking inside the process (FUTEX_PRIVATE_FLAG; WAIT, WAKE and the two _BITSETs), none that lie in
# files other calls have mapped too, none of the other operations
allow futex if a1 & 0xfffffeff == 0x80
allow futex if a1 & 0xfffffeff == 0x81
allow futex if a1 & 0xfffffeff == 0x89
allow futex if a1 & 0xfffffeff == 0x8a
allow sched_yield
# ---- signals to itself, by the kernel; SIGSYS stays ours
trap rt_sigaction if a0 & 0xffffffff == 31
allow rt_sigaction rt_sigprocmask rt_sigreturn sigaltstack restart_syscall
# ---- time and chance; the named clocks only, the others tell how much another process computes
allow clock_gettime clock_getres clock_nanosleep if a0 & 0xfffffff0 == 0
allow gettimeofday time nanosleep getrandom times getrusage
# ---- facts about itself
allow getpid getppid gettid getuid geteuid getgid getegid
# ---- event loops it was born with
allow epoll_wait epoll_pwait epoll_ctl poll ppoll select timer_settime timer_delete
# ---- asked for by libraries in passing, where "no" is an answer
errno EPERM sysinfo sched_getaffinity prlimit64 getrlimit
errno EPERM ioctl if a1 & 0xffffffff == 0x5401       # is this a terminal?
errno EPERM prctl if a0 & 0xffffffff == 0x53564d41   # names for memory
allow exit exit_group
