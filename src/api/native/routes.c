/* Every route of the native API, once. The router, /v1/openapi.json and docs/api.md are all made from this table. */
#include "api/native/native.h"

#define SB "/v1/sandboxes/{id}"
#define VOL "/v1/volumes/{volume}"
#define OBJECT(status, shape) \
    { \
        status, ANSWER_JSON, &(shape) \
    }
#define LINES(shape) \
    { \
        200, ANSWER_LINES, &(shape) \
    }
#define EVENTS(shape) \
    { \
        200, ANSWER_EVENTS, &(shape) \
    }
#define BYTES \
    { \
        200, ANSWER_BYTES, NULL \
    }
#define DONE \
    { \
        204, ANSWER_NONE, NULL \
    }

const struct shape raw_body = {.media = "application/octet-stream"};

#define CAPTURE(name_, help_) \
    { \
        .name = (name_), .type = F_STR, .flags = F_REQUIRED, .max = 255, .help = (help_) \
    }
static const struct field capture_rows[] = {
    CAPTURE("id", "Id or name of a sandbox; below `/v1/keys` of a key."),
    CAPTURE("pid", "A process id, or `tag:NAME`."),
    CAPTURE("cid", "Id of a code context."),
    CAPTURE("name", "The name; for templates also the id."),
    CAPTURE("snapshot", "Name or id of a snapshot."),
    CAPTURE("volume", "Name or id of a volume."),
};
static const struct shape captures = SHAPE(NULL, capture_rows);

static const char *const tags[] = {"Sandboxes", "Commands",  "Code",    "Files",   "Network",
                                   "Snapshots", "Templates", "Volumes", "Secrets", "Programs",
                                   "Keys",      "Daemon",    NULL};

