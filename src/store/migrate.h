/* Schema, as a list of migrations; PRAGMA user_version says how many were
 * applied. A released migration is never edited, only followed by another. */
#pragma once
#include "base/err.h"
struct sqlite3;
extern const int migrate_known; /* the version this program writes */
int migrate(struct sqlite3 *db, struct err *e); /* all missing ones in one transaction; E_UNSUPPORTED if the file is newer */
