/* Each entry is one version. They run inside one transaction together with the
 * new user_version, so a crash leaves either the old or the new schema. */
#include "store/migrate.h"
#include "store/db.h"
#include <sqlite3.h>
#include <stdio.h>

static const char *const step[] = {
    /* 001 start */
    "CREATE TABLE sandboxes("
    " id TEXT PRIMARY KEY, name TEXT, box_id TEXT, template_id TEXT, template_name TEXT, tier TEXT, state TEXT NOT NULL,"
    " cpu_millis INTEGER NOT NULL, memory_mib INTEGER NOT NULL, disk_mib INTEGER NOT NULL, timeout_s INTEGER NOT NULL,"
    " on_timeout TEXT, created_wall_ns INTEGER NOT NULL, started_wall_ns INTEGER NOT NULL, expires_wall_ns INTEGER NOT NULL,"
    " ended_wall_ns INTEGER NOT NULL, end_reason TEXT, end_message TEXT, env_json TEXT, metadata_json TEXT, network_json TEXT,"
    " generation INTEGER NOT NULL, token TEXT, start_path TEXT, start_ns INTEGER NOT NULL, kernel TEXT, boot_id TEXT"
    ") STRICT, WITHOUT ROWID;"
    "CREATE TABLE templates("
    " id TEXT PRIMARY KEY, name TEXT NOT NULL, created_wall_ns INTEGER NOT NULL, source TEXT, parent TEXT, json TEXT"
    ") STRICT, WITHOUT ROWID;"
    "CREATE TABLE keys("
    " id TEXT PRIMARY KEY, name TEXT, prefix TEXT NOT NULL, sha256 TEXT NOT NULL UNIQUE, created_wall_ns INTEGER NOT NULL,"
    " last_used_wall_ns INTEGER NOT NULL, revoked_wall_ns INTEGER NOT NULL"
    ") STRICT, WITHOUT ROWID;"
    "CREATE TABLE events("
    " seq INTEGER PRIMARY KEY, at_wall_ns INTEGER NOT NULL, type TEXT NOT NULL, sandbox TEXT, data_json TEXT"
    ") STRICT;"
    "CREATE INDEX events_of_sandbox ON events(sandbox, seq) WHERE sandbox IS NOT NULL;"
    "CREATE TABLE meta(k TEXT PRIMARY KEY, v TEXT NOT NULL) STRICT, WITHOUT ROWID;",
    /* volumes */
    "CREATE TABLE volumes("
    " id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, state TEXT NOT NULL, size_mib INTEGER NOT NULL, inodes INTEGER NOT NULL,"
    " created_wall_ns INTEGER NOT NULL, token TEXT NOT NULL"
    ") STRICT, WITHOUT ROWID;"
    "CREATE TABLE attachments("
    " sandbox TEXT NOT NULL, path TEXT NOT NULL, volume TEXT NOT NULL, read_only INTEGER NOT NULL, PRIMARY KEY(sandbox, path)"
    ") STRICT, WITHOUT ROWID;",
    /* secrets, sealed */
    "CREATE TABLE secrets("
    " name TEXT PRIMARY KEY, sandbox TEXT, sealed TEXT NOT NULL, created_wall_ns INTEGER NOT NULL, updated_wall_ns INTEGER NOT NULL,"
    " calls_max INTEGER NOT NULL, bytes_max INTEGER NOT NULL, calls INTEGER NOT NULL, bytes INTEGER NOT NULL"
    ") STRICT, WITHOUT ROWID;",
    /* pause, snapshots */
    "ALTER TABLE sandboxes ADD COLUMN life_json TEXT;"
    "CREATE TABLE snapshots("
    " id TEXT PRIMARY KEY, name TEXT, created_wall_ns INTEGER NOT NULL, json TEXT NOT NULL"
    ") STRICT, WITHOUT ROWID;",
    /* secrets have ids, versions and metadata */
    "ALTER TABLE secrets ADD COLUMN id TEXT;"
    "ALTER TABLE secrets ADD COLUMN version INTEGER NOT NULL DEFAULT 1;"
    "ALTER TABLE secrets ADD COLUMN metadata TEXT;",
    /* what a sandbox keeps has members; the map that held it is read once more and then empty */
    "ALTER TABLE sandboxes RENAME COLUMN network_json TO options_json;"
    "ALTER TABLE sandboxes ADD COLUMN kept_json TEXT;",
    /* rights: keys have a tenant, a role, a scope and an end */
    "ALTER TABLE keys ADD COLUMN tenant TEXT;"
    "ALTER TABLE keys ADD COLUMN role TEXT;"
    "ALTER TABLE keys ADD COLUMN scope TEXT;"
    "ALTER TABLE keys ADD COLUMN expires_wall_ns INTEGER NOT NULL DEFAULT 0;",
};
const int migrate_known = sizeof step / sizeof *step;

static int version(sqlite3 *db, int *ret, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(db, "PRAGMA user_version", -1, &st, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(st);
    if (rc == SQLITE_ROW)
        *ret = sqlite3_column_int(st, 0);
    sqlite3_finalize(st);
    return rc == SQLITE_ROW ? 0 : db_err(e, db, rc, "read the schema version");
}

int migrate(sqlite3 *db, struct err *e)
{
    int have = 0;
    if (version(db, &have, e))
        return -1;
    if (have > migrate_known)
        return err_set(e, E_UNSUPPORTED, "the state database has schema version %d, this hutch knows up to %d: install the newer hutch, or "
                                         "use another HUTCH_HOME", have, migrate_known);
    if (have < 0)
        return err_set(e, E_INTERNAL, "the state database carries an impossible schema version (%d)", have);
    if (have == migrate_known)
        return 0;
    int rc = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    for (int i = have; rc == SQLITE_OK && i < migrate_known; i++)
        rc = sqlite3_exec(db, step[i], NULL, NULL, NULL);
    char set[48];
    (void)snprintf(set, sizeof set, "PRAGMA user_version=%d", migrate_known);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(db, set, NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        return 0;
    db_err(e, db, rc, "bring the schema up to date");
    if (!sqlite3_get_autocommit(db))
        (void)sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL); /* the first error is the one to tell */
    return -1;
}
