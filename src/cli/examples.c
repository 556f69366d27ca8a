/* Two examples of every verb, for `hutch VERB --help`. A test parses them all. */
#include "cli/args.h"
#include <string.h>

/* clang-format off */
static const struct { const char *name, *line[2]; } examples[] = {
    {"up",                {"up", "up --foreground"}},
    {"down",              {"down", "down --keep"}},
    {"run",               {"run -- python3 -c 'print(6 * 7)'", "run --net allow=@pip --timeout 10m script.py arg"}},
    {"create",            {"create --name box", "create -t code-interpreter --memory 1024 --timeout 1h --net allow=example.org"}},
    {"ls",                {"ls", "ls -q"}},
    {"tls self-signed",   {"tls self-signed", "tls self-signed --name hutch.example.org --name 192.0.2.7"}},
    {"tls show",          {"tls show", "tls show /etc/ssl/hutch.pem"}},
    {"info",              {"info box", "info box --json"}},
    {"exec",              {"exec box -- uname -a", "exec box -- python3 -m http.server 8000"}},
    {"sh",                {"sh box", "sh box -u root"}},
    {"cp",                {"cp data.csv box:/home/user/data.csv", "cp box:/home/user/out ."}},
    {"logs",              {"logs box", "logs box --json"}},
    {"kill",              {"kill box", "kill box other"}},
    {"timeout",           {"timeout box 1h", "timeout box 90"}},
    {"keepalive",         {"keepalive box", "keepalive box 30m"}},
    {"ps",                {"ps box", "ps box --json"}},
    {"pause",             {"pause box", "pause --files-only box other"}},
    {"resume",            {"resume box", "resume --timeout 1h box"}},
    {"recover",           {"recover box", "recover box --json"}},
    {"fork",              {"fork box", "fork box -n 8"}},
    {"snapshot create",   {"snapshot create box --name before", "snapshot create box --path /home/user/work"}},
    {"snapshot ls",       {"snapshot ls", "snapshot ls --of box"}},
    {"snapshot rm",       {"snapshot rm before", "snapshot rm before after"}},
    {"snapshot put",      {"snapshot put work box", "snapshot put work box --path /srv/work"}},
    {"snapshot export",   {"snapshot export before -o before.pack", "snapshot export before | ssh other hutch snapshot import -"}},
    {"snapshot import",   {"snapshot import before.pack", "snapshot import before.pack --name copy"}},
    {"snapshot trust",    {"snapshot trust", "snapshot trust other 5f3c…"}},
    {"snapshot distrust", {"snapshot distrust other", "snapshot distrust laptop"}},
    {"snapshots",         {"snapshots", "snapshots rm before"}},
    {"usage",             {"usage", "usage --json"}},
    {"rollback",          {"rollback box before", "rollback --files-only box before"}},
    {"eval",              {"eval 'sum(range(10))'", "eval -l js --in box '[1, 2, 3].map(x => x * x)'"}},
    {"mcp",               {"mcp --sandbox work --tools full", "mcp install cursor --sandbox work"}},
    {"template build",    {"template build base", "template build app -f Recipe -c . --net allow=@pip"}},
    {"template ls",       {"template ls", "template ls --json"}},
    {"template show",     {"template show base", "template show base --json"}},
    {"template rm",       {"template rm app", "template rm app other"}},
    {"template import",   {"template import node image.tar", "template import node - < image.tar"}},
    {"volume create",     {"volume create data", "volume create data --size 2048"}},
    {"volume ls",         {"volume ls", "volume ls --json"}},
    {"volume rm",         {"volume rm data", "volume rm data old"}},
    {"key create",        {"key create laptop", "key create ci --tenant acme --expires 30d"}},
    {"key ls",            {"key ls", "key ls --json"}},
    {"key revoke",        {"key revoke k1", "key revoke k1 k2"}},
    {"secret set",        {"secret set token < token.txt", "secret set token --calls 100 < token.txt"}},
    {"secret ls",         {"secret ls", "secret ls --json"}},
    {"secret rm",         {"secret rm token", "secret rm token other"}},
    {"net",               {"net box", "net box allow=example.org,@pip"}},
    {"url",               {"url box 8000", "url box 3000 --json"}},
    {"metrics",           {"metrics box", "metrics box --json"}},
    {"top",               {"top", "top --once"}},
    {"events",            {"events", "events --json"}},
    {"egress",            {"egress box", "egress box --denied"}},
    {"doctor",            {"doctor", "doctor --network"}},
    {"gvisor install",    {"gvisor install", "gvisor install --to /opt/hutch/runsc"}},
    {"bench",             {"bench", "bench --json"}},
    {"completion",        {"completion bash > /etc/bash_completion.d/hutch", "completion bash"}},
    {"version",           {"version", "version --json"}},
    {"help",              {"help run", "help template build"}},
};
/* clang-format on */

const char *const *cmd_examples(const char *name)
{
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++)
        if (!strcmp(examples[i].name, name))
            return examples[i].line;
    return NULL;
}
