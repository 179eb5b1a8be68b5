#include "cli/completion_script.h"

#include <string.h>

/* Words of the scripts for what completion offers. */
static const char *const kind_words[] = {
    [ESPL_COMPLETE_NONE] = "none",       [ESPL_COMPLETE_FILE] = "file",
    [ESPL_COMPLETE_JOB] = "job",         [ESPL_COMPLETE_STAGE] = "stage",
    [ESPL_COMPLETE_STAGE_NAME] = "name", [ESPL_COMPLETE_ARTIFACT] = "artifact",
    [ESPL_COMPLETE_RUN] = "run",         [ESPL_COMPLETE_PARAM] = "param",
    [ESPL_COMPLETE_CHOICE] = "choice",
};

/* Text inside single quotes of a shell; colons escaped for zsh's _describe when asked. */
static void add_quoted_text(struct espl_buf *out, const char *text, bool escape_colon)
{
    for (const char *c = text; *c != '\0'; ++c) {
        if (*c == '\'') {
            espl_buf_puts(out, "'\\''");
        } else if (*c == ':' && escape_colon) {
            espl_buf_puts(out, "\\:");
        } else {
            espl_buf_add(out, c, 1);
        }
    }
}

/* "a|b|c" as words. */
static void add_choices(struct espl_buf *out, const char *choices)
{
    for (const char *c = choices; *c != '\0'; ++c) {
        espl_buf_add(out, *c == '|' ? " " : c, 1);
    }
}

static void add_kind(struct espl_buf *out, enum espl_complete complete, const char *argument)
{
    if (complete == ESPL_COMPLETE_CHOICE && argument != NULL) {
        espl_buf_puts(out, "choice ");
        add_choices(out, argument);
    } else {
        espl_buf_puts(out, kind_words[complete]);
    }
}

/* `case` branches: "verb:--option" -> what its value is. Common options under "*". */
static void add_option_kinds(struct espl_buf *out, const char *verb,
                             const struct espl_option *options)
{
    for (const struct espl_option *option = options; option->name != NULL; ++option) {
        if (option->argument == NULL) {
            continue;
        }
        espl_buf_printf(out, "    %s:--%s", verb, option->name);
        if (option->letter != '\0') {
            espl_buf_printf(out, "|%s:-%c", verb, option->letter);
        }
        espl_buf_puts(out, ") kind='");
        add_kind(out, option->complete, option->argument);
        espl_buf_puts(out, "' ;;\n");
    }
}

static void add_all_option_kinds(struct espl_buf *out, const struct espl_command *const *commands,
                                 const struct espl_option *common)
{
    for (size_t i = 0; commands[i] != NULL; ++i) {
        add_option_kinds(out, commands[i]->name, commands[i]->options);
    }
    add_option_kinds(out, "*", common);
}

/* `case` branches: verb -> what its positionals are. */
static void add_positional_kinds(struct espl_buf *out, const struct espl_command *const *commands)
{
    for (size_t i = 0; commands[i] != NULL; ++i) {
        espl_buf_printf(out, "    %s) kind='", commands[i]->name);
        add_kind(out, commands[i]->complete, commands[i]->positional);
        espl_buf_puts(out, "' ;;\n");
    }
}

static void add_stage_names(struct espl_buf *out, const struct espl_stage *const *stages)
{
    for (size_t i = 0; stages[i] != NULL; ++i) {
        espl_buf_printf(out, "%s%s", i > 0 ? " " : "", stages[i]->name);
    }
}

/* ---- bash ---- */

static void add_bash_words(struct espl_buf *out, const struct espl_option *options)
{
    for (const struct espl_option *option = options; option->name != NULL; ++option) {
        espl_buf_printf(out, " --%s%s", option->name, option->argument != NULL ? "=" : "");
    }
}

static const char *const bash_offer =
    "# $1: what to offer; the rest: its words\n"
    "_espalier_offer()\n"
    "{\n"
    "    local what=$1 list word\n"
    "    shift\n"
    "    case $what in\n"
    "    file)\n"
    "        compopt -o filenames 2>/dev/null\n"
    "        mapfile -t COMPREPLY < <(compgen -f -- \"$cur\") ;;\n"
    "    job)\n"
    "        compopt -o filenames 2>/dev/null\n"
    "        mapfile -t COMPREPLY < <(compgen -d -- \"$cur\"; \\\n"
    "            compgen -f -X '!*.yaml' -- \"$cur\"; compgen -f -X '!*.yml' -- \"$cur\") ;;\n"
    "    stage)\n"
    "        [[ -n $job ]] || return\n"
    "        list=$(_espalier_ask --stages \"$job\")\n"
    "        mapfile -t COMPREPLY < <(compgen -W \"$list\" -- \"$cur\") ;;\n"
    "    param)\n"
    "        [[ -n $job ]] || return\n"
    "        compopt -o nospace 2>/dev/null\n"
    "        list=$(_espalier_ask --params \"$job\")\n"
    "        mapfile -t COMPREPLY < <(compgen -W \"$list\" -- \"$cur\") ;;\n"
    "    run)\n"
    "        list=$(_espalier_ask --runs)\n"
    "        mapfile -t COMPREPLY < <(compgen -W \"$list\" -- \"$cur\") ;;\n"
    "    artifact)\n"
    "        # bash splits words at ':', so what stands before it is put back and taken off "
    "again.\n"
    "        local lead=''\n"
    "        if [[ $cur == : ]]; then\n"
    "            lead=$prev:\n"
    "            cur=''\n"
    "        elif [[ $prev == : ]]; then\n"
    "            lead=${COMP_WORDS[COMP_CWORD-2]}:\n"
    "        fi\n"
    "        list=$(_espalier_ask --artifacts)\n"
    "        mapfile -t COMPREPLY < <(compgen -W \"$list\" -- \"$lead$cur\")\n"
    "        COMPREPLY=(\"${COMPREPLY[@]#\"$lead\"}\")\n"
    "        if [[ -z $lead ]]; then\n"
    "            compopt -o filenames 2>/dev/null\n"
    "            mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- \"$cur\")\n"
    "        fi ;;\n"
    "    choice)\n"
    "        mapfile -t COMPREPLY < <(compgen -W \"$*\" -- \"$cur\") ;;\n"
    "    esac\n"
    "}\n\n";

