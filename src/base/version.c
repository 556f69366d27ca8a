#include "base/version.h"
#ifndef HUTCH_COMMIT /* the Makefile has it from tools/version */
#define HUTCH_COMMIT ""
#endif
const char version_full[] = HUTCH_VERSION HUTCH_COMMIT;
