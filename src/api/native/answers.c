#include "api/native/answers.h"
#include "core/host/rights.h"
#include "core/network/network.h"

/* A member that is always there; that is always there and may be null; that may be missing. */
#define ALWAYS(name_, type_, help_, ...) \
    { \
        .name = (name_), .type = (type_), .flags = F_REQUIRED, .help = (help_), __VA_ARGS__ \
    }
#define OR_NULL(name_, type_, help_, ...) \
    { \
        .name = (name_), .type = (type_), .flags = F_REQUIRED | F_NULL, .help = (help_), \
        __VA_ARGS__ \
    }
#define MAYBE(name_, type_, help_, ...) \
    { \
        .name = (name_), .type = (type_), .help = (help_), __VA_ARGS__ \
    }
#define ROWS(name_) static const struct field name_[]

#define ID_OF(letter) "\"" letter "4k0v2m8q1x7c5d9s3f6h\""
#define KILL_PAUSE    "kill|pause"

/* ---- errors ---- */
ROWS(error_rows) = {
    ALWAYS("code", F_STR, "One word for programs; the intro lists them.", .ex = "\"not_found\""),
    ALWAYS("message", F_STR, "A sentence that names the object and the limit.",
           .ex = "\"sandbox 'x' does not exist\""),
    MAYBE("reason", F_STR, "What happened, more exactly than the code; one word for programs.",
          .ex = "\"unknown_sandbox\""),
    MAYBE("hint", F_STR, "What to do about it.", .ex = "\"GET /v1/sandboxes lists the sandboxes\""),
    ALWAYS("request_id", F_STR, "The same id is in the daemon's log.", .ex = "\"r7d2k9\""),
};
static const struct shape error_shape = SHAPE("Error", error_rows);
ROWS(problem_rows) = {ALWAYS("error", F_OBJ, NULL, .of = &error_shape)};
const struct shape problem_shape = SHAPE("Problem", problem_rows);
const struct shape nothing_shape = {.name = "Nothing", .help = "An empty object."};

/* ---- network: sent and answered ---- */
ROWS(rule_rows) = {
    MAYBE("domain", F_STR, "A host name, or `*.example.org`, or `*`.", .ex = "\"api.example.org\""),
    MAYBE("cidr", F_STR, "An address or a range, in place of a domain.", .ex = "\"192.0.2.0/24\""),
    MAYBE("ports", F_PORTS,
          "Ports and ranges. Without them 80 and 443 for the web, all for an address.",
          .ex = "[443]"),
    MAYBE("protocol", F_WORD, "What may be spoken.", .words = "web|http|tls|tcp|udp|any"),
    MAYBE("methods", F_STRS, "HTTP methods; the connection is then read.", .ex = "[\"GET\"]"),
    MAYBE("paths", F_STRS, "HTTP paths; `*` matches any text.", .ex = "[\"/v1/*\"]"),
    MAYBE("websocket", F_BOOL, "With methods or paths: a request may become a WebSocket."),
    MAYBE("final", F_BOOL, "In `deny`: no allow rule beats it."),
    MAYBE("id", F_STR, "A name for the rule in the egress log.", .ex = "\"api\""),
};
static const struct shape rule_shape = SHAPE("NetworkRule", rule_rows);
ROWS(inject_rows) = {
    ALWAYS("domain", F_STR, "The host whose requests get the secret.", .ex = "\"api.example.org\""),
    MAYBE("ports", F_PORTS, "Ports; without them 443.", .ex = "[443]"),
    MAYBE("methods", F_STRS, "Only requests with these methods."),
    MAYBE("paths", F_STRS, "Only requests for these paths."),
    MAYBE("websocket", F_BOOL, "It may go into a request that becomes a WebSocket."),
    MAYBE("secret", F_STR, "The name of a stored secret.", .ex = "\"api-token\""),
    MAYBE("value", F_TEXT, "The secret itself, in place of a name. It is never shown again."),
    MAYBE("header", F_STR, "The header that carries it.", .ex = "\"Authorization\""),
    MAYBE("format", F_STR, "The text of the header, with `{secret}` once.",
          .ex = "\"Bearer {secret}\""),
    MAYBE("placeholder", F_STR, "In place of a header: this text in a request becomes the secret."),
};
static const struct shape inject_shape = SHAPE("NetworkInject", inject_rows);
ROWS(limit_rows) = {
    MAYBE("connections", F_INT, "Connections open at once. 0: the operator's default.",
          .max = POLICY_COUNT_MAX),
    MAYBE("bytes_per_second", F_INT, "Bytes in a second, both ways together. 0: no limit.",
          .max = POLICY_BYTES_MAX),
    MAYBE("bytes", F_INT, "Bytes in all. 0: no limit.", .max = POLICY_BYTES_MAX),
    MAYBE("dns_per_second", F_INT, "DNS questions in a second. 0: the default.",
          .max = POLICY_COUNT_MAX),
};
static const struct shape limits_shape = SHAPE("NetworkLimits", limit_rows);
ROWS(network_rows) = {
    MAYBE("mode", F_WORD,
          "`none`: nothing. `allow`: what the rules name. `open`: the public internet.",
          .words = "none|allow|open"),
    MAYBE("allow", F_RULES, "What it may reach: host names, or rules.", .of = &rule_shape,
          .max = POLICY_RULES_MAX),
    MAYBE("deny", F_RULES, "What it may not reach.", .of = &rule_shape, .max = POLICY_RULES_MAX),
    MAYBE("presets", F_STRS, "Package registries by name, such as `pip` and `npm`."),
    MAYBE("inject", F_LIST, "Secrets that are put into its requests; it never sees them.",
          .of = &inject_shape, .max = POLICY_INJECT_MAX),
    MAYBE("limits", F_OBJ, "How much it may use.", .of = &limits_shape),
    MAYBE("leads_to", F_STRS, "Answered: the hosts that the presets stand for. Ignored when sent."),
    MAYBE("limited", F_STR,
          "Answered: what the operator's ceiling takes from this policy. Ignored when sent."),
};
const struct shape network_shape =
    SHAPE("Network", network_rows, .help = "What a sandbox may reach. See network.md.");
