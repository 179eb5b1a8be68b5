/* What libyaml says about a broken file, in words a user can act on. For yaml_tree.c. */
#ifndef ESPL_ENGINE_YAML_SYNTAX_H
#define ESPL_ENGINE_YAML_SYNTAX_H

#include "engine/diagnostics.h"

#include <yaml.h>

/** Adds the parser's error to diags. text: as given to the parser. */
void espl_yaml_report_syntax(const yaml_parser_t *parser, const char *file, const char *text,
                             size_t len, struct espl_diagnostics *diags);
/** Checks that the text is UTF-8 without control characters, which libyaml reports without a place.
 * Returns false after adding an error. */
bool espl_yaml_check_text(const char *file, const char *text, size_t len,
                          struct espl_diagnostics *diags);

#endif
