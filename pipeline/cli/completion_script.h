/* Completion scripts for shells, made from the tables of verbs and options. */
#ifndef ESPL_CLI_COMPLETION_SCRIPT_H
#define ESPL_CLI_COMPLETION_SCRIPT_H

#include "cli/command.h"
#include "core/buf.h"
#include "engine/stage.h"

/** Appends a bash script that defines and registers the completion of `espalier`. */
void espl_completion_bash(const struct espl_command *const *commands,
                          const struct espl_option *common, const struct espl_stage *const *stages,
                          struct espl_buf *out);
/** The same for zsh; works sourced and as file _espalier in a folder of $fpath. */
void espl_completion_zsh(const struct espl_command *const *commands,
                         const struct espl_option *common, const struct espl_stage *const *stages,
                         struct espl_buf *out);

#endif
