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
allow brk munmap mremap madvise
# ---- threads it had when it was born wait for each other
allow futex sched_yield
maybe allow futex_wake futex_wait futex_waitv
# ---- signals to itself, by the kernel; SIGSYS stays ours
trap rt_sigaction if a0 & 0xffffffff == 31
allow rt_sigaction rt_sigprocmask rt_sigreturn sigaltstack restart_syscall
# ---- time and chance
allow clock_gettime clock_getres gettimeofday time clock_nanosleep nanosleep getrandom times getrusage
# ---- facts about itself
allow getpid getppid gettid getuid geteuid getgid getegid
# ---- event loops it was born with
allow epoll_wait epoll_pwait epoll_ctl poll ppoll select timer_settime timer_delete
# ---- asked for by libraries in passing, where "no" is an answer
errno EPERM sysinfo sched_getaffinity prlimit64 getrlimit
errno EPERM ioctl if a1 & 0xffffffff == 0x5401       # is this a terminal?
errno EPERM prctl if a0 & 0xffffffff == 0x53564d41   # names for memory
allow exit exit_group
