/* Which hutch this is. HUTCH_VERSION, the release, is a macro that every file
 * sees; the commit is in one object, so that a new one rebuilds one file. The
 * agent does not use it: its bytes are part of what templates are made from. */
#pragma once
extern const char
    version_full[]; /* "0.1.0 (1a2b3c4d5e, 2026-01-31)", or "0.1.0" where the commit is not known */
