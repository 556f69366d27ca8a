/* hutch completion bash|zsh|fish: the glue between a shell and complete.h. */
#include "cli/args.h"
#include "cli/cmds.h"
#include "cli/complete.h"
#include <stdio.h>
#include <string.h>

/* bash cuts words at ":" and "=" too: they are put together again for the question, and what bash believes to be before the word is cut off the answers. */
static const char bash[] =
    "# bash completion for hutch; printed by `hutch completion bash`\n"
    "_hutch() {\n"
    "    local cur='' line word i files='' joined=()\n"
    "    for ((i = 1; i <= COMP_CWORD; i++)); do\n"
    "        word=${COMP_WORDS[i]}\n"
    "        if ((${#joined[@]})) && { [[ $word == [:=]* ]] || [[ ${COMP_WORDS[i-1]} == *[:=] && ${COMP_WORDS[i-1]} != -- ]]; } &&\n"
    "            [[ $COMP_LINE == *\"${joined[-1]}$word\"* ]]; then\n"
    "            joined[-1]+=$word\n"
    "        else\n"
    "            joined+=(\"$word\")\n"
    "        fi\n"
    "    done\n"
    "    cur=${joined[-1]-}\n"
    "    local cut=${cur%\"${cur##*[:=]}\"}\n"
    "    COMPREPLY=()\n"
    "    while IFS= read -r line; do\n"
    "        case $line in\n"
    "        :files) files=1 ;;\n"
    "        :nospace) compopt -o nospace 2>/dev/null ;;\n"
    "        *) word=${line%%$'\\t'*}; COMPREPLY+=(\"${word#\"$cut\"}\") ;;\n"
    "        esac\n"
    "    done < <(\"${COMP_WORDS[0]}\" __complete -- \"${joined[@]}\" 2>/dev/null)\n"
    "    if [[ $files ]]; then\n"
    "        compopt -o filenames 2>/dev/null\n"
    "        while IFS= read -r line; do COMPREPLY+=(\"$line\"); done < <(compgen -f -- \"${cur#\"$cut\"}\")\n"
    "    fi\n"
    "}\n"
    "complete -F _hutch hutch\n";

static const char zsh[] =
    "#compdef hutch\n"
    "# zsh completion for hutch; printed by `hutch completion zsh`\n"
    "_hutch() {\n"
    "    local line word files='' tab=$'\\t'\n"
    "    local -a offers glued nospace\n"
    "    for line in \"${(@f)$(\"$words[1]\" __complete -- \"${(@)words[2,CURRENT]}\" 2>/dev/null)}\"; do\n"
    "        case $line in\n"
    "        '') ;;\n"
    "        :files) files=1 ;;\n"
    "        :nospace) nospace=(-S '') ;;\n"
    "        *) word=${line%%$tab*}\n"
    "           offers+=(\"${word//:/\\\\:}${${line#$word}/#$tab/:}\") ;;\n"
    "        esac\n"
    "    done\n"
    "    (( $#offers )) && _describe -t hutch hutch offers \"${nospace[@]}\"\n"
    "    [[ -n $files ]] && _files\n"
    "    return 0\n"
    "}\n"
    "if [[ ${funcstack[1]-} == _hutch ]]; then _hutch \"$@\"; else compdef _hutch hutch; fi\n";

static const char fish[] =
    "# fish completion for hutch; printed by `hutch completion fish`\n"
    "function __hutch_complete\n"
    "    set -l words (commandline -opc)\n"
    "    set -l cur (commandline -ct)\n"
    "    for line in (command $words[1] __complete -- $words[2..-1] \"$cur\" 2>/dev/null)\n"
    "        switch $line\n"
    "            case ':files'\n"
    "                __fish_complete_path \"$cur\"\n"
    "            case ':nospace'\n"
    "            case '*'\n"
    "                echo $line\n"
    "        end\n"
    "    end\n"
    "end\n"
    "complete -c hutch -f -a '(__hutch_complete)'\n";

static int exec_completion(struct cli *x, struct args *a)
{
    static const struct {
        const char *shell, *text;
    } scripts[] = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++)
        if (!strcmp(a->v[0], scripts[i].shell)) {
            (void)fputs(scripts[i].text, stdout);
            return 0;
        }
    return cli_usage(x, "completion: want bash, zsh or fish");
}
const struct cmd cmd_completion = {.name = "completion",
                                   .usage = "bash|zsh|fish",
                                   .help =
                                       "print a completion script: source <(hutch completion bash)",
                                   .min = 1,
                                   .max = 1,
                                   .words = "bash zsh fish",
                                   .exec = exec_completion};

static int exec_complete(struct cli *x, struct args *a)
{
    auto_buf b = {0};
    complete(x, a->n, a->v, &b);
    (void)fwrite(b.p ? b.p : "", 1, b.n, stdout);
    return 0;
}
const struct cmd cmd_complete = {.name = "__complete",
                                 .usage = "-- WORD…",
                                 .help = "what completion offers",
                                 .max = -1,
                                 .exec = exec_complete};