static const char *const bash_scan =
    "    cur=${COMP_WORDS[COMP_CWORD]}\n"
    "    prev=${COMP_WORDS[COMP_CWORD-1]}\n"
    "    if [[ $cur == = ]]; then\n"
    "        option=$prev\n"
    "        cur=''\n"
    "    elif [[ $prev == = ]]; then\n"
    "        option=${COMP_WORDS[COMP_CWORD-2]}\n"
    "    elif [[ $prev == -* ]]; then\n"
    "        option=$prev\n"
    "    fi\n"
    "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
    "        word=${COMP_WORDS[i]}\n"
    "        case $word in\n"
    "        --store) i=$((i + 1)); [[ ${COMP_WORDS[i]} == = ]] && i=$((i + 1))\n"
    "            store=${COMP_WORDS[i]} ;;\n"
    "        -*|=) ;;\n"
    "        *.yaml|*.yml) [[ -n $verb ]] && job=${job:-$word} ;;\n"
    "        *) [[ -z $verb ]] && verb=$word ;;\n"
    "        esac\n"
    "    done\n";

void espl_completion_bash(const struct espl_command *const *commands,
                          const struct espl_option *common, const struct espl_stage *const *stages,
                          struct espl_buf *out)
{
    espl_buf_puts(out, "# bash completion of espalier; made by `espalier completion bash`\n\n"
                       "_espalier_ask()\n{\n"
                       "    \"${COMP_WORDS[0]}\" completion ${store:+--store \"$store\"} \"$@\" "
                       "2>/dev/null\n}\n\n");
    espl_buf_puts(out, bash_offer);
    espl_buf_puts(out, "_espalier()\n{\n"
                       "    local cur prev i word verb='' job='' option='' store='' kind=none "
                       "words\n    COMPREPLY=()\n");
    espl_buf_puts(out, bash_scan);
    espl_buf_puts(out, "    if [[ -n $option ]]; then\n    case $verb:$option in\n");
    add_all_option_kinds(out, commands, common);
    espl_buf_puts(out, "    *) option='' ;;\n    esac\n    fi\n"
                       "    if [[ -n $option ]]; then\n"
                       "        [[ $kind == name ]] && kind=\"choice ");
    add_stage_names(out, stages);
    espl_buf_puts(out, "\"\n        _espalier_offer $kind\n        return\n    fi\n"
                       "    if [[ -z $verb && $cur != -* ]]; then\n"
                       "        _espalier_offer choice");
    for (size_t i = 0; commands[i] != NULL; ++i) {
        espl_buf_printf(out, " %s", commands[i]->name);
    }
    espl_buf_puts(out, "\n        return\n    fi\n    if [[ $cur == -* ]]; then\n"
                       "        case $verb in\n");
    for (size_t i = 0; commands[i] != NULL; ++i) {
        espl_buf_printf(out, "        %s) words='", commands[i]->name);
        add_bash_words(out, commands[i]->options);
        espl_buf_puts(out, "' ;;\n");
    }
    espl_buf_puts(out, "        *) words='' ;;\n        esac\n        words+='");
    add_bash_words(out, common);
    espl_buf_puts(out, "'\n        _espalier_offer choice $words\n"
                       "        [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null\n"
                       "        return\n    fi\n    case $verb in\n");
    add_positional_kinds(out, commands);
    espl_buf_puts(out, "    esac\n"
                       "    # The first positional of a verb may be a job and the next a stage.\n"
                       "    [[ $kind == job && -n $job ]] && kind=stage\n"
                       "    [[ $kind == name ]] && kind=\"choice ");
    add_stage_names(out, stages);
    espl_buf_puts(out, "\"\n    _espalier_offer $kind\n}\n\ncomplete -F _espalier espalier\n");
}

/* ---- zsh ---- */

static void add_zsh_described(struct espl_buf *out, const char *name, const char *tail,
                              const char *help)
{
    espl_buf_puts(out, " '");
    add_quoted_text(out, name, true);
    espl_buf_printf(out, "%s:", tail);
    add_quoted_text(out, help, false);
    espl_buf_puts(out, "'");
}

