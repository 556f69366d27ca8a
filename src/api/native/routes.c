/* Every route of the native API, once. The router and /v1/openapi.json are both made from this table. */
#include "api/native/native.h"

#define SB "/v1/sandboxes/{id}"
#define VOL "/v1/volumes/{volume}"
/* clang-format off */
const struct api_route native_routes[] = {
    {"POST",   "/v1/sandboxes", sandboxes_create, 0, "createSandbox", "Create a sandbox", NULL, "SandboxCreate", "201 Sandbox"},
    {"GET",    "/v1/sandboxes", sandboxes_list, 0, "listSandboxes", "List sandboxes, newest first",
               "state:s name:s template:s meta.*:s limit:i cursor:s", NULL, "200 SandboxList"},
    {"GET",    SB, sandboxes_get, 0, "getSandbox", "One sandbox", NULL, NULL, "200 Sandbox"},
    {"PATCH",  SB, sandboxes_patch, 0, "changeSandbox", "Change name, metadata, timeout or what happens when it is idle", NULL, "SandboxPatch", "200 Sandbox"},
    {"DELETE", SB, sandboxes_delete, 0, "killSandbox", "End a sandbox", NULL, NULL, "204"},
    {"POST",   SB "/keepalive", sandboxes_keepalive, 0, "keepAlive", "Let it live at least so many seconds (its timeout) from now; never shortens", NULL, "KeepAlive", "200 Sandbox"},
    {"POST",   SB "/timeout", sandboxes_timeout, 0, "setTimeout", "Let it expire so many seconds from now", NULL, "SandboxTimeout", "200 Sandbox"},
    {"GET",    SB "/network", network_get, 0, "getNetwork", "What it may reach", NULL, NULL, "200 Network"},
    {"PUT",    SB "/network", network_put_handler, 0, "setNetwork", "Change that; connections now denied are cut", NULL, "Network", "200 NetworkChanged"},
    {"GET",    SB "/egress", egress_get, 0, "listEgress", "Every name it asked for and every connection it made or tried, oldest first",
               "kind:s verdict:s name:s limit:i cursor:s verify:b", NULL, "200 EgressList"},
    {"GET",    SB "/url", url_get, 0, "getUrl", "The address of a port inside", "port!:i", NULL, "200 Url"},
    {"POST",   SB "/pause", sandboxes_pause, 0, "pauseSandbox", "Stop it and keep its memory and files on disk; memory=false keeps files only, standby=true keeps memory in memory",
               NULL, "SandboxPause", "200 Sandbox"},
    {"POST",   SB "/resume", sandboxes_resume, 0, "resumeSandbox", "Let a paused sandbox go on; memory=false boots it from its files", NULL, "SandboxResume", "200 Sandbox"},
    {"POST",   SB "/fork", sandboxes_later, 0, "forkSandbox", "Not supported yet", NULL, NULL, "204"},
    {"POST",   SB "/snapshots", sandboxes_later, 0, "snapshotSandbox", "Not supported yet", NULL, NULL, "204"},

    {"POST",   SB "/exec", exec_post, ROUTE_WAKE, "exec", "Run a command: wait for it, stream it as JSON lines (stream), or leave it running (background)",
               NULL, "Exec", "200 ExecResult | lines ExecEvent; 201 ExecStarted"},
    {"GET",    SB "/processes", processes_list, ROUTE_WAKE, "listProcesses", "Processes started through the API", NULL, NULL, "200 ProcessList"},
    {"GET",    SB "/processes/{pid}", processes_get, ROUTE_WAKE, "getProcess", "One process; {pid} may be tag:NAME", NULL, NULL, "200 Process"},
    {"GET",    SB "/processes/{pid}/stream", processes_stream, ROUTE_WAKE, "streamProcess", "Its output from a byte position on (-1: from now)",
               "offset:i", NULL, "200 lines ExecEvent"},
    {"POST",   SB "/processes/{pid}/stdin", processes_stdin, ROUTE_WAKE, "writeStdin", "Feed its standard input", "eof:b", "bytes", "204"},
    {"POST",   SB "/processes/{pid}/signal", processes_signal, ROUTE_WAKE, "signalProcess", "Send a signal", NULL, "Signal", "204"},
    {"POST",   SB "/processes/{pid}/resize", processes_resize, ROUTE_WAKE, "resizeProcess", "Change its terminal size", NULL, "WindowSize", "204"},
    {"GET",    SB "/pty", pty_open, ROUTE_WAKE, "openTerminal", "A terminal over WebSocket; cmd repeats, pid attaches",
               "cols:i rows:i cmd:s user:s cwd:s env.*:s pid:s offset:i", NULL, "101 socket"},

    {"POST",   SB "/eval", eval_post, ROUTE_WAKE, "eval", "Run a cell in a code context: wait for it, or stream it as JSON lines (stream)",
               NULL, "Eval", "200 EvalResult | lines EvalEvent"},
    {"GET",    SB "/contexts", contexts_list, ROUTE_WAKE, "listContexts", "Code contexts, in order of creation", NULL, NULL, "200 ContextList"},
    {"POST",   SB "/contexts", contexts_create, ROUTE_WAKE, "createContext", "Make a code context", NULL, "ContextCreate", "201 Context"},
    {"GET",    SB "/contexts/{cid}", contexts_get, ROUTE_WAKE, "getContext", "One context", NULL, NULL, "200 Context"},
    {"DELETE", SB "/contexts/{cid}", contexts_delete, ROUTE_WAKE, "removeContext", "End a context", NULL, NULL, "204"},
    {"POST",   SB "/contexts/{cid}/restart", contexts_restart, ROUTE_WAKE, "restartContext", "Forget its state, keep its id", NULL, NULL, "200 Context"},
    {"POST",   SB "/contexts/{cid}/interrupt", contexts_interrupt, ROUTE_WAKE, "interruptContext", "Interrupt the cell that runs in it", NULL, NULL, "200 Context"},

    {"GET",    SB "/files", files_get, ROUTE_WAKE, "readFile", "Bytes of a file", "path!:s user:s offset:i length:i", NULL, "200 bytes"},
    {"PUT",    SB "/files", files_put, ROUTE_WAKE, "writeFile", "Write a file; parents are made", "path!:s user:s mode:s append:b", "bytes", "201 Entry"},
    {"DELETE", SB "/files", files_delete, ROUTE_WAKE, "removeFile", "Remove a file or directory", "path!:s user:s recursive:b", NULL, "204"},
    {"GET",    SB "/files/stat", files_stat_get, ROUTE_WAKE, "statFile", "One entry", "path!:s user:s", NULL, "200 Entry"},
    {"POST",   SB "/files/move", files_move_post, ROUTE_WAKE, "moveFile", "Rename", NULL, "FileMove", "200 Entry"},
    {"POST",   SB "/files/attr", files_attr_post, ROUTE_WAKE, "changeFile", "Change mode or owner", NULL, "FileAttr", "200 Entry"},
    {"POST",   SB "/files/symlink", files_symlink_post, ROUTE_WAKE, "linkFile", "Make a symbolic link", NULL, "FileSymlink", "201 Entry"},
    {"GET",    SB "/dirs", dirs_list, ROUTE_WAKE, "listDirectory", "Entries of a directory", "path!:s user:s depth:i", NULL, "200 EntryList"},
    {"POST",   SB "/dirs", dirs_make, ROUTE_WAKE, "makeDirectory", "Make a directory; parents are made", "path!:s user:s mode:s", NULL, "201 Entry"},
    {"GET",    SB "/watch", watch_open, ROUTE_WAKE, "watchFiles", "Changes below a path as they happen", "path!:s user:s recursive:b", NULL, "200 events"},

    {"GET",    SB "/metrics", metrics_get, ROUTE_WAKE, "sandboxMetrics", "What it uses now", NULL, NULL, "200 SandboxMetrics"},
    {"GET",    SB "/logs", logs_get, 0, "sandboxLogs", "What happened to it", "limit:i", NULL, "200 Logs"},
    {"GET",    "/v1/events", events_get, 0, "events", "What happens, as server-sent events; follow=0 lists",
               "follow:b since:i sandbox:s", NULL, "200 events | EventList"},

    {"POST",   "/v1/eval", isolate_post, 0, "runProgram", "Run one program in an isolate and get its value; no sandbox", NULL, "Program", "200 ProgramResult"},

    {"GET",    "/v1/templates", templates_list, 0, "listTemplates", "What is built", NULL, NULL, "200 TemplateList"},
    {"POST",   "/v1/templates", templates_builtin, 0, "buildBuiltin", "Build a built-in recipe", NULL, "TemplateCreate", "200 lines BuildEvent"},
    {"GET",    "/v1/templates/{name}", templates_get, 0, "getTemplate", "One template, by name or id", NULL, NULL, "200 Template"},
    {"DELETE", "/v1/templates/{name}", templates_delete, 0, "removeTemplate", "Remove a template", NULL, NULL, "204"},
    {"POST",   "/v1/templates/{name}/build", templates_build, 0, "buildTemplate", "Build from a recipe part, and perhaps a context part (tar) and a network part (Network: what its steps may reach)",
               "force:b", "form", "200 lines BuildEvent"},
    {"POST",   "/v1/templates/{name}/import", templates_import, 0, "importTemplate", "Build from an OCI layout or docker-archive tar",
               NULL, "bytes", "200 lines BuildEvent"},

    {"POST",   "/v1/volumes", volumes_create, 0, "createVolume", "Make a volume", NULL, "VolumeCreate", "201 Volume"},
    {"GET",    "/v1/volumes", volumes_list, 0, "listVolumes", "Volumes, oldest first", NULL, NULL, "200 VolumeList"},
    {"GET",    VOL, volumes_get, 0, "getVolume", "One volume, by name or id, with what it takes on disk", NULL, NULL, "200 Volume"},
    {"DELETE", VOL, volumes_delete, 0, "deleteVolume", "Delete a volume that no sandbox has", NULL, NULL, "204"},
    {"GET",    VOL "/files", vfiles_get, 0, "readVolumeFile", "Bytes of a file", "path!:s user:s offset:i length:i", NULL, "200 bytes"},
    {"PUT",    VOL "/files", vfiles_put, 0, "writeVolumeFile", "Write a file; parents are made", "path!:s user:s mode:s append:b", "bytes", "201 Entry"},
    {"DELETE", VOL "/files", vfiles_delete, 0, "removeVolumeFile", "Remove a file or directory", "path!:s user:s recursive:b", NULL, "204"},
    {"GET",    VOL "/files/stat", vfiles_stat, 0, "statVolumeFile", "One entry", "path!:s user:s", NULL, "200 Entry"},
    {"POST",   VOL "/files/move", vfiles_move, 0, "moveVolumeFile", "Rename", NULL, "FileMove", "200 Entry"},
    {"POST",   VOL "/files/attr", vfiles_attr, 0, "changeVolumeFile", "Change mode or owner", NULL, "FileAttr", "200 Entry"},
    {"POST",   VOL "/files/symlink", vfiles_symlink, 0, "linkVolumeFile", "Make a symbolic link", NULL, "FileSymlink", "201 Entry"},
    {"GET",    VOL "/dirs", vdirs_list, 0, "listVolumeDirectory", "Entries of a directory", "path!:s user:s depth:i", NULL, "200 EntryList"},
    {"POST",   VOL "/dirs", vdirs_make, 0, "makeVolumeDirectory", "Make a directory; parents are made", "path!:s user:s mode:s", NULL, "201 Entry"},

    {"GET",    "/v1/secrets", secrets_list, 0, "listSecrets", "Names, budgets and use; never values", NULL, NULL, "200 SecretList"},
    {"PUT",    "/v1/secrets/{name}", secrets_put, 0, "setSecret", "A value that the network gate may put into requests", NULL, "SecretPut", "200 Secret"},
    {"DELETE", "/v1/secrets/{name}", secrets_delete, 0, "deleteSecret", "Forget it", NULL, NULL, "204"},

    {"POST",   "/v1/keys", keys_create, 0, "createKey", "Make an API key; it is shown once", NULL, "KeyCreate", "201 KeyCreated"},
    {"GET",    "/v1/keys", keys_list, 0, "listKeys", "Keys by id and prefix", NULL, NULL, "200 KeyList"},
    {"DELETE", "/v1/keys/{id}", keys_delete, 0, "revokeKey", "Revoke a key", NULL, NULL, "204"},

    {"GET",    "/healthz", health_get, ROUTE_OPEN, "health", "Does it answer?", NULL, NULL, "200 Health"},
    {"GET",    "/metrics", prometheus_get, 0, "prometheus", "Counters for Prometheus", NULL, NULL, "200 text"},
    {"GET",    "/v1/doctor", doctor_get, 0, "doctor", "What this host can and cannot do", NULL, NULL, "200 Doctor"},
    {"POST",   "/v1/shutdown", shutdown_post, ROUTE_SOCKET, "shutdown", "Stop the daemon; keep leaves the sandboxes running", NULL, "Shutdown", "202"},
    {"GET",    "/v1/openapi.json", openapi_get, 0, "openapi", "This document", NULL, NULL, "200 OpenAPI"},
};
/* clang-format on */
const size_t native_nroutes = sizeof native_routes / sizeof *native_routes;