/* clang-format off */
const struct api_route native_routes[] = {
    /* ---- sandboxes ---- */
    {"POST", "/v1/sandboxes", sandboxes_create, 0, "Sandboxes", "createSandbox", "Create a sandbox", NULL, &create_body,
     .answer = {OBJECT(201, sandbox_shape)}, .ex_body = "{\"name\":\"demo\",\"memory_mib\":256,\"timeout_s\":600,\"metadata\":{\"team\":\"a\"}}"},
    {"GET", "/v1/sandboxes", sandboxes_list, 0, "Sandboxes", "listSandboxes", "List sandboxes, newest first", &list_query, NULL,
     .answer = {OBJECT(200, sandbox_list_shape)}, .ex_query = "state=running&limit=10"},
    {"GET", SB, sandboxes_get, 0, "Sandboxes", "getSandbox", "Get a sandbox", NULL, NULL, .answer = {OBJECT(200, sandbox_shape)},
     .more = "One that is gone can be asked for by id for 24 hours; one that failed also by name, unless a living one has it."},
    {"PATCH", SB, sandboxes_patch, 0, "Sandboxes", "changeSandbox", "Change a sandbox", NULL, &patch_body,
     .answer = {OBJECT(200, sandbox_shape)}, .more = "Its name, metadata, timeouts and what happens then.", .ex_body = "{\"metadata\":{\"team\":\"b\"},\"idle_timeout_s\":60,\"on_idle\":\"pause\"}"},
    {"DELETE", SB, sandboxes_delete, 0, "Sandboxes", "killSandbox", "Kill a sandbox", NULL, NULL, .answer = {DONE}},
    {"POST", SB "/keepalive", sandboxes_keepalive, 0, "Sandboxes", "keepAlive", "Extend its deadline", NULL, &keepalive_body,
     .answer = {OBJECT(200, sandbox_shape)}, .more = "To `timeout_s` seconds from now. Never shortens it.", .ex_body = "{\"timeout_s\":600}"},
    {"POST", SB "/timeout", sandboxes_timeout, 0, "Sandboxes", "setTimeout", "Set its deadline", NULL, &timeout_body,
     .answer = {OBJECT(200, sandbox_shape)}, .ex_body = "{\"timeout_s\":600}"},
    {"POST", SB "/pause", sandboxes_pause, 0, "Sandboxes", "pauseSandbox", "Pause a sandbox", NULL, &pause_body,
     .answer = {OBJECT(200, sandbox_shape)}, .more = "Answers once it uses no processor time. One that is paused already is answered at once. See state.md.", .ex_body = "{}"},
    {"POST", SB "/resume", sandboxes_resume, 0, "Sandboxes", "resumeSandbox", "Resume a paused sandbox", NULL, &resume_body,
     .answer = {OBJECT(200, sandbox_shape)}, .more = "Answers once it runs. One that runs already is answered at once.", .ex_body = "{\"timeout_s\":600}"},
    {"POST", SB "/recover", sandboxes_recover, 0, "Sandboxes", "recoverSandbox", "Recover a failed sandbox from its disk", NULL, &recover_body,
     .answer = {OBJECT(200, recovered_shape)}, .more = "Also a paused one with damaged memory. Lists what was lost.", .ex_body = "{}"},
    {"POST", SB "/fork", sandboxes_fork, 0, "Sandboxes", "forkSandbox", "Fork a sandbox", NULL, &fork_body,
     .answer = {OBJECT(201, fork_list_shape)}, .more = "A VM with its memory and processes, a container with its files. Returns a sandbox or an error for each copy.", .ex_body = "{\"count\":1}"},
    {"POST", SB "/rollback", sandboxes_rollback, 0, "Sandboxes", "rollbackSandbox", "Roll a sandbox back to one of its snapshots", NULL, &rollback_body,
     .answer = {OBJECT(200, sandbox_shape)}, .more = "It keeps id, name, network and deadlines.", .ex_body = "{\"snapshot\":\"ready\"}"},
    {"GET", SB "/url", url_get, ROUTE_CHANGES, "Sandboxes", "getUrl", "Get the URL of a port in the sandbox", &url_query, NULL, .answer = {OBJECT(200, url_shape)}, .ex_query = "port=8000"},
    {"GET", SB "/metrics", metrics_get, ROUTE_WAKE, "Sandboxes", "sandboxMetrics", "Get what a sandbox uses now", NULL, NULL, .answer = {OBJECT(200, metrics_shape)}},
    {"GET", SB "/logs", logs_get, 0, "Sandboxes", "sandboxLogs", "List the lifecycle events of a sandbox", &logs_query, NULL, .answer = {OBJECT(200, logs_shape)}, .ex_query = "limit=20"},
    {"GET", SB "/console", console_get, 0, "Sandboxes", "sandboxConsole", "Get the last console output of a VM", NULL, NULL, .answer = {OBJECT(200, console_shape)},
     .more = "The last 16 KiB of its kernel and emulator, escaped; the contents are untrusted. `unsupported` for a container, `conflict` while it is paused to disk."},
    {"GET", "/v1/events", events_get, 0, "Sandboxes", "events", "Stream events", &events_query, NULL,
     .answer = {OBJECT(200, event_list_shape), EVENTS(event_shape)}, .more = "The `id:` of an event is its number. With `follow=0` the answer is one JSON object.", .ex_query = "follow=0&since=0"},

    /* ---- commands ---- */
    {"POST", SB "/exec", exec_post, ROUTE_WAKE, "Commands", "exec", "Run a command", NULL, &exec_body,
     .answer = {OBJECT(200, exec_result_shape), LINES(exec_event_shape), OBJECT(201, exec_started_shape)},
     .more = "Waits for it. With `stream` the answer is JSON lines; with `background` it is 201 at once. If the client leaves, a command that is not in the "
     "background is killed with its process tree. A stream that ends before the process says why in a last line `interrupted`.",
     .ex_body = "{\"cmd\":[\"echo\",\"hello\"]}"},
    {"GET", SB "/processes", processes_list, ROUTE_WAKE, "Commands", "listProcesses", "List the processes started through the API", NULL, NULL, .answer = {OBJECT(200, process_list_shape)}},
    {"GET", SB "/processes/{pid}", processes_get, ROUTE_WAKE, "Commands", "getProcess", "Get a process", NULL, NULL, .answer = {OBJECT(200, process_shape)}},
    {"GET", SB "/processes/{pid}/stream", processes_stream, ROUTE_WAKE, "Commands", "streamProcess", "Stream its output", &stream_query, NULL,
     .answer = {LINES(exec_event_shape)}, .more = "Ends with `exit`.", .ex_query = "offset=0"},
    {"POST", SB "/processes/{pid}/stdin", processes_stdin, ROUTE_WAKE, "Commands", "writeStdin", "Write to its standard input", &stdin_query, &raw_body,
     .answer = {DONE}, .ex_query = "eof=1"},
    {"POST", SB "/processes/{pid}/signal", processes_signal, ROUTE_WAKE, "Commands", "signalProcess", "Send a signal to a process", NULL, &signal_body, .answer = {DONE},
     .ex_body = "{\"signal\":\"SIGTERM\"}"},
    {"POST", SB "/processes/{pid}/resize", processes_resize, ROUTE_WAKE, "Commands", "resizeProcess", "Resize its terminal", NULL, &resize_body, .answer = {DONE},
     .ex_body = "{\"cols\":120,\"rows\":40}"},
    {"GET", SB "/pty", pty_open, ROUTE_WAKE | ROUTE_CHANGES, "Commands", "openTerminal", "Open a terminal over WebSocket", &pty_query, NULL, .answer = {{101, ANSWER_SOCKET, NULL}},
     .more = "Binary messages are terminal bytes, both ways. Text messages are JSON: the client sends `{\"resize\":{\"cols\":80,\"rows\":24}}`, the server "
     "`{\"started\":{\"pid\":77}}` and `{\"exit\":EXIT}`, then closes with 1000.", .ex_query = "cols=80&rows=24"},

    /* ---- code ---- */
    {"POST", SB "/eval", eval_post, ROUTE_WAKE, "Code", "eval", "Run a cell in a code context", NULL, &eval_body,
     .answer = {OBJECT(200, eval_result_shape), LINES(eval_event_shape)},
     .more = "A context is an interpreter that keeps its state between cells; each language has a default one. Cells of a context run one after another. "
     "If the client leaves, the cell is interrupted. See interpreter.md.", .ex_body = "{\"code\":\"x = 40\\nx + 2\"}"},
    {"GET", SB "/contexts", contexts_list, ROUTE_WAKE, "Code", "listContexts", "List code contexts, oldest first", NULL, NULL, .answer = {OBJECT(200, context_list_shape)}},
    {"POST", SB "/contexts", contexts_create, ROUTE_WAKE, "Code", "createContext", "Create a code context", NULL, &context_body, .answer = {OBJECT(201, context_shape)},
     .ex_body = "{\"language\":\"python\",\"cwd\":\"/tmp\"}"},
    {"GET", SB "/contexts/{cid}", contexts_get, ROUTE_WAKE, "Code", "getContext", "Get a code context", NULL, NULL, .answer = {OBJECT(200, context_shape)}},
    {"DELETE", SB "/contexts/{cid}", contexts_delete, ROUTE_WAKE, "Code", "removeContext", "Delete a code context", NULL, NULL, .answer = {DONE}},
    {"POST", SB "/contexts/{cid}/restart", contexts_restart, ROUTE_WAKE, "Code", "restartContext", "Restart a code context", NULL, NULL, .answer = {OBJECT(200, context_shape)},
     .more = "Same id, directory and variables, fresh state. A cell that runs is lost."},
    {"POST", SB "/contexts/{cid}/interrupt", contexts_interrupt, ROUTE_WAKE, "Code", "interruptContext", "Interrupt the running cell", NULL, NULL, .answer = {OBJECT(200, context_shape)}},

    /* ---- files ---- */
    {"GET", SB "/files", files_get, ROUTE_WAKE, "Files", "readFile", "Read a file", &read_query, NULL, .answer = {BYTES},
     .more = "`HEAD` answers the same without the bytes. The calls for files act as root inside: permission bits do not stop them.", .ex_query = "path=/home/user/hello.txt"},
    {"PUT", SB "/files", files_put, ROUTE_WAKE, "Files", "writeFile", "Write a file", &write_query, &raw_body, .answer = {OBJECT(201, entry_shape)},
     .more = "Missing directories are created. A body of any length.", .ex_query = "path=/home/user/hello.txt&mode=0644"},
    {"DELETE", SB "/files", files_delete, ROUTE_WAKE, "Files", "removeFile", "Remove a file or directory", &remove_query, NULL, .answer = {DONE}, .ex_query = "path=/home/user/hello.txt"},
    {"GET", SB "/files/stat", files_stat_get, ROUTE_WAKE, "Files", "statFile", "Get a directory entry", &where_query, NULL, .answer = {OBJECT(200, entry_shape)}, .ex_query = "path=/home/user/hello.txt"},
    {"POST", SB "/files/move", files_move_post, ROUTE_WAKE, "Files", "moveFile", "Rename a file or directory", NULL, &move_body, .answer = {OBJECT(200, entry_shape)},
     .ex_body = "{\"from\":\"/home/user/hello.txt\",\"to\":\"/home/user/bye.txt\"}"},
    {"POST", SB "/files/attr", files_attr_post, ROUTE_WAKE, "Files", "changeFile", "Change the mode or owner of a file", NULL, &attr_body, .answer = {OBJECT(200, entry_shape)},
     .ex_body = "{\"path\":\"/home/user/hello.txt\",\"mode\":\"0600\"}"},
    {"POST", SB "/files/symlink", files_symlink_post, ROUTE_WAKE, "Files", "linkFile", "Create a symbolic link", NULL, &symlink_body, .answer = {OBJECT(201, entry_shape)},
     .ex_body = "{\"target\":\"hello.txt\",\"path\":\"/home/user/link\"}"},
    {"GET", SB "/dirs", dirs_list, ROUTE_WAKE, "Files", "listDirectory", "List a directory", &list_dir_query, NULL, .answer = {OBJECT(200, entry_list_shape)}, .ex_query = "path=/home/user&depth=1"},
    {"POST", SB "/dirs", dirs_make, ROUTE_WAKE, "Files", "makeDirectory", "Create a directory and its parents", &dir_query, NULL, .answer = {OBJECT(201, entry_shape)},
     .ex_query = "path=/home/user/dir"},
    {"GET", SB "/watch", watch_open, ROUTE_WAKE, "Files", "watchFiles", "Watch a path for changes", &watch_query, NULL, .answer = {EVENTS(change_shape)},
     .more = "Events: `ready` once, `change` for each change, `overflow` when some were lost (list again), `end` last.", .ex_query = "path=/home/user&recursive=1"},

    /* ---- network ---- */
    {"GET", SB "/network", network_get, 0, "Network", "getNetwork", "Get the network policy of a sandbox", NULL, NULL, .answer = {OBJECT(200, network_shape)}},
    {"PUT", SB "/network", network_put_handler, 0, "Network", "setNetwork", "Replace its network policy", NULL, &network_shape, .answer = {OBJECT(200, network_changed_shape)},
     .more = "Answers once it is in force; connections that it denies are closed by then. See network.md.", .ex_body = "{\"mode\":\"allow\",\"allow\":[\"example.org\"]}"},
    {"GET", SB "/egress", egress_get, 0, "Network", "listEgress", "List its DNS queries and connections", &egress_query, NULL, .answer = {OBJECT(200, egress_list_shape)},
     .more = "Allowed and denied, oldest first. Works by id after the sandbox is gone.", .ex_query = "verdict=deny&limit=10"},

    /* ---- snapshots ---- */
    {"POST", SB "/snapshots", snapshots_take, 0, "Snapshots", "takeSnapshot", "Take a snapshot of a sandbox", NULL, &snapshot_body, .answer = {OBJECT(201, snapshot_shape)},
     .more = "The sandbox keeps running. See snapshots.md.", .ex_body = "{\"name\":\"ready\"}"},
    {"POST", SB "/restore", sandboxes_restore, ROUTE_WAKE, "Snapshots", "restoreDirectory", "Put the snapshot of a directory into a sandbox", NULL, &restore_body, .answer = {DONE},
     .more = "It replaces what is there.", .ex_body = "{\"snapshot\":\"tree\",\"path\":\"/home/user/tree\"}"},
    {"GET", "/v1/snapshots", snapshots_list, 0, "Snapshots", "listSnapshots", "List snapshots, newest first", &snapshots_query, NULL, .answer = {OBJECT(200, snapshot_list_shape)}, .ex_query = "limit=10"},
    {"GET", "/v1/snapshots/{snapshot}", snapshots_get, 0, "Snapshots", "getSnapshot", "Get a snapshot", NULL, NULL, .answer = {OBJECT(200, snapshot_shape)}},
    {"DELETE", "/v1/snapshots/{snapshot}", snapshots_delete, 0, "Snapshots", "deleteSnapshot", "Delete a snapshot", NULL, NULL, .answer = {DONE}, .more = "Sandboxes based on it keep running."},
    {"GET", "/v1/snapshots/{snapshot}/pack", packs_export, 0, "Snapshots", "exportSnapshot", "Export a snapshot and all it needs as one signed file", NULL, NULL, .answer = {BYTES},
     .more = "See snapshots.md."},
    {"POST", "/v1/snapshots/import", packs_import, 0, "Snapshots", "importSnapshot", "Import a snapshot from such a file", &import_query, &raw_body, .answer = {OBJECT(201, snapshot_shape)},
     .more = "Its signer must be trusted.", .ex_query = "name=copy"},
    {"GET", "/v1/usage", usage_get, 0, "Snapshots", "getUsage", "Get the disk space used by snapshots and paused sandboxes", NULL, NULL, .answer = {OBJECT(200, usage_list_shape)}},
    {"GET", "/v1/signers", signers_list, ROUTE_HOST, "Snapshots", "listSigners", "Get the key that this host signs with and the keys it trusts", NULL, NULL, .answer = {OBJECT(200, signer_list_shape)}},
    {"PUT", "/v1/signers/{name}", signers_put, ROUTE_SOCKET | ROUTE_ADMIN, "Snapshots", "trustSigner", "Trust a signer", NULL, &signer_body, .answer = {OBJECT(200, signer_shape)},
     .ex_body = "{\"key\":\"d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a\"}"},
    {"DELETE", "/v1/signers/{name}", signers_delete, ROUTE_SOCKET | ROUTE_ADMIN, "Snapshots", "distrustSigner", "Stop trusting a signer", NULL, NULL, .answer = {DONE}, .more = "Snapshots already imported are kept."},

    /* ---- templates ---- */
    {"GET", "/v1/templates", templates_list, 0, "Templates", "listTemplates", "List templates", NULL, NULL, .answer = {OBJECT(200, template_list_shape)}},
    {"POST", "/v1/templates", templates_builtin, ROUTE_ADMIN, "Templates", "buildBuiltin", "Build a template from a built-in recipe", NULL, &builtin_body, .answer = {LINES(build_event_shape)},
     .more = "The last line is `done` or `error`.", .ex_body = "{\"builtin\":\"base\"}"},
    {"GET", "/v1/templates/{name}", templates_get, 0, "Templates", "getTemplate", "Get a template", NULL, NULL, .answer = {OBJECT(200, template_shape)}},
    {"DELETE", "/v1/templates/{name}", templates_delete, 0, "Templates", "removeTemplate", "Remove a template", NULL, NULL, .answer = {DONE}, .more = "`conflict` while a sandbox or template is based on it."},
    {"POST", "/v1/templates/{name}/build", templates_build, 0, "Templates", "buildTemplate", "Build a template from a recipe", &build_query, &build_form, .answer = {LINES(build_event_shape)},
     .more = "The last line is `done` or `error`. See templates.md.", .ex_query = "force=1"},
    {"POST", "/v1/templates/{name}/import", templates_import, 0, "Templates", "importTemplate", "Build a template from an image", NULL, &raw_body, .answer = {LINES(build_event_shape)},
     .more = "The body is a tar: an OCI layout, or what `docker save` writes."},

    /* ---- volumes ---- */
    {"POST", "/v1/volumes", volumes_create, 0, "Volumes", "createVolume", "Create a volume", NULL, &volume_body, .answer = {OBJECT(201, volume_shape)}, .more = "See volumes.md.",
     .ex_body = "{\"name\":\"data\",\"size_mib\":64}"},
    {"GET", "/v1/volumes", volumes_list, 0, "Volumes", "listVolumes", "List volumes, oldest first", NULL, NULL, .answer = {OBJECT(200, volume_list_shape)}},
    {"GET", VOL, volumes_get, 0, "Volumes", "getVolume", "Get a volume", NULL, NULL, .answer = {OBJECT(200, volume_shape)}},
    {"DELETE", VOL, volumes_delete, 0, "Volumes", "deleteVolume", "Delete a volume", NULL, NULL, .answer = {DONE}, .more = "`conflict` while a sandbox has it."},
    {"GET", VOL "/files", vfiles_get, 0, "Volumes", "readVolumeFile", "Read a file", &read_query, NULL, .answer = {BYTES}, .ex_query = "path=/hello.txt"},
    {"PUT", VOL "/files", vfiles_put, 0, "Volumes", "writeVolumeFile", "Write a file", &write_query, &raw_body, .answer = {OBJECT(201, entry_shape)},
     .more = "Missing directories are created.", .ex_query = "path=/hello.txt"},
    {"DELETE", VOL "/files", vfiles_delete, 0, "Volumes", "removeVolumeFile", "Remove a file or directory", &remove_query, NULL, .answer = {DONE}, .ex_query = "path=/hello.txt"},
    {"GET", VOL "/files/stat", vfiles_stat, 0, "Volumes", "statVolumeFile", "Get a directory entry", &where_query, NULL, .answer = {OBJECT(200, entry_shape)}, .ex_query = "path=/hello.txt"},
    {"POST", VOL "/files/move", vfiles_move, 0, "Volumes", "moveVolumeFile", "Rename a file or directory", NULL, &move_body, .answer = {OBJECT(200, entry_shape)},
     .ex_body = "{\"from\":\"/hello.txt\",\"to\":\"/bye.txt\"}"},
    {"POST", VOL "/files/attr", vfiles_attr, 0, "Volumes", "changeVolumeFile", "Change the mode or owner of a file", NULL, &attr_body, .answer = {OBJECT(200, entry_shape)},
     .ex_body = "{\"path\":\"/hello.txt\",\"mode\":\"0600\"}"},
    {"POST", VOL "/files/symlink", vfiles_symlink, 0, "Volumes", "linkVolumeFile", "Create a symbolic link", NULL, &symlink_body, .answer = {OBJECT(201, entry_shape)},
     .ex_body = "{\"target\":\"hello.txt\",\"path\":\"/link\"}"},
    {"GET", VOL "/dirs", vdirs_list, 0, "Volumes", "listVolumeDirectory", "List a directory", &list_dir_query, NULL, .answer = {OBJECT(200, entry_list_shape)}, .ex_query = "path=/"},
    {"POST", VOL "/dirs", vdirs_make, 0, "Volumes", "makeVolumeDirectory", "Create a directory and its parents", &dir_query, NULL, .answer = {OBJECT(201, entry_shape)}, .ex_query = "path=/dir"},

    /* ---- secrets ---- */
    {"GET", "/v1/secrets", secrets_list, 0, "Secrets", "listSecrets", "List secrets", NULL, NULL, .answer = {OBJECT(200, secret_list_shape)}, .more = "Names, budgets and use; never values."},
    {"PUT", "/v1/secrets/{name}", secrets_put, 0, "Secrets", "setSecret", "Set a secret", NULL, &secret_body, .answer = {OBJECT(200, secret_shape)},
     .more = "A network policy can put it into requests (`inject`).", .ex_body = "{\"value\":\"s3cret-t0ken\",\"calls_max\":1000}"},
    {"DELETE", "/v1/secrets/{name}", secrets_delete, 0, "Secrets", "deleteSecret", "Delete a secret", NULL, NULL, .answer = {DONE}},

    /* ---- programs ---- */
    {"POST", "/v1/eval", isolate_post, 0, "Programs", "runProgram", "Run one program in an isolate and get its value", NULL, &program_body, .answer = {OBJECT(200, program_result_shape)},
     .more = "Without a sandbox: a jailed process of its own, without files or network. See isolate.md.",
     .ex_body = "{\"language\":\"python\",\"code\":\"input['a'] + 2\",\"input\":{\"a\":40}}"},

    /* ---- keys ---- */
    {"POST", "/v1/keys", keys_create, 0, "Keys", "createKey", "Create an API key", NULL, &key_body, .answer = {OBJECT(201, key_created_shape)}, .more = "The key is shown only here. Needs role admin, or a key whose scope has `keys`: that makes keys of its own tenant, with no more rights. See rights.md.", .ex_body = "{\"name\":\"ci\",\"tenant\":\"acme\",\"role\":\"member\",\"expires_s\":86400}"},
    {"GET", "/v1/keys", keys_list, 0, "Keys", "listKeys", "List API keys", NULL, NULL, .answer = {OBJECT(200, key_list_shape)}},
    {"DELETE", "/v1/keys/{id}", keys_delete, 0, "Keys", "revokeKey", "Revoke an API key", NULL, NULL, .answer = {DONE}},

    /* ---- the daemon ---- */
    {"GET", "/healthz", health_get, ROUTE_OPEN, "Daemon", "health", "Check that the daemon answers", NULL, NULL, .answer = {OBJECT(200, health_shape)}},
    {"GET", "/metrics", prometheus_get, ROUTE_SCRAPE, "Daemon", "prometheus", "Get metrics in the Prometheus text format", NULL, NULL, .answer = {{200, ANSWER_TEXT, NULL}}},
    {"GET", "/v1/doctor", doctor_get, ROUTE_HOST, "Daemon", "doctor", "Check what this host supports", NULL, NULL, .answer = {OBJECT(200, doctor_shape)}},
    {"GET", "/v1/tenants", tenants_get, ROUTE_SOCKET | ROUTE_HOST, "Daemon", "getTenants", "Get the limits of the host and of each tenant", NULL, NULL, .answer = {OBJECT(200, tenant_list_shape)}},
    {"POST", "/v1/shutdown", shutdown_post, ROUTE_SOCKET | ROUTE_ADMIN, "Daemon", "shutdown", "Stop the daemon", NULL, &shutdown_body, .answer = {OBJECT(202, nothing_shape)}, .ex_body = "{\"keep\":true}"},
    {"GET", "/v1/openapi.json", openapi_get, 0, "Daemon", "openapi", "Get this document", NULL, NULL, .answer = {OBJECT(200, openapi_shape)}},
};
/* clang-format on */
const size_t native_nroutes = sizeof native_routes / sizeof *native_routes;
const struct api_table native_table = {native_routes, sizeof native_routes / sizeof *native_routes,
                                       &captures, &problem_shape, tags};

const struct dialect native_dialect = {
    .name = "native",
    .flags = DIALECT_STRICT_TYPE,
    .routes = native_routes,
    .nroutes = sizeof native_routes / sizeof *native_routes,
    .fail = problem_about,
};
