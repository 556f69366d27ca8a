#include "cli/hint.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "cli/out.h"
#include "http/uri.h"
#include <stdio.h>
#include <string.h>

/* clang-format off */
static const char *const hints[REASON_MAX] = {
    [REASON_NO_SANDBOX]       = "`hutch ls` lists the sandboxes",
    [REASON_NO_TEMPLATE]      = "`hutch template ls` lists the templates; `hutch template build NAME` builds one",
    [REASON_NO_SNAPSHOT]      = "`hutch snapshot ls` lists the snapshots",
    [REASON_NO_VOLUME]        = "`hutch volume ls` lists the volumes; `hutch volume create NAME` creates one",
    [REASON_NO_SECRET]        = "`hutch secret ls` lists the names",
    [REASON_NO_KEY]           = "`hutch key ls` lists the ids",
    [REASON_NO_PROCESS]       = "`hutch ps {}` lists its processes",
    [REASON_NO_FILE]          = "a path inside is absolute or relative to /home/user",
    [REASON_NO_CONTEXT]       = "",
    [REASON_NO_ROUTE]         = "the daemon may be older than this client: compare `hutch version`",
    [REASON_PROGRAM_MISSING]  = "check its spelling, or install it in the sandbox first",
    [REASON_PROGRAM_DENIED]   = "make the file executable (chmod +x), or run it with its interpreter",
    [REASON_CWD_MISSING]      = "--cwd must be a directory inside the sandbox",
    [REASON_STEP_FAILED]      = "the lines above are the output of the failed step",
    [REASON_AGENT_SILENT]     = "`hutch kill {}` and create a new one",
    [REASON_TRUST_STORE]      = "try again when the host is less busy; only presets and rules with methods, paths or secrets need the certificate",
    [REASON_DISK_FULL]        = "delete files in the sandbox, or create it with a larger --disk",
    [REASON_FILE_DENIED]      = "use --user root, or change the file's owner or mode",
    [REASON_FILE_LARGE]       = "",
    [REASON_PAUSED]           = "`hutch resume {}` first",
    [REASON_FAILED]           = "`hutch recover {}` brings it back from its disk",
    [REASON_ENDED]            = "`hutch create` starts a new one",
    [REASON_BUSY]             = "try again in a moment",
    [REASON_NAME_TAKEN]       = "choose another name, or remove the one that has it",
    [REASON_TEMPLATE_USED]    = "kill the sandboxes that use it first; `hutch ls` lists them",
    [REASON_VOLUME_USED]      = "kill the sandboxes that use it first; `hutch volume ls` lists them",
    [REASON_NO_MEMORY]        = "--files-only keeps the files",
    [REASON_BAD_VALUE]        = "",
    [REASON_BAD_POLICY]       = "for example --net allow=example.org,*.example.org,192.0.2.0/24:443,@pip",
    [REASON_BAD_RECIPE]       = "docs/templates.md lists what a recipe may contain",
    [REASON_BAD_HOST]         = "use localhost in HUTCH_URL, or add the host to the daemon's HUTCH_HOSTS",
    [REASON_SOCKET_ONLY]      = "run it on the daemon's machine, without HUTCH_URL",
    [REASON_API_KEY]          = "export HUTCH_API_KEY=KEY; root on the daemon's machine makes one with `hutch key create NAME`",
    [REASON_TOO_LARGE]        = "send less at once; copy large inputs in with `hutch cp`",
    [REASON_HOST_CANNOT]      = "`hutch doctor` shows what this host supports",
    [REASON_PRESET]           = "`hutch doctor` has a row for each preset",
    [REASON_LIMIT]            = "remove something first, or raise the limit that the message names",
    [REASON_INTERNAL]         = "the daemon's log has the details: log/hutchd.log in HUTCH_HOME",
    [REASON_GUEST_BOOT]       = "log/console.log in HUTCH_HOME has what the guest printed; `hutch doctor` checks the host",
    [REASON_ROLE]             = "ask an admin of the host for a key with that role; `hutch key ls` shows what yours may",
    [REASON_SCOPE]            = "`hutch key ls --json` shows the scope of your key",
    [REASON_ISOLATE_LANGUAGE] = "`hutch template build isolate` builds a template with all four languages",
};
/* clang-format on */

const char *cli_hint(enum err_why why) { return (unsigned)why < REASON_MAX ? hints[why] : NULL; }

void cli_hint_fill(const char *hint, const char *target, char *out, size_t cap)
{
    const char *gap = strstr(hint, "{}"), *p = target;
    auto_buf id = {0}, shown = {0};
    for (int slashes = 0; p && *p && slashes < 3; p++)
        slashes += *p == '/';
    size_t n = p ? strcspn(p, "/?") : 0;
    if (!n || !uri_decode((struct str){p, n}, false, &id))
        buf_puts(&shown, "ID");
    else
        esc_put(&shown, (struct str){id.p, id.n});
    if (gap)
        (void)snprintf(out, cap, "%.*s%.64s%s", (int)(gap - hint), hint, shown.p, gap + 2);
    else
        (void)snprintf(out, cap, "%s", hint);
}

int cli_exit_of(enum err_why why)
{
    return why == REASON_PROGRAM_MISSING ? 127 : why == REASON_PROGRAM_DENIED ? 126 : 0;
}
