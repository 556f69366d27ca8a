/* Entry, the form in which filesystem.Filesystem shows a file. */
#pragma once
#include "core/sandbox/files.h"
#include "json/write.h"

void put_fs_entry(struct jw *w, const struct file_entry *en);
/* "-rw-r--r--", "drwxr-xr-x", "Lrwxrwxrwx" (capital L, as Go prints links). */
void fs_permissions(char type, uint32_t mode, char out[11]);
/* "metadata":{…} from the user.e2b.* attributes; nothing if there are none. */
void put_fs_metadata(struct jw *w, const char *const *xattr);
