#include "api/schema.h"
#include <stdlib.h>

/* clang-format off */
const struct schema schemas[] = {
    {"Error", "code!:s message!:s hint:s request_id!:s"},
    {"Problem", "error!:Error"},
    /* sandboxes */
    {"SandboxCreate", "template:s snapshot:s memory:b name:s isolation:=auto|vm|container|isolate cpu:n memory_mib:i disk_mib:i timeout_s:i on_timeout:=kill|pause idle_timeout_s:i on_idle:=kill|pause max_lifetime_s:i auto_resume:b env:m metadata:m network:Network preview:=public|token volumes:[VolumeMount] tenant:s"},
    {"VolumeMount", "name!:s path!:s read_only:b"},
    {"Attachment", "name!:s volume_id!:s path!:s read_only!:b"},
    {"SandboxPatch", "name:s? metadata:m timeout_s:i on_timeout:=kill|pause idle_timeout_s:i on_idle:=kill|pause"},
    {"SandboxTimeout", "timeout_s!:i"},
    {"KeepAlive", "timeout_s:i"},
    {"SandboxRecover", "timeout_s:i"},
    {"Recovered", "sandbox!:Sandbox lost!:[s]"},
    {"SandboxPause", "memory:b standby:b"},
    {"SandboxResume", "timeout_s:i memory:b"},
    {"SnapshotCreate", "name:s memory:b expires_s:i keep_last:i path:s"},
    {"Restore", "snapshot!:s path:s"},
    {"Snapshot", "id!:s name!:s? sandbox!:s? template!:s template_id!:s tier!:=vm|container memory!:b cpu!:n memory_mib!:i disk_mib!:i created_at!:t "
                 "expires_at!:t? parent!:s? memory_bytes!:i disk_bytes!:i downtime_ms!:n users!:i path!:s? tenant!:s? signer!:s?"},
    {"Usage", "tenant!:s? snapshots!:i snapshot_bytes!:i paused!:i paused_bytes!:i bytes!:i limit_bytes!:i?"},
    {"UsageList", "tenants!:[Usage]"},
    {"Tenant", "name!:s connections!:i? bytes_per_second!:i? bytes_per_day!:i? held_bytes!:i? running!:i? memory_mib!:i? ceiling!:o?"},
    {"HostLimits", "connections!:i? bytes_per_second!:i? ceiling!:o?"},
    {"TenantList", "host!:HostLimits tenants!:[Tenant]"},
    {"Signer", "name!:s key!:s"},
    {"SignerList", "own!:s signers!:[Signer]"},
    {"SignerPut", "key!:s"},
    {"SnapshotList", "snapshots!:[Snapshot] next!:s? bytes!:i"},
    {"SandboxRollback", "snapshot!:s memory:b"},
    {"SandboxFork", "count:i timeout_s:i memory:b"},
    {"Forked", "sandbox:Sandbox error:Error"},
    {"ForkList", "forks!:[Forked] memory!:b downtime_ms!:n"},
    {"Paused", "kind!:=disk|standby memory!:b at!:t? bytes!:i reason!:=call|timeout|idle|shutdown|quota"},
    {"Network", "mode:=none|allow|open allow:[v] deny:[v] presets:[s] inject:[NetworkInject] limits:NetworkLimits leads_to:[s] limited:s"},
    {"NetworkInject", "domain!:s ports:[v] methods:[s] paths:[s] secret:s value:s header:s format:s placeholder:s"},
    {"NetworkLimits", "connections:i bytes_per_second:i bytes:i dns_per_second:i"},
    {"NetworkChanged", "network!:Network cut!:i"},
    {"EgressRecord", "seq!:i time!:t kind!:=dns|open|close|deny|http|fail|cut|policy box:s sandbox:s conn:i name:s type:s addr:s port:i method:s path:s status:i "
                     "in:i out:i ms:i verdict:s rule:s reason:s secret:s hash!:s"},
    {"EgressList", "records!:[EgressRecord] next!:s? verified!:i"},
    {"Url", "url!:s token!:s? header!:s?"},
    {"SecretPut", "value!:s calls_max:i bytes_max:i"},
    {"Secret", "name!:s created_at!:t updated_at!:t calls_max!:i bytes_max!:i calls!:i bytes!:i"},
    {"SecretList", "secrets!:[Secret]"},
    {"Isolation", "tier!:=vm|container|isolate boundary!:s accel!:=kvm|tcg|none"},
    {"Start", "path!:s ms!:n"},
    {"End", "reason!:=killed|timeout|idle|oom|guest-exit|host-fault|quota|shutdown|max-lifetime message!:s? at!:t?"},
    {"Sandbox", "id!:s name!:s? template!:s template_id!:s tenant!:s? state!:=creating|running|pausing|paused|stopping|gone|failed isolation!:Isolation cpu!:n "
                "memory_mib!:i disk_mib!:i timeout_s!:i on_timeout!:=kill|pause idle_timeout_s!:i on_idle!:=kill|pause max_lifetime_s!:i auto_resume!:b paused!:Paused? created_at!:t started_at!:t? expires_at!:t? metadata!:m "
                "network!:Network volumes!:[Attachment] snapshot!:s? box!:s? generation!:i kernel!:s? start!:Start? end!:End?"},
    {"SandboxList", "sandboxes!:[Sandbox] next!:s?"},
    {"SandboxMetrics", "cpu_ns!:i cpu_count!:i memory_used!:i memory_cache!:i memory_total!:i disk_used!:i disk_total!:i processes!:i at!:t"},
    /* commands */
    {"WindowSize", "cols:i rows:i"},
    {"Exec", "cmd!:a cwd:s user:s env:m stdin:s stdin_base64:x timeout_ms:i stream:b background:b keep_stdin:b tag:s max_output:i pty:WindowSize"},
    {"Exit", "kind!:=exit|signal|oom|timeout code:i signal:i name:s timeout_ms:i"},
    {"ExecResult", "pid!:i exit!:Exit stdout:s stdout_base64:x stderr:s stderr_base64:x stdout_bytes!:i stderr_bytes!:i truncated!:b duration_ms!:n"},
    {"ExecStarted", "pid!:i tag!:s?"},
    {"ExecEvent", "event!:=started|stdout|stderr|lost|keepalive|exit|interrupted pid:i offset:i data:s data_base64:x bytes:i exit:Exit duration_ms:n? error:Error"},
    {"Process", "pid!:i tag!:s? cmd!:[s] cwd!:s? user!:s? started_at!:t output_bytes!:i running!:b pty!:b exit!:Exit?"},
    {"ProcessList", "processes!:[Process]"},
    {"Signal", "signal!:e group:b"},
    /* code contexts */
    {"Eval", "code!:s language:s context:s env:m stream:b timeout_ms:i max_output:i"},
    {"EvalError", "name!:s value!:s traceback!:s"},
    {"EvalOutput", "main!:b data!:o"},
    {"EvalResult", "context!:s language!:s execution_count!:i stdout!:s stderr!:s results!:[EvalOutput] error!:EvalError? status!:=ok|error|interrupted|timeout|lost "
                   "state_lost!:b truncated!:b cut_output_bytes!:i cut_results!:i duration_ms!:n problem!:Error?"},
    {"EvalEvent", "event!:=started|count|stdout|stderr|result|error|keepalive|end context:s language:s execution_count:i text:s at:t main:b data:o name:s value:s "
                  "traceback:s status:=ok|error|interrupted|timeout|lost state_lost:b truncated:b cut_output_bytes:i cut_results:i duration_ms:n problem:Error?"},
    {"ContextCreate", "language:s cwd:s env:m"},
    {"Context", "id!:s language!:=python|javascript|typescript|bash|r|java cwd!:s state!:=new|starting|idle|busy default!:b cells!:i"},
    {"ContextList", "contexts!:[Context]"},
    /* isolates */
    {"Program", "language!:=python|js|php|ruby code!:s input:v function:s template:s timeout_ms:i cpu_ms:i memory_mib:i max_output:i"},
    {"ProgramError", "code!:=exception|not_json|exit|timeout|cpu|memory|output|forbidden|crashed message!:s hint:s type:s traceback:s syscall:s?"},
    {"ProgramUsage", "wall_ms!:n cpu_ms!:n memory_bytes!:i"},
    {"ProgramResult", "value!:v stdout:s stdout_base64:x stderr:s stderr_base64:x error!:ProgramError? exit_code!:i? signal!:i? language!:s template!:s "
                   "isolation!:Isolation usage!:ProgramUsage duration_ms!:n"},
    /* files */
    {"Entry", "name!:s path!:s type!:=file|dir|symlink|other size!:i mode!:s uid!:i gid!:i owner!:s? group!:s? modified_at!:t target!:s?"},
    {"EntryList", "entries!:[Entry]"},
    {"FileMove", "from!:s to!:s user:s"},
    {"FileAttr", "path!:s mode:s owner:s group:s user:s"},
    {"FileSymlink", "target!:s path!:s user:s"},
    /* volumes */
    {"VolumeCreate", "name!:s size_mib:i inodes:i"},
    {"VolumeUser", "sandbox!:s path!:s read_only!:b"},
    {"Volume", "id!:s name!:s size_mib!:i inodes!:i? created_at!:t attached!:[VolumeUser] disk_bytes!:i?"},
    {"VolumeList", "volumes!:[Volume]"},
    /* templates */
    {"TemplateCreate", "name:s builtin!:s force:b"},
    {"Template", "id!:s name!:s created_at!:t source!:=bootstrap|recipe|import|pack parent!:s? size_bytes!:i disk_min_mib!:i warm!:[s] kernels!:[s]"},
    {"TemplateList", "templates!:[Template]"},
    {"BuildEvent", "event!:=progress|log|keepalive|done|error percent:i step:s line:s template:Template error:Error"},
    /* keys, events, the daemon */
    {"KeyCreate", "name!:s"},
    {"KeyCreated", "id!:s name!:s key!:s"},
    {"Key", "id!:s name!:s prefix!:s created_at!:t last_used_at!:t?"},
    {"KeyList", "keys!:[Key]"},
    {"Event", "seq!:i at!:t type!:s sandbox!:s? data!:o"},
    {"EventList", "events!:[Event]"},
    {"LogEntry", "at!:t level!:s message!:s"},
    {"Logs", "entries!:[LogEntry]"},
    {"Console", "lines!:[s]"},
    {"Health", "status!:s version!:s pid!:i"},
    {"Check", "name!:s status!:=ok|warn|fail found!:s lost!:s mend!:s"},
    {"Doctor", "checks!:[Check]"},
    {"Shutdown", "keep:b"},
    {"OpenAPI", "openapi!:s info!:o paths!:o components!:o"},
};
/* clang-format on */
const size_t nschemas = sizeof schemas / sizeof *schemas;

