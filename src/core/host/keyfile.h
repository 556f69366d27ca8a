/* A secret of 32 bytes in a file of the home, as hex: made on first use, for the daemon's eyes alone. Blocks. */
#pragma once
#include "base/err.h"
#define KEYFILE_BYTES 32
int keyfile_parse(const char *text, const char *what, unsigned char ret[KEYFILE_BYTES],
                  struct err *e);
int keyfile_load(int home_fd, const char *name, unsigned char ret[KEYFILE_BYTES], struct err *e);