ROWS(network_changed_rows) = {
    ALWAYS("network", F_OBJ, "The policy now in force.", .of = &network_shape),
    ALWAYS("cut", F_INT, "Open connections that it denies, and that were closed."),
};
const struct shape network_changed_shape = SHAPE("NetworkChanged", network_changed_rows);
ROWS(egress_rows) = {
    ALWAYS("seq", F_INT, "The number of the record.", .ex = "12"),
    ALWAYS("time", F_TIME, "When."),
    ALWAYS("kind", F_WORD, "What happened.", .words = "dns|open|close|deny|http|fail|cut|policy"),
    MAYBE("box", F_STR, "The box it ran in."),
    MAYBE("sandbox", F_STR, "The sandbox."),
    MAYBE("conn", F_INT, "The connection."),
    MAYBE("name", F_STR, "The host name.", .ex = "\"example.org\""),
    MAYBE("type", F_STR, "The type of a DNS question.", .ex = "\"A\""),
    MAYBE("addr", F_STR, "The address."),
    MAYBE("port", F_INT, "The port.", .ex = "443"),
    MAYBE("method", F_STR, "The HTTP method.", .ex = "\"GET\""),
    MAYBE("path", F_STR, "The HTTP path.", .ex = "\"/\""),
    MAYBE("status", F_INT, "The HTTP status.", .ex = "200"),
    MAYBE("in", F_INT, "Bytes to the sandbox."),
    MAYBE("out", F_INT, "Bytes from the sandbox."),
    MAYBE("ms", F_INT, "How long it took, in milliseconds."),
    MAYBE("verdict", F_STR, "`allow` or `deny`.", .ex = "\"allow\""),
    MAYBE("rule", F_STR, "The rule that decided."),
    MAYBE("reason", F_STR, "Why it was denied or failed."),
    MAYBE("secret", F_STR, "The secret that was put in."),
    ALWAYS("hash", F_STR, "Of this record and the hash before it.", .ex = "\"9f86d081…\""),
};
static const struct shape egress_shape = SHAPE("EgressRecord", egress_rows);
ROWS(egress_list_rows) = {
    ALWAYS("records", F_LIST, "Oldest first.", .of = &egress_shape),
    OR_NULL("next", F_STR, "The cursor of the next page.", .ex = "null"),
    ALWAYS("verified", F_INT, "With `verify=1`: records whose hash was checked."),
};
const struct shape egress_list_shape = SHAPE("EgressList", egress_list_rows);
ROWS(secret_rows) = {
    ALWAYS("name", F_STR, "Its name.", .ex = "\"api-token\""),
    ALWAYS("id", F_STR, "Its id.", .ex = ID_OF("k")),
    OR_NULL("tenant", F_STR, "Whose it is; null: the operator's.", .ex = "null"),
    ALWAYS("created_at", F_TIME, "When it was first stored."),
    ALWAYS("updated_at", F_TIME, "When its value last changed."),
    ALWAYS("calls_max", F_INT, "How many requests may use it. 0: no limit."),
    ALWAYS("bytes_max", F_INT, "How many bytes such requests may send. 0: no limit."),
    ALWAYS("calls", F_INT, "Requests that used it."),
    ALWAYS("bytes", F_INT, "Bytes that they sent."),
};
const struct shape secret_shape =
    SHAPE("Secret", secret_rows, .help = "A secret. Its value is never shown.");
ROWS(secret_list_rows) = {ALWAYS("secrets", F_LIST, "All of them.", .of = &secret_shape)};
const struct shape secret_list_shape = SHAPE("SecretList", secret_list_rows);
ROWS(url_rows) = {
    ALWAYS("url", F_STR, "The address of the port.",
           .ex = "\"http://8000-i4k0v2m8q1x7c5d9s3f6h.localhost:4882/\""),
    OR_NULL("token", F_STR, "What requests must carry; null: the port is public.", .ex = "null"),
    OR_NULL("header", F_STR, "The header to send the token in.", .ex = "null"),
};
const struct shape url_shape = SHAPE("Url", url_rows);

