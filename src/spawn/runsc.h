/* Where runsc is, gVisor's program: the first of HUTCH_RUNSC, the folder of hutch's own programs, and the usual places. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

/* It need not be any good: who runs it looks at its owner (op_gvisor.c). */
bool runsc_find(const char *bin, char *ret, size_t cap);