const struct schema *schema_find(struct str name)
{
    for (size_t i = 0; i < nschemas; i++)
        if (str_eqz(name, schemas[i].name))
            return &schemas[i];
    return NULL;
}

bool schema_next(const char **at, struct schema_member *m)
{
    const char *p = *at + strspn(*at, " ");
    size_t n = strcspn(p, " ");
    const char *colon = memchr(p, ':', n);
    *at = p + n;
    if (!colon)
        return false;
    m->name = (struct str){p, (size_t)(colon - p)};
    m->type = (struct str){colon + 1, n - m->name.n - 1};
    m->required = m->name.p[m->name.n - 1] == '!';
    m->name.n -= m->required;
    m->null = m->type.n && m->type.p[m->type.n - 1] == '?';
    m->type.n -= m->null;
    return true;
}

int schema_only(struct json *obj, const char *name, struct err *e)
{
    const struct schema *s = schema_find(str_of(name));
    if (!s)
        abort(); /* a handler names a schema that is not in the table */
    for (void *it = json_first(obj); it; it = json_next(obj, it)) {
        struct str k = json_iter_key(it);
        struct schema_member m;
        const char *at = s->members;
        bool known = false;
        while (!known && schema_next(&at, &m))
            known = str_eq(m.name, k);
        if (!known)
            return json_fail(json_iter_value(obj, it), e, "unknown member");
    }
    return 0;
}