/* ---- sandboxes ---- */
ROWS(isolation_rows) = {
    ALWAYS("tier", F_WORD, "How it is isolated.", .words = "vm|gvisor|container|isolate"),
    ALWAYS("boundary", F_STR, "What stands between it and the host.",
           .ex = "\"own kernel under QEMU microvm (kvm), jailed\""),
    ALWAYS("accel", F_WORD, "How a VM's processor is made.", .words = "kvm|tcg|none"),
};
static const struct shape isolation_shape = SHAPE("Isolation", isolation_rows);
ROWS(paused_rows) = {
    ALWAYS("kind", F_WORD, "`standby`: its memory is still in memory.", .words = "disk|standby"),
    ALWAYS("memory", F_BOOL, "Its memory was kept; false: files only.", .ex = "true"),
    OR_NULL("at", F_TIME, "Since when."),
    ALWAYS("bytes", F_INT, "What it takes on disk."),
    ALWAYS("reason", F_WORD, "Why it was paused.", .words = "call|timeout|idle|shutdown|quota"),
};
static const struct shape paused_shape = SHAPE("Paused", paused_rows);
ROWS(attachment_rows) = {
    ALWAYS("name", F_STR, "The name of the volume.", .ex = "\"data\""),
    ALWAYS("volume_id", F_STR, "Its id.", .ex = ID_OF("v")),
    ALWAYS("path", F_STR, "Where it is inside.", .ex = "\"/data\""),
    ALWAYS("read_only", F_BOOL, "The sandbox cannot write to it."),
};
static const struct shape attachment_shape = SHAPE("Attachment", attachment_rows);
ROWS(start_rows) = {
    ALWAYS(
        "path", F_STR,
        "`pool` (restored and waiting), `prestarted` (emulator waiting), `restore`, `slot` (warm container), `cold`, "
        "`resume`, `standby`, `boot` (from files alone) or `snapshot`.",
        .ex = "\"pool\""),
    ALWAYS("ms", F_NUM, "How long it took.", .ex = "2.1"),
};
static const struct shape start_shape = SHAPE("Start", start_rows);
ROWS(end_rows) = {
    ALWAYS("reason", F_WORD, "Why it stopped.",
           .words = "killed|timeout|idle|oom|guest-exit|host-fault|quota|shutdown|max-lifetime"),
    OR_NULL("message", F_STR, "The same in a sentence."),
    OR_NULL("at", F_TIME, "When."),
};
static const struct shape end_shape = SHAPE("End", end_rows);
ROWS(sandbox_rows) = {
    ALWAYS("id", F_STR, "Its id.", .ex = ID_OF("i")),
    OR_NULL("name", F_STR, "Its name.", .ex = "\"demo\""),
    ALWAYS("template", F_STR, "The name of its template.", .ex = "\"base\""),
    ALWAYS("template_id", F_STR, "The id of its template.", .ex = ID_OF("t")),
    OR_NULL("tenant", F_STR, "Whose it is.", .ex = "null"),
    ALWAYS("state", F_WORD, "What it is doing.",
           .words = "creating|running|pausing|paused|stopping|gone|failed", .ex = "\"running\""),
    ALWAYS("isolation", F_OBJ, "What isolates it.", .of = &isolation_shape),
    ALWAYS("cpu", F_NUM, "Cores.", .ex = "1"),
    ALWAYS("memory_mib", F_INT, "Memory in MiB.", .ex = "512"),
    ALWAYS("disk_mib", F_INT, "Disk in MiB.", .ex = "4096"),
    ALWAYS("timeout_s", F_INT, "Seconds until `on_timeout`, from its start or the last extension.",
           .ex = "300"),
    ALWAYS("on_timeout", F_WORD, "What happens then.", .words = KILL_PAUSE),
    ALWAYS("idle_timeout_s", F_INT, "Seconds without work until `on_idle`. 0: never."),
    ALWAYS("on_idle", F_WORD, "What happens then.", .words = KILL_PAUSE),
    ALWAYS("max_lifetime_s", F_INT, "Seconds from its creation, paused or not. 0: no bound."),
    ALWAYS("auto_resume", F_BOOL, "A call that needs it running resumes it."),
    OR_NULL("paused", F_OBJ, "While it is paused.", .of = &paused_shape, .ex = "null"),
    ALWAYS("created_at", F_TIME, "When it was created."),
    OR_NULL("started_at", F_TIME, "When it first ran."),
    OR_NULL("expires_at", F_TIME, "When its timeout is over."),
    ALWAYS("metadata", F_MAP, "What the client noted.", .ex = "{}"),
    ALWAYS("network", F_OBJ, "What it may reach.", .of = &network_shape,
           .ex = "{\"mode\":\"none\"}"),
    ALWAYS("volumes", F_LIST, "Volumes inside.", .of = &attachment_shape, .ex = "[]"),
    OR_NULL("snapshot", F_STR, "The snapshot it was created from.", .ex = "null"),
    OR_NULL("box", F_STR, "The name of its cgroup on the host.", .ex = ID_OF("b")),
    ALWAYS("generation", F_INT, "Grows when it continues from an older state: a fork, a rollback.",
           .ex = "1"),
    OR_NULL("kernel", F_STR, "The release of its own kernel; null: the host's.",
            .ex = "\"6.1.0-28-amd64\""),
    OR_NULL("start", F_OBJ, "How it last started.", .of = &start_shape),
    OR_NULL("end", F_OBJ, "Once it has stopped.", .of = &end_shape, .ex = "null"),
};
const struct shape sandbox_shape = SHAPE("Sandbox", sandbox_rows);
ROWS(sandbox_list_rows) = {
    ALWAYS("sandboxes", F_LIST, "Newest first.", .of = &sandbox_shape),
    OR_NULL("next", F_STR, "The cursor of the next page.", .ex = "null"),
};
const struct shape sandbox_list_shape = SHAPE("SandboxList", sandbox_list_rows);
ROWS(recovered_rows) = {
    ALWAYS("sandbox", F_OBJ, "It runs again.", .of = &sandbox_shape),
    ALWAYS("lost", F_STRS, "`memory`, `processes`, `writes`, `volumes`.",
           .ex = "[\"memory\",\"processes\"]"),
};
const struct shape recovered_shape = SHAPE("Recovered", recovered_rows);
ROWS(forked_rows) = {
    MAYBE("sandbox", F_OBJ, "A copy.", .of = &sandbox_shape),
    MAYBE("error", F_OBJ, "Why there is none, in place of `sandbox`.", .of = &error_shape,
          .ex = ""),
};
static const struct shape forked_shape = SHAPE("Forked", forked_rows);
ROWS(fork_list_rows) = {
    ALWAYS("forks", F_LIST, "One entry for each copy.", .of = &forked_shape),
    ALWAYS("memory", F_BOOL, "They continue with its memory and processes.", .ex = "true"),
    ALWAYS("downtime_ms", F_NUM, "How long the sandbox stood still.", .ex = "18.4"),
};
const struct shape fork_list_shape = SHAPE("ForkList", fork_list_rows);
ROWS(metrics_rows) = {
    ALWAYS("cpu_ns", F_INT, "Processor time used, in nanoseconds.", .ex = "81200000"),
    ALWAYS("cpu_count", F_INT, "Processors.", .ex = "1"),
    ALWAYS("memory_used", F_INT, "Bytes in use, without the page cache.", .ex = "41943040"),
    ALWAYS("memory_cache", F_INT, "Bytes of page cache.", .ex = "20971520"),
    ALWAYS("memory_total", F_INT, "Bytes in all.", .ex = "536870912"),
    ALWAYS("disk_used", F_INT, "Bytes of its disk in use.", .ex = "1048576"),
    ALWAYS("disk_total", F_INT, "Bytes of its disk.", .ex = "4294967296"),
    ALWAYS("processes", F_INT, "Processes inside.", .ex = "3"),
    ALWAYS("at", F_TIME, "When this was measured."),
};
const struct shape metrics_shape = SHAPE("SandboxMetrics", metrics_rows);
ROWS(log_rows) = {
    ALWAYS("at", F_TIME, "When."),
    ALWAYS("level", F_STR, "`info`, `warn` or `error`.", .ex = "\"info\""),
    ALWAYS("message", F_STR, "What happened.", .ex = "\"running\""),
};
static const struct shape log_shape = SHAPE("LogEntry", log_rows);
ROWS(logs_rows) = {ALWAYS("entries", F_LIST, "Oldest first.", .of = &log_shape)};
const struct shape logs_shape = SHAPE("Logs", logs_rows);
ROWS(console_rows) = {
    ALWAYS("lines", F_STRS,
           "Printable ASCII; other bytes as `\\xNN`. The sandbox decides what they say.",
           .ex = "[\"Linux version 6.1.0\"]")};
