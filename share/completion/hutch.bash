# bash completion for hutch; made by `hutch completion bash`
_hutch_from() {
    local w=$1
    case $w in
    @id) w=$(HUTCH_NO_START=1 hutch ls -q 2>/dev/null) ;;
    @template) w=$(HUTCH_NO_START=1 hutch template ls 2>/dev/null | awk 'NR > 1 { print $1 }') ;;
    @file) mapfile -t COMPREPLY < <(compgen -f -- "$cur"); compopt -o filenames 2>/dev/null; return ;;
    @verb) w=$_hutch_verbs ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$w" -- "$cur")
}
_hutch_verbs='up down run create ls info exec sh cp logs kill timeout keepalive ps pause resume recover fork snapshot snapshots usage rollback eval template volume key secret net url metrics top events egress doctor bench mcp completion version help'
_hutch() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb='' sub='' i words='' opts='' args=''
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        --) mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return ;;
        -*) ;;
        *) if [[ -z $verb ]]; then verb=${COMP_WORDS[i]}; elif [[ -z $sub ]]; then sub=${COMP_WORDS[i]}; fi ;;
        esac
    done
    if [[ -z $verb ]]; then _hutch_from "$_hutch_verbs --url --help"; return; fi
    case $prev in
    --name) _hutch_from ''; return ;;
    --template) _hutch_from '@template'; return ;;
    --snapshot) _hutch_from ''; return ;;
    --isolation) _hutch_from 'vm container gvisor isolate auto'; return ;;
    --cpu) _hutch_from ''; return ;;
    --memory) _hutch_from ''; return ;;
    --disk) _hutch_from ''; return ;;
    --timeout) _hutch_from ''; return ;;
    --env) _hutch_from ''; return ;;
    --net) _hutch_from 'none open allow='; return ;;
    --preview) _hutch_from 'public token'; return ;;
    --volume) _hutch_from ''; return ;;
    --meta) _hutch_from ''; return ;;
    --input) _hutch_from ''; return ;;
    --function) _hutch_from ''; return ;;
    --user) _hutch_from ''; return ;;
    --cwd) _hutch_from ''; return ;;
    --on-timeout) _hutch_from 'kill pause'; return ;;
    --idle) _hutch_from ''; return ;;
    --on-idle) _hutch_from 'kill pause'; return ;;
    --max-lifetime) _hutch_from ''; return ;;
    --state) _hutch_from 'creating running paused stopping gone failed'; return ;;
    --limit) _hutch_from ''; return ;;
    --count) _hutch_from ''; return ;;
    --expires) _hutch_from ''; return ;;
    --keep) _hutch_from ''; return ;;
    --path) _hutch_from ''; return ;;
    --output) _hutch_from '@file'; return ;;
    --of) _hutch_from '@id'; return ;;
    --language) _hutch_from 'python js ts bash r java php ruby'; return ;;
    --in) _hutch_from '@id'; return ;;
    --save) _hutch_from '@file'; return ;;
    --file) _hutch_from '@file'; return ;;
    --context) _hutch_from '@file'; return ;;
    --builtin) _hutch_from 'base code-interpreter isolate'; return ;;
    --size) _hutch_from ''; return ;;
    --inodes) _hutch_from ''; return ;;
    --calls) _hutch_from ''; return ;;
    --bytes) _hutch_from ''; return ;;
    --policy) _hutch_from '@file'; return ;;
    --interval) _hutch_from ''; return ;;
    --since) _hutch_from ''; return ;;
    --rounds) _hutch_from ''; return ;;
    esac
    case $verb in
    template|volume|key|secret) [[ -n $sub ]] && verb+=" $sub" ;;
    esac
    case $verb in
    'up') opts='--foreground --json --help' args='' ;;
    'down') opts='--keep --help' args='' ;;
    'run') opts='--name --template --snapshot --isolation --cpu --memory --disk --timeout --env --net --preview --volume --meta --input --function --user --cwd --tty --keep --no-build --help' args='@file' ;;
    'create') opts='--name --template --snapshot --isolation --cpu --memory --disk --timeout --env --net --preview --volume --meta --on-timeout --idle --on-idle --max-lifetime --auto-resume --no-build --json --help' args='' ;;
    'ls') opts='--all --state --template --meta --quiet --json --help' args='' ;;
    'info') opts='--json --help' args='@id' ;;
    'exec') opts='--user --cwd --env --detach --tty --timeout --help' args='@id' ;;
    'sh') opts='--user --cwd --env --help' args='@id' ;;
    'cp') opts='--user --help' args='@file' ;;
    'logs') opts='--limit --json --help' args='@id' ;;
    'kill') opts='--help' args='@id' ;;
    'timeout') opts='--json --help' args='@id' ;;
    'keepalive') opts='--json --help' args='@id' ;;
    'ps') opts='--json --help' args='@id' ;;
    'pause') opts='--files-only --standby --json --help' args='@id' ;;
    'resume') opts='--timeout --cold --json --help' args='@id' ;;
    'recover') opts='--json --help' args='@id' ;;
    'fork') opts='--count --timeout --json --help' args='@id' ;;
    'snapshot') opts='--name --files-only --expires --keep --path --output --json --help' args='@id' ;;
    'snapshots') opts='--of --json --help' args='' ;;
    'usage') opts='--json --help' args='' ;;
    'rollback') opts='--files-only --json --help' args='@id' ;;
    'eval') opts='--language --isolation --timeout --memory --input --function --in --template --save --json --help' args='' ;;
    'template') words='build ls show rm import --help' ;;
    'template build') opts='--file --context --net --builtin --force --json --help' args='@template' ;;
    'template ls') opts='--json --help' args='' ;;
    'template show') opts='--json --help' args='@template' ;;
    'template rm') opts='--help' args='@template' ;;
    'template import') opts='--json --help' args='@file' ;;
    'volume') words='create ls rm --help' ;;
    'volume create') opts='--size --inodes --json --help' args='' ;;
    'volume ls') opts='--json --help' args='' ;;
    'volume rm') opts='--help' args='' ;;
    'key') words='create ls revoke --help' ;;
    'key create') opts='--json --help' args='' ;;
    'key ls') opts='--json --help' args='' ;;
    'key revoke') opts='--help' args='' ;;
    'secret') words='set ls rm --help' ;;
    'secret set') opts='--calls --bytes --json --help' args='' ;;
    'secret ls') opts='--json --help' args='' ;;
    'secret rm') opts='--help' args='' ;;
    'net') opts='--policy --json --help' args='@id' ;;
    'url') opts='--json --help' args='@id' ;;
    'metrics') opts='--json --help' args='@id' ;;
    'top') opts='--interval --once --json --help' args='' ;;
    'events') opts='--follow --since --json --help' args='@id' ;;
    'egress') opts='--denied --name --verify --json --help' args='@id' ;;
    'doctor') opts='--network --isolation --json --help' args='' ;;
    'bench') opts='--rounds --isolation --template --json --help' args='' ;;
    'mcp') opts='--help' args='' ;;
    'completion') opts='--help' args='bash' ;;
    'version') opts='--json --help' args='' ;;
    'help') opts='--help' args='@verb' ;;
    esac
    if [[ -n $words ]]; then _hutch_from "$words"
    elif [[ $cur == -* ]]; then _hutch_from "$opts"
    else _hutch_from "$args"; fi
}
complete -F _hutch hutch