static void put_enum(struct jw *w, struct str list)
{
    jw_kv_str(w, "type", "string");
    jw_kv_arr(w, "enum");
    while (list.n) {
        const char *bar = memchr(list.p, '|', list.n);
        size_t n = bar ? (size_t)(bar - list.p) : list.n;
        jw_str(w, (struct str){list.p, n});
        list.p += n + !!bar, list.n -= n + !!bar;
    }
    jw_end(w);
}

static void put_plain(struct jw *w, const char *type, const char *format)
{
    jw_kv_str(w, "type", type);
    if (format)
        jw_kv_str(w, "format", format);
}

static void put_inner(struct jw *w, struct str t)
{
    switch (t.n == 1 || *t.p == '=' || *t.p == '[' ? *t.p : 0) {
    case 's': put_plain(w, "string", NULL); break;
    case 'i': put_plain(w, "integer", NULL); break;
    case 'n': put_plain(w, "number", NULL); break;
    case 'b': put_plain(w, "boolean", NULL); break;
    case 't': put_plain(w, "string", "date-time"); break;
    case 'x': put_plain(w, "string", "byte"); break;
    case 'o': put_plain(w, "object", NULL); break;
    case 'v': break; /* anything: the schema that allows all */
    case 'm':
        put_plain(w, "object", NULL);
        jw_kv_raw(w, "additionalProperties", S("{\"type\":\"string\"}"));
        break;
    case 'e': jw_kv_raw(w, "type", S("[\"string\",\"integer\"]")); break;
    case 'a': jw_kv_raw(w, "oneOf", S("[{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"minItems\":1},{\"type\":\"string\"}]")); break;
    case '=': put_enum(w, (struct str){t.p + 1, t.n - 1}); break;
    case '[':
        put_plain(w, "array", NULL);
        jw_key(w, "items");
        schema_put_type(w, (struct str){t.p + 1, t.n - 2}, false);
        break;
    default: {
        auto_buf ref = {0};
        buf_printf(&ref, "#/components/schemas/%.*s", (int)t.n, t.p);
        jw_kv_strn(w, "$ref", (struct str){ref.p, ref.n});
    }
    }
}

void schema_put_type(struct jw *w, struct str t, bool null)
{
    jw_obj(w);
    if (null) { /* OpenAPI 3.1: null is a type of its own */
        jw_kv_arr(w, "anyOf");
        jw_obj(w);
        put_inner(w, t);
        jw_end(w);
        jw_raw(w, S("{\"type\":\"null\"}"));
        jw_end(w);
    } else {
        put_inner(w, t);
    }
    jw_end(w);
}

void schema_put(struct jw *w, const struct schema *s)
{
    struct schema_member m;
    bool any = false;
    jw_obj(w);
    jw_kv_str(w, "type", "object");
    jw_kv_obj(w, "properties");
    for (const char *at = s->members; schema_next(&at, &m);) {
        jw_key_str(w, m.name);
        schema_put_type(w, m.type, m.null);
        any |= m.required;
    }
    jw_end(w);
    if (any) {
        jw_kv_arr(w, "required");
        for (const char *at = s->members; schema_next(&at, &m);)
            if (m.required)
                jw_str(w, m.name);
        jw_end(w);
    }
    jw_end(w);
}
