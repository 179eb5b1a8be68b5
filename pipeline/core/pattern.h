/* Patterns over module names, as `targets:` and `ignore:` use them: shell-style `*` (any run of
 * characters, dots included) and `?`; a pattern matches the whole name or a dotted tail of it, so
 * that "layers.*.mlp.*" and "*.q_proj" and "lm_head" all do what they look like. */
#ifndef ESPL_CORE_PATTERN_H
#define ESPL_CORE_PATTERN_H

#include <stdbool.h>

bool espl_pattern_match(const char *pattern, const char *name);

#endif
