/* Remove a folder of ours with everything below it. Blocking; for workers. */
#pragma once
#include "base/err.h"
int tree_remove(int dirfd, const char *name,
                struct err *e); /* absent is fine; never follows links */