static void add_zsh_options(struct espl_buf *out, const struct espl_option *options)
{
    for (const struct espl_option *option = options; option->name != NULL; ++option) {
        char name[64];
        (void)snprintf(name, sizeof name, "--%s", option->name);
        add_zsh_described(out, name, option->argument != NULL ? "=" : "", option->help);
    }
}

static const char *const zsh_offer =
    "_espalier_offer() {\n"
    "    local what=$1; shift\n"
    "    local -a list\n"
    "    case $what in\n"
    "    file) _files ;;\n"
    "    job) _files -g '*.(yaml|yml)' ;;\n"
    "    stage) [[ -n $job ]] && list=(${(f)\"$(_espalier_ask --stages $job)\"}) "
    "&& compadd -a list ;;\n"
    "    param) [[ -n $job ]] && list=(${(f)\"$(_espalier_ask --params $job)\"}) "
    "&& compadd -S '' -a list ;;\n"
    "    run) list=(${(f)\"$(_espalier_ask --runs)\"}) && compadd -a list ;;\n"
    "    artifact) list=(${(f)\"$(_espalier_ask --artifacts)\"}) && compadd -a list; _files ;;\n"
    "    choice) list=(\"$@\") && compadd -a list ;;\n"
    "    esac\n"
    "}\n\n";

static const char *const zsh_scan =
    "    for ((i = 2; i < CURRENT; i++)); do\n"
    "        word=${words[i]}\n"
    "        case $word in\n"
    "        --store) i=$((i + 1)); store=${words[i]} ;;\n"
    "        --store=*) store=${word#--store=} ;;\n"
    "        -*) ;;\n"
    "        *.yaml|*.yml) [[ -n $verb ]] && job=${job:-$word} ;;\n"
    "        *) [[ -z $verb ]] && verb=$word ;;\n"
    "        esac\n"
    "    done\n"
    "    if [[ $cur == --*=* ]]; then\n"
    "        option=${cur%%=*}\n"
    "        compset -P 1 '*='\n"
    "    elif [[ ${words[CURRENT-1]} == -* && ${words[CURRENT-1]} != *=* ]]; then\n"
    "        option=${words[CURRENT-1]}\n"
    "    fi\n";

void espl_completion_zsh(const struct espl_command *const *commands,
                         const struct espl_option *common, const struct espl_stage *const *stages,
                         struct espl_buf *out)
{
    espl_buf_puts(out, "#compdef espalier\n"
                       "# zsh completion of espalier; made by `espalier completion zsh`\n\n"
                       "_espalier_ask() {\n"
                       "    ${words[1]} completion ${store:+--store=$store} \"$@\" 2>/dev/null\n"
                       "}\n\n");
    espl_buf_puts(out, zsh_offer);
    espl_buf_puts(out, "_espalier() {\n"
                       "    local i word verb='' job='' option='' store='' kind=none "
                       "cur=${words[CURRENT]}\n    local -a verbs options names\n    names=(");
    add_stage_names(out, stages);
    espl_buf_puts(out, ")\n    verbs=(");
    for (size_t i = 0; commands[i] != NULL; ++i) {
        add_zsh_described(out, commands[i]->name, "", commands[i]->summary);
    }
    espl_buf_puts(out, ")\n");
    espl_buf_puts(out, zsh_scan);
    espl_buf_puts(out, "    if [[ -n $option ]]; then\n    case $verb:$option in\n");
    add_all_option_kinds(out, commands, common);
    espl_buf_puts(out, "    *) option='' ;;\n    esac\n    fi\n"
                       "    if [[ -n $option ]]; then\n"
                       "        [[ $kind == name ]] && kind=\"choice $names\"\n"
                       "        _espalier_offer ${=kind}\n        return\n    fi\n"
                       "    if [[ -z $verb && $cur != -* ]]; then\n"
                       "        _describe -t verbs verb verbs\n        return\n    fi\n"
                       "    if [[ $cur == -* ]]; then\n        case $verb in\n");
    for (size_t i = 0; commands[i] != NULL; ++i) {
        espl_buf_printf(out, "        %s) options=(", commands[i]->name);
        add_zsh_options(out, commands[i]->options);
        espl_buf_puts(out, ") ;;\n");
    }
    espl_buf_puts(out, "        esac\n        options+=(");
    add_zsh_options(out, common);
    espl_buf_puts(out, ")\n        _describe -o -t options option options -S ''\n"
                       "        return\n    fi\n    case $verb in\n");
    add_positional_kinds(out, commands);
    espl_buf_puts(out, "    esac\n"
                       "    [[ $kind == job && -n $job ]] && kind=stage\n"
                       "    [[ $kind == name ]] && kind=\"choice $names\"\n"
                       "    _espalier_offer ${=kind}\n}\n\n"
                       "if [[ ${zsh_eval_context[-1]} == loadautofunc ]]; then\n"
                       "    _espalier \"$@\"\nelse\n    compdef _espalier espalier\nfi\n");
}