const struct shape console_shape = SHAPE("Console", console_rows);
ROWS(event_rows) = {
    ALWAYS("seq", F_INT, "Its number; `since` continues after it.", .ex = "41"),
    ALWAYS("at", F_TIME, "When."),
    ALWAYS("type", F_STR, "`sandbox.<state>`, `sandbox.recovered`, `host.spawn-lost` and others.",
           .ex = "\"sandbox.running\""),
    OR_NULL("sandbox", F_STR, "The sandbox it is about.", .ex = ID_OF("i")),
    ALWAYS("data", F_OBJECT, "More, by type.", .ex = "{}"),
};
const struct shape event_shape = SHAPE("Event", event_rows);
ROWS(event_list_rows) = {ALWAYS("events", F_LIST, "Oldest first.", .of = &event_shape)};
const struct shape event_list_shape = SHAPE("EventList", event_list_rows);

/* ---- snapshots ---- */
ROWS(snapshot_rows) = {
    ALWAYS("id", F_STR, "Its id.", .ex = ID_OF("s")),
    OR_NULL("name", F_STR, "Its name.", .ex = "\"ready\""),
    OR_NULL("sandbox", F_STR, "The sandbox it was taken of.", .ex = ID_OF("i")),
    ALWAYS("template", F_STR, "The name of the template.", .ex = "\"base\""),
    ALWAYS("template_id", F_STR, "The id of the template.", .ex = ID_OF("t")),
    ALWAYS("tier", F_WORD, "What it can be started as.", .words = "vm|gvisor|container"),
    ALWAYS("memory", F_BOOL, "It holds memory and processes, not only files."),
    ALWAYS("cpu", F_NUM, "Cores.", .ex = "1"),
    ALWAYS("memory_mib", F_INT, "Memory in MiB.", .ex = "512"),
    ALWAYS("disk_mib", F_INT, "Disk in MiB.", .ex = "4096"),
    ALWAYS("created_at", F_TIME, "When it was taken."),
    OR_NULL("expires_at", F_TIME, "When it deletes itself.", .ex = "null"),
    OR_NULL("parent", F_STR, "The snapshot it is based on.", .ex = "null"),
    ALWAYS("memory_bytes", F_INT, "What its memory takes on disk."),
    ALWAYS("disk_bytes", F_INT, "What its files take on disk.", .ex = "1048576"),
    ALWAYS("downtime_ms", F_NUM, "How long the sandbox stood still.", .ex = "12.5"),
    ALWAYS("users", F_INT, "Sandboxes and snapshots based on it."),
    OR_NULL("path", F_STR, "The directory, if it is of one directory only.", .ex = "null"),
    OR_NULL("tenant", F_STR, "Whose it is.", .ex = "null"),
    OR_NULL("signer", F_STR, "Who signed the file it was imported from.", .ex = "null"),
};
const struct shape snapshot_shape = SHAPE("Snapshot", snapshot_rows);
ROWS(snapshot_list_rows) = {
    ALWAYS("snapshots", F_LIST, "Newest first.", .of = &snapshot_shape),
    OR_NULL("next", F_STR, "The cursor of the next page.", .ex = "null"),
    ALWAYS("bytes", F_INT, "What all of them take on disk.", .ex = "1048576"),
};
const struct shape snapshot_list_shape = SHAPE("SnapshotList", snapshot_list_rows);
ROWS(usage_rows) = {
    OR_NULL("tenant", F_STR, "Whose; null: the operator's.", .ex = "\"ci\""),
    ALWAYS("snapshots", F_INT, "Snapshots.", .ex = "1"),
    ALWAYS("snapshot_bytes", F_INT, "What they take on disk.", .ex = "1048576"),
    ALWAYS("paused", F_INT, "Paused sandboxes."),
    ALWAYS("paused_bytes", F_INT, "What they take on disk."),
    ALWAYS("bytes", F_INT, "Both together.", .ex = "1048576"),
    OR_NULL("limit_bytes", F_INT, "What the operator allows.", .ex = "null"),
};
static const struct shape usage_shape = SHAPE("Usage", usage_rows);
ROWS(usage_list_rows) = {
    ALWAYS("tenants", F_LIST, "One entry for each tenant.", .of = &usage_shape)};
