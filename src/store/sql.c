/* Every statement the store prepares. Values are bound in the order in which
 * rows.c and events.c give them. */
#include "store/db.h"

/* clang-format off */
#define SANDBOX_COLS "id,name,box_id,template_id,template_name,tier,state,cpu_millis,memory_mib,disk_mib,timeout_s,on_timeout," \
    "created_wall_ns,started_wall_ns,expires_wall_ns,ended_wall_ns,end_reason,end_message,env_json,metadata_json,options_json," \
    "generation,token,start_path,start_ns,kernel,boot_id,life_json,kept_json"
const char *const store_sql[ST_MAX] = {
    [ST_BEGIN]         = "BEGIN IMMEDIATE",
    [ST_COMMIT]        = "COMMIT",
    [ST_ROLLBACK]      = "ROLLBACK",
    [ST_SANDBOX_PUT]   = "INSERT OR REPLACE INTO sandboxes(" SANDBOX_COLS ") VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
    [ST_SANDBOX_DEL]   = "DELETE FROM sandboxes WHERE id=?",
    [ST_SANDBOX_ALL]   = "SELECT " SANDBOX_COLS " FROM sandboxes ORDER BY created_wall_ns,id",
    [ST_TEMPLATE_PUT]  = "INSERT OR REPLACE INTO templates(id,name,created_wall_ns,source,parent,json) VALUES(?,?,?,?,?,?)",
    [ST_TEMPLATE_DEL]  = "DELETE FROM templates WHERE id=?",
    [ST_TEMPLATE_ALL]  = "SELECT id,name,created_wall_ns,source,parent,json FROM templates ORDER BY created_wall_ns,id",
    /* Not OR REPLACE: that would also sweep away another key with the same hash. */
    [ST_KEY_PUT]       = "INSERT INTO keys(id,name,prefix,sha256,created_wall_ns,last_used_wall_ns,revoked_wall_ns,tenant,role,scope,expires_wall_ns) VALUES(?,?,?,?,?,?,?,?,?,?,?)"
                         " ON CONFLICT(id) DO UPDATE SET name=excluded.name,prefix=excluded.prefix,sha256=excluded.sha256,"
                         "created_wall_ns=excluded.created_wall_ns,last_used_wall_ns=excluded.last_used_wall_ns,revoked_wall_ns=excluded.revoked_wall_ns,"
                         "tenant=excluded.tenant,role=excluded.role,scope=excluded.scope,expires_wall_ns=excluded.expires_wall_ns",
    [ST_KEY_TOUCH]     = "UPDATE keys SET last_used_wall_ns=?2 WHERE id=?1 AND last_used_wall_ns<?2",
    [ST_KEY_DEL]       = "DELETE FROM keys WHERE id=?",
    [ST_KEY_ALL]       = "SELECT id,name,prefix,sha256,created_wall_ns,last_used_wall_ns,revoked_wall_ns,tenant,role,scope,expires_wall_ns FROM keys ORDER BY created_wall_ns,id",
    [ST_SECRET_PUT]    = "INSERT OR REPLACE INTO secrets(name,sandbox,sealed,created_wall_ns,updated_wall_ns,calls_max,bytes_max,calls,bytes,id,metadata,version) VALUES(?,?,?,?,?,?,?,?,?,?,?,?)",
    [ST_SECRET_DEL]    = "DELETE FROM secrets WHERE name=?",
    [ST_SECRET_ALL]    = "SELECT name,sandbox,sealed,created_wall_ns,updated_wall_ns,calls_max,bytes_max,calls,bytes,id,metadata,version FROM secrets ORDER BY name",
    [ST_META_PUT]      = "INSERT OR REPLACE INTO meta(k,v) VALUES(?,?)",
    [ST_META_DEL]      = "DELETE FROM meta WHERE k=?",
    [ST_META_GET]      = "SELECT v FROM meta WHERE k=?",
    /* Not OR REPLACE: that would also sweep away another volume with the same name. */
    [ST_VOLUME_PUT]    = "INSERT INTO volumes(id,name,state,size_mib,inodes,created_wall_ns,token) VALUES(?,?,?,?,?,?,?)"
                         " ON CONFLICT(id) DO UPDATE SET name=excluded.name,state=excluded.state,size_mib=excluded.size_mib,inodes=excluded.inodes,"
                         "created_wall_ns=excluded.created_wall_ns,token=excluded.token",
    [ST_VOLUME_DEL]    = "DELETE FROM volumes WHERE id=?",
    [ST_VOLUME_ALL]    = "SELECT id,name,state,size_mib,inodes,created_wall_ns,token FROM volumes ORDER BY created_wall_ns,id",
    [ST_ATTACH_PUT]    = "INSERT OR REPLACE INTO attachments(sandbox,path,volume,read_only) VALUES(?,?,?,?)",
    [ST_ATTACH_DEL]    = "DELETE FROM attachments WHERE sandbox=?",
    [ST_ATTACH_ALL]    = "SELECT sandbox,path,volume,read_only FROM attachments ORDER BY sandbox,path",
    [ST_SNAPSHOT_PUT]  = "INSERT OR REPLACE INTO snapshots(id,name,created_wall_ns,json) VALUES(?,?,?,?)",
    [ST_SNAPSHOT_DEL]  = "DELETE FROM snapshots WHERE id=?",
    [ST_SNAPSHOT_ALL]  = "SELECT id,name,created_wall_ns,json FROM snapshots ORDER BY created_wall_ns,id",
    [ST_EVENT_ADD]     = "INSERT INTO events(seq,at_wall_ns,type,sandbox,data_json) VALUES(?,?,?,?,?)",
    [ST_EVENT_PRUNE]   = "DELETE FROM events WHERE seq<=(SELECT max(seq) FROM events)-?",
    [ST_EVENT_LAST]    = "SELECT coalesce(max(seq),0) FROM events",
    [ST_EVENT_LIST]    = "SELECT seq,at_wall_ns,type,sandbox,data_json FROM events WHERE seq>?1 AND ?2 IS NULL ORDER BY seq LIMIT ?3",
    [ST_EVENT_LIST_OF] = "SELECT seq,at_wall_ns,type,sandbox,data_json FROM events WHERE seq>?1 AND sandbox=?2 ORDER BY seq LIMIT ?3",
};
/* clang-format on */