const struct shape usage_list_shape = SHAPE("UsageList", usage_list_rows);
ROWS(host_limit_rows) = {
    OR_NULL("connections", F_INT, "Connections open at once.", .ex = "null"),
    OR_NULL("bytes_per_second", F_INT, "Bytes in a second.", .ex = "null"),
    OR_NULL("ceiling", F_OBJECT, "The policy that no sandbox exceeds.", .ex = "null"),
};
static const struct shape host_limits_shape = SHAPE("HostLimits", host_limit_rows);
ROWS(tenant_rows) = {
    ALWAYS("name", F_STR, "Its name.", .ex = "\"ci\""),
    OR_NULL("connections", F_INT, "Connections open at once.", .ex = "100"),
    OR_NULL("bytes_per_second", F_INT, "Bytes in a second.", .ex = "null"),
    OR_NULL("bytes_per_day", F_INT, "Bytes in a day.", .ex = "null"),
    OR_NULL("held_bytes", F_INT, "Bytes of snapshots and paused sandboxes.", .ex = "null"),
    OR_NULL("running", F_INT, "Sandboxes that run at once.", .ex = "10"),
    OR_NULL("memory_mib", F_INT, "Memory of these in MiB.", .ex = "null"),
    OR_NULL("ceiling", F_OBJECT, "The policy that its sandboxes do not exceed.", .ex = "null"),
};
static const struct shape tenant_shape = SHAPE("Tenant", tenant_rows);
ROWS(tenant_list_rows) = {
    ALWAYS("host", F_OBJ, "For all sandboxes together.", .of = &host_limits_shape),
    ALWAYS("tenants", F_LIST, "For each tenant that the operator named.", .of = &tenant_shape),
};
const struct shape tenant_list_shape = SHAPE("TenantList", tenant_list_rows);
ROWS(signer_rows) = {
    ALWAYS("name", F_STR, "What this home calls it.", .ex = "\"build-host\""),
    ALWAYS("key", F_STR, "Its public key.",
           .ex = "\"9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60\""),
};
const struct shape signer_shape = SHAPE("Signer", signer_rows);
ROWS(signer_list_rows) = {
    ALWAYS("own", F_STR, "The public key that this home signs with.",
           .ex = "\"d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a\""),
    ALWAYS("signers", F_LIST, "Keys whose files it imports.", .of = &signer_shape),
};
const struct shape signer_list_shape = SHAPE("SignerList", signer_list_rows);

/* ---- commands ---- */
ROWS(exit_rows) = {
    ALWAYS("kind", F_WORD, "How it ended.", .words = "exit|signal|oom|timeout"),
    MAYBE("code", F_INT, "`exit`: its status."),
    MAYBE("signal", F_INT, "The signal's number.", .ex = ""),
    MAYBE("name", F_STR, "`signal`: its name.", .ex = ""),
    MAYBE("timeout_ms", F_INT, "`timeout`: the limit that passed.", .ex = ""),
};
static const struct shape exit_shape = SHAPE("Exit", exit_rows);
ROWS(exec_result_rows) = {
    ALWAYS("pid", F_INT, "Its process id inside.", .ex = "77"),
    ALWAYS("exit", F_OBJ, "How it ended.", .of = &exit_shape),
    MAYBE("stdout", F_TEXT, "What it wrote, if that is UTF-8.", .ex = "\"hello\\n\""),
    MAYBE("stdout_base64", F_BASE64, "In place of `stdout` if it is not.", .ex = ""),
    MAYBE("stderr", F_TEXT, "What it wrote, if that is UTF-8.", .ex = "\"\""),
    MAYBE("stderr_base64", F_BASE64, "In place of `stderr` if it is not.", .ex = ""),
    ALWAYS("stdout_bytes", F_INT, "Bytes that it wrote in all.", .ex = "6"),
    ALWAYS("stderr_bytes", F_INT, "Bytes that it wrote in all."),
    ALWAYS("truncated", F_BOOL, "It wrote more than `max_output`."),
    ALWAYS("duration_ms", F_NUM, "How long it ran.", .ex = "1.9"),
};
const struct shape exec_result_shape = SHAPE("ExecResult", exec_result_rows);
ROWS(exec_started_rows) = {
    ALWAYS("pid", F_INT, "Its process id inside.", .ex = "77"),
    OR_NULL("tag", F_STR, "The tag that was given.", .ex = "null"),
};
const struct shape exec_started_shape = SHAPE("ExecStarted", exec_started_rows);
ROWS(exec_event_rows) = {
    ALWAYS("event", F_WORD, "What this line is.",
           .words = "started|stdout|stderr|lost|keepalive|exit|interrupted"),
    MAYBE("pid", F_INT, "`started`: the process.", .ex = "77"),
    MAYBE("offset", F_INT, "`started`, `exit`: bytes of output before this point."),
    MAYBE("data", F_TEXT, "`stdout`, `stderr`: the text.", .ex = ""),
    MAYBE("data_base64", F_BASE64, "In place of `data` if it is not UTF-8.", .ex = ""),
    MAYBE("bytes", F_INT, "`lost`: how many bytes are missing here.", .ex = ""),
    MAYBE("exit", F_OBJ, "`exit`: how it ended.", .of = &exit_shape, .ex = ""),
    {.name = "duration_ms",
     .type = F_NUM,
     .flags = F_NULL,
     .help = "`exit`: how long it ran.",
     .ex = ""},
    MAYBE("error", F_OBJ, "`interrupted`: why the stream ends before the process.",
          .of = &error_shape, .ex = ""),
};
const struct shape exec_event_shape = SHAPE("ExecEvent", exec_event_rows);
ROWS(process_rows) = {
    ALWAYS("pid", F_INT, "Its process id inside.", .ex = "77"),
    OR_NULL("tag", F_STR, "Its tag.", .ex = "\"web\""),
    ALWAYS("cmd", F_STRS, "Its arguments.", .ex = "[\"python3\",\"-m\",\"http.server\"]"),
    OR_NULL("cwd", F_STR, "Where it was started.", .ex = "null"),
    OR_NULL("user", F_STR, "As whom.", .ex = "null"),
    ALWAYS("started_at", F_TIME, "When."),
    ALWAYS("output_bytes", F_INT, "Bytes of output so far."),
    ALWAYS("running", F_BOOL, "It has not ended.", .ex = "true"),
    ALWAYS("pty", F_BOOL, "It has a terminal."),
    OR_NULL("exit", F_OBJ, "How it ended.", .of = &exit_shape, .ex = "null"),
};
const struct shape process_shape = SHAPE("Process", process_rows);
ROWS(process_list_rows) = {
    ALWAYS("processes", F_LIST, "In order of their start.", .of = &process_shape)};
const struct shape process_list_shape = SHAPE("ProcessList", process_list_rows);

/* ---- code ---- */
#define CELL_STATUS "ok|error|interrupted|timeout|lost"
ROWS(eval_error_rows) = {
    ALWAYS("name", F_STR, "The type of the error.", .ex = "\"NameError\""),
    ALWAYS("value", F_TEXT, "Its text.", .ex = "\"name 'x' is not defined\""),
    ALWAYS("traceback", F_TEXT, "Where it happened."),
};
static const struct shape eval_error_shape = SHAPE("EvalError", eval_error_rows);
ROWS(eval_output_rows) = {
    ALWAYS("main", F_BOOL, "The value of the cell; false: it displayed this.", .ex = "true"),
    ALWAYS("data", F_OBJECT, "The value by MIME type; images as base64.",
           .ex = "{\"text/plain\":\"42\"}"),
};
static const struct shape eval_output_shape = SHAPE("EvalOutput", eval_output_rows);
ROWS(eval_result_rows) = {
    ALWAYS("context", F_STR, "The context it ran in.", .ex = ID_OF("c")),
    ALWAYS("language", F_STR, "Its language.", .ex = "\"python\""),
    ALWAYS("execution_count", F_INT, "How many cells ran in the context.", .ex = "1"),
    ALWAYS("stdout", F_TEXT, "What it printed.", .ex = "\"\""),
    ALWAYS("stderr", F_TEXT, "What it printed.", .ex = "\"\""),
    ALWAYS("results", F_LIST, "Its value and what it displayed.", .of = &eval_output_shape),
    OR_NULL("error", F_OBJ, "What it threw.", .of = &eval_error_shape, .ex = "null"),
    ALWAYS("status", F_WORD, "How it ended. `lost`: the interpreter ended under it.",
           .words = CELL_STATUS),
    ALWAYS("state_lost", F_BOOL, "The next cell finds an empty context."),
    ALWAYS("truncated", F_BOOL, "It printed more than `max_output`."),
    ALWAYS("cut_output_bytes", F_INT, "How much more."),
    ALWAYS("cut_results", F_INT, "Results that were left out."),
    ALWAYS("duration_ms", F_NUM, "How long it ran.", .ex = "3.2"),
    OR_NULL("problem", F_OBJ, "Why it was lost.", .of = &error_shape, .ex = "null"),
};
const struct shape eval_result_shape = SHAPE("EvalResult", eval_result_rows);
ROWS(eval_event_rows) = {
    ALWAYS("event", F_WORD, "What this line is.",
           .words = "started|count|stdout|stderr|result|error|keepalive|end", .ex = "\"stdout\""),
    MAYBE("context", F_STR, "`started`: the context.", .ex = ""),
    MAYBE("language", F_STR, "`started`: its language.", .ex = ""),
    MAYBE("execution_count", F_INT, "`count`: of the context.", .ex = ""),
    MAYBE("text", F_TEXT, "`stdout`, `stderr`: the text.", .ex = "\"42\\n\""),
    MAYBE("at", F_TIME, "`stdout`, `stderr`: when."),
    MAYBE("main", F_BOOL, "`result`: the value of the cell.", .ex = ""),
    MAYBE("data", F_OBJECT, "`result`: the value by MIME type.", .ex = ""),
    MAYBE("name", F_STR, "`error`: the type.", .ex = ""),
    MAYBE("value", F_TEXT, "`error`: the text.", .ex = ""),
    MAYBE("traceback", F_TEXT, "`error`: where.", .ex = ""),
    MAYBE("status", F_WORD, "`end`: how it ended.", .words = CELL_STATUS, .ex = ""),
    MAYBE("state_lost", F_BOOL, "`end`: the next cell finds an empty context.", .ex = ""),
    MAYBE("truncated", F_BOOL, "`end`: it printed more than `max_output`.", .ex = ""),
    MAYBE("cut_output_bytes", F_INT, "`end`: how much more.", .ex = ""),
    MAYBE("cut_results", F_INT, "`end`: results that were left out.", .ex = ""),
    MAYBE("duration_ms", F_NUM, "`end`: how long it ran.", .ex = ""),
    {.name = "problem",
     .type = F_OBJ,
     .flags = F_NULL,
     .help = "`end`: why it was lost.",
     .of = &error_shape,
     .ex = ""},
};
const struct shape eval_event_shape = SHAPE("EvalEvent", eval_event_rows);
ROWS(context_rows) = {
    ALWAYS("id", F_STR, "Its id.", .ex = ID_OF("c")),
    ALWAYS("language", F_WORD, "Its language.",
           .words = "python|javascript|typescript|bash|r|java"),
    ALWAYS("cwd", F_STR, "Where its cells run.", .ex = "\"/home/user\""),
    ALWAYS("state", F_WORD, "What it is doing.", .words = "new|starting|idle|busy",
           .ex = "\"idle\""),
    ALWAYS("default", F_BOOL, "It serves cells that name a language only."),
    ALWAYS("cells", F_INT, "How many cells ran in it."),
};
const struct shape context_shape = SHAPE("Context", context_rows);
ROWS(context_list_rows) = {
    ALWAYS("contexts", F_LIST, "In order of creation.", .of = &context_shape)};
const struct shape context_list_shape = SHAPE("ContextList", context_list_rows);
ROWS(program_error_rows) = {
    ALWAYS("code", F_WORD, "What went wrong.",
           .words = "exception|not_json|exit|timeout|cpu|memory|output|forbidden|crashed"),
    ALWAYS("message", F_TEXT, "A sentence."),
    MAYBE("hint", F_STR, "What to do about it."),
    MAYBE("type", F_STR, "`exception`: its type."),
    MAYBE("traceback", F_TEXT, "`exception`: where."),
    {.name = "syscall", .type = F_STR, .flags = F_NULL, .help = "`forbidden`: what it tried."},
};
static const struct shape program_error_shape = SHAPE("ProgramError", program_error_rows);
ROWS(program_usage_rows) = {
    ALWAYS("wall_ms", F_NUM, "Time.", .ex = "4.1"),
    ALWAYS("cpu_ms", F_NUM, "Processor time.", .ex = "3.8"),
    ALWAYS("memory_bytes", F_INT, "Memory at its peak.", .ex = "9437184"),
};
static const struct shape program_usage_shape = SHAPE("ProgramUsage", program_usage_rows);
ROWS(program_isolation_rows) = {
    ALWAYS("tier", F_WORD, "Always `isolate`.", .words = "isolate"),
    ALWAYS("boundary", F_STR, "What stands between it and the host.",
           .ex = "\"a jailed process without files or network\""),
    ALWAYS("accel", F_WORD, "Always `none`.", .words = "none"),
};
static const struct shape program_isolation_shape =
    SHAPE("ProgramIsolation", program_isolation_rows);
ROWS(program_result_rows) = {
    OR_NULL("value", F_JSON, "The value of its last expression, or of `function`.", .ex = "42"),
    MAYBE("stdout", F_TEXT, "What it printed, if that is UTF-8.", .ex = "\"\""),
    MAYBE("stdout_base64", F_BASE64, "In place of `stdout` if it is not.", .ex = ""),
    MAYBE("stderr", F_TEXT, "What it printed, if that is UTF-8.", .ex = "\"\""),
    MAYBE("stderr_base64", F_BASE64, "In place of `stderr` if it is not.", .ex = ""),
    OR_NULL("error", F_OBJ, "Why there is no value.", .of = &program_error_shape, .ex = "null"),
    OR_NULL("exit_code", F_INT, "Its exit status.", .ex = "0"),
    OR_NULL("signal", F_INT, "The signal that ended it.", .ex = "null"),
    ALWAYS("language", F_STR, "Its language.", .ex = "\"python\""),
    ALWAYS("template", F_STR, "The template with its interpreter.", .ex = "\"isolate\""),
    ALWAYS("isolation", F_OBJ, "What isolated it.", .of = &program_isolation_shape),
    ALWAYS("usage", F_OBJ, "What it used.", .of = &program_usage_shape),
    ALWAYS("duration_ms", F_NUM, "How long the call took.", .ex = "5.3"),
};
const struct shape program_result_shape = SHAPE("ProgramResult", program_result_rows);

/* ---- files ---- */
ROWS(entry_rows) = {
    ALWAYS("name", F_STR, "Its name.", .ex = "\"hello.txt\""),
    ALWAYS("path", F_STR, "Its absolute path.", .ex = "\"/home/user/hello.txt\""),
    ALWAYS("type", F_WORD, "What it is.", .words = "file|dir|symlink|other"),
    ALWAYS("size", F_INT, "Bytes.", .ex = "6"),
    ALWAYS("mode", F_STR, "Permission bits, octal.", .ex = "\"0644\""),
    ALWAYS("uid", F_INT, "The owner's number.", .ex = "1000"),
    ALWAYS("gid", F_INT, "The group's number.", .ex = "1000"),
    OR_NULL("owner", F_STR, "The owner's name.", .ex = "\"user\""),
    OR_NULL("group", F_STR, "The group's name.", .ex = "\"user\""),
    ALWAYS("modified_at", F_TIME, "When its content last changed."),
    OR_NULL("target", F_STR, "`symlink`: where it points.", .ex = "null"),
};
const struct shape entry_shape = SHAPE("Entry", entry_rows);
ROWS(entry_list_rows) = {ALWAYS("entries", F_LIST, "Without order.", .of = &entry_shape)};
const struct shape entry_list_shape = SHAPE("EntryList", entry_list_rows);
ROWS(change_rows) = {
    MAYBE("type", F_WORD, "`change`: what happened.", .words = "create|write|remove|rename|attr"),
    MAYBE("name", F_STR, "`change`: the path below the one that is watched.", .ex = "\"sub/f\""),
    MAYBE("seq", F_INT, "`change`: its number.", .ex = "1"),
    MAYBE("reason", F_STR, "`end`: why the stream ends.", .ex = ""),
};
const struct shape change_shape =
    SHAPE("Change", change_rows,
          .help = "The data of an event; which members it has depends on the event.");
ROWS(volume_user_rows) = {
    ALWAYS("sandbox", F_STR, "The sandbox.", .ex = ID_OF("i")),
    ALWAYS("path", F_STR, "Where it is inside.", .ex = "\"/data\""),
    ALWAYS("read_only", F_BOOL, "The sandbox cannot write to it."),
};
static const struct shape volume_user_shape = SHAPE("VolumeUser", volume_user_rows);
ROWS(volume_rows) = {
    ALWAYS("id", F_STR, "Its id.", .ex = ID_OF("v")),
    ALWAYS("name", F_STR, "Its name.", .ex = "\"data\""),
    OR_NULL("tenant", F_STR, "Whose it is; null: the operator's.", .ex = "null"),
    ALWAYS("size_mib", F_INT, "How much fits, in MiB.", .ex = "1024"),
    OR_NULL("inodes", F_INT, "How many files fit; null: as many as the size gives.", .ex = "null"),
    ALWAYS("created_at", F_TIME, "When it was created."),
    ALWAYS("attached", F_LIST, "Sandboxes that have it.", .of = &volume_user_shape, .ex = "[]"),
    OR_NULL("disk_bytes", F_INT, "What it takes on disk. Only when one volume is asked for.",
            .ex = "65536"),
};
const struct shape volume_shape = SHAPE("Volume", volume_rows);
ROWS(volume_list_rows) = {ALWAYS("volumes", F_LIST, "Oldest first.", .of = &volume_shape)};
const struct shape volume_list_shape = SHAPE("VolumeList", volume_list_rows);

/* ---- templates ---- */
ROWS(template_rows) = {
    ALWAYS("id", F_STR, "Its id.", .ex = ID_OF("t")),
    ALWAYS("name", F_STR, "Its name.", .ex = "\"base\""),
    OR_NULL("tenant", F_STR, "Whose it is; null: for all.", .ex = "null"),
    ALWAYS("created_at", F_TIME, "When it was built."),
    ALWAYS("source", F_WORD, "What it was built from.", .words = "bootstrap|recipe|import|pack"),
    OR_NULL("parent", F_STR, "The template that its recipe starts from.", .ex = "null"),
    ALWAYS("size_bytes", F_INT, "What it takes on disk.", .ex = "214748364"),
    ALWAYS("disk_min_mib", F_INT, "The smallest disk a sandbox of it can have, in MiB.",
           .ex = "300"),
    ALWAYS("warm", F_STRS, "Tiers for which sandboxes of it are kept ready.",
           .ex = "[\"container\",\"vm\"]"),
    ALWAYS("kernels", F_STRS, "Languages that code contexts can have.",
           .ex = "[\"python\",\"javascript\",\"bash\"]"),
};
const struct shape template_shape = SHAPE("Template", template_rows);
ROWS(template_list_rows) = {ALWAYS("templates", F_LIST, "By name.", .of = &template_shape)};
const struct shape template_list_shape = SHAPE("TemplateList", template_list_rows);
ROWS(build_event_rows) = {
    ALWAYS("event", F_WORD, "What this line is.", .words = "progress|log|keepalive|done|error"),
    MAYBE("percent", F_INT, "`progress`: how far.", .ex = "40"),
    MAYBE("step", F_STR, "`progress`: what is done now.", .ex = "\"RUN pip install numpy\""),
    MAYBE("line", F_TEXT, "`log`: what a step printed.", .ex = ""),
    MAYBE("template", F_OBJ, "`done`: the template.", .of = &template_shape, .ex = ""),
    MAYBE("error", F_OBJ, "`error`: why there is none.", .of = &error_shape, .ex = ""),
};
const struct shape build_event_shape = SHAPE("BuildEvent", build_event_rows);

/* ---- keys, the daemon ---- */
ROWS(scope_rows) = {
    MAYBE("templates", F_STRS, "Templates that it may start from, by name or id.",
          .ex = "[\"base\"]"),
    MAYBE("isolation", F_STRS, "Tiers that it may use.", .ex = "[\"container\"]"),
    MAYBE("network", F_OBJECT, "A ceiling for the network policies that it sets.",
          .ex = "{\"mode\":\"none\"}"),
    MAYBE("cpu_millis", F_INT, "Thousandths of a core that a sandbox of it may have.",
          .ex = "1000"),
    MAYBE("memory_mib", F_INT, "Memory that a sandbox of it may have, in MiB.", .ex = "512"),
    MAYBE("disk_mib", F_INT, "Disk that a sandbox of it may have, in MiB.", .ex = "2048"),
    MAYBE("keys", F_BOOL, "It may make and revoke keys of its own tenant.", .ex = "false"),
};
const struct shape scope_shape = SHAPE("KeyScope", scope_rows);
#define KEY_RIGHTS \
    OR_NULL("tenant", F_STR, "Whose things it sees and makes.", .ex = "\"acme\""), \
        ALWAYS("role", F_WORD, "What it may.", .words = ROLE_WORDS), \
        OR_NULL("scope", F_OBJ, "What its role may not exceed.", .of = &scope_shape, \
                .ex = "null"), \
        OR_NULL("expires_at", F_TIME, "When it stops working.", .ex = "null")
ROWS(key_created_rows) = {
    ALWAYS("id", F_STR, "Its id.", .ex = ID_OF("k")),
    ALWAYS("name", F_STR, "Its name.", .ex = "\"ci\""),
    KEY_RIGHTS,
    ALWAYS("key", F_STR, "The key itself. It is shown only here.", .ex = "\"e2b_…\""),
};
const struct shape key_created_shape = SHAPE("KeyCreated", key_created_rows);
ROWS(key_rows) = {
    ALWAYS("id", F_STR, "Its id.", .ex = ID_OF("k")),
    ALWAYS("name", F_STR, "Its name.", .ex = "\"ci\""),
    KEY_RIGHTS,
    ALWAYS("prefix", F_STR, "How the key begins.", .ex = "\"e2b_01234567\""),
    ALWAYS("created_at", F_TIME, "When it was created."),
    OR_NULL("last_used_at", F_TIME, "When it was last used, to the minute.", .ex = "null"),
};
static const struct shape key_shape = SHAPE("Key", key_rows);
ROWS(key_list_rows) = {ALWAYS("keys", F_LIST,
                              "Those of its own tenant; for an operator or admin all.",
                              .of = &key_shape)};
const struct shape key_list_shape = SHAPE("KeyList", key_list_rows);
ROWS(health_rows) = {
    ALWAYS("status", F_STR, "`ok`.", .ex = "\"ok\""),
    ALWAYS("version", F_STR, "The version of the daemon.", .ex = "\"" HUTCH_VERSION "\""),
    MAYBE("build", F_STR, "The same, with the commit it was built from.",
          .ex = "\"" HUTCH_VERSION "\""),
    ALWAYS("pid", F_INT, "Its process id.", .ex = "4711"),
};
const struct shape health_shape = SHAPE("Health", health_rows);
ROWS(check_rows) = {
    ALWAYS("name", F_STR, "What was looked at.", .ex = "\"kvm\""),
    ALWAYS("status", F_WORD, "The verdict.", .words = "ok|warn|fail"),
    ALWAYS("found", F_STR, "What was found.", .ex = "\"/dev/kvm works\""),
    ALWAYS("lost", F_STR, "What does not work because of it.", .ex = "\"\""),
    ALWAYS("fix", F_STR, "How to fix it.", .ex = "\"\""),
};
static const struct shape check_shape = SHAPE("Check", check_rows);
ROWS(doctor_rows) = {ALWAYS("checks", F_LIST, "One entry for each.", .of = &check_shape)};
const struct shape doctor_shape = SHAPE("Doctor", doctor_rows);
ROWS(openapi_rows) = {
    ALWAYS("openapi", F_STR, "The version of OpenAPI.", .ex = "\"3.1.0\""),
    ALWAYS("info", F_OBJECT, "Title and version.", .ex = "{\"title\":\"hutch\"}"),
    ALWAYS("security", F_JSON, "How to authenticate.", .ex = "[]"),
    ALWAYS("tags", F_JSON, "The groups of operations.", .ex = "[]"),
    ALWAYS("paths", F_OBJECT, "The operations.", .ex = "{}"),
    ALWAYS("components", F_OBJECT, "The schemas.", .ex = "{}"),
};
const struct shape openapi_shape = SHAPE("OpenAPI", openapi_rows);
