/* How figures read: names and units of metrics, rounding for people, N:M in words. */
#ifndef ESPL_REPORT_FIGURE_TEXT_H
#define ESPL_REPORT_FIGURE_TEXT_H

#include <jansson.h>
#include <stddef.h>

enum { ESPL_FIGURE_TEXT = 64 };

/** Unit to print after a metric: "tokens/s", "nats", "%", or "" when it has none (ratios,
 *  counts) or when the text names it itself (durations, sizes). Never NULL. */
const char *espl_figure_unit(const char *metric);
/** The metric's name in words: "perplexity_base" -> "perplexity, dense"; others with '_' as spaces.
 */
void espl_figure_label(const char *metric, char *out, size_t out_size);
/** Value for people: counts whole, shares in percent, durations and sizes with their unit, the rest
 *  with four significant digits or three decimals, whichever says more. NaN gives "-". */
void espl_figure_value(const char *metric, double value, char out[ESPL_FIGURE_TEXT]);
/** Parameter value of a run record in words: texts as they are, N:M as "2:4 (keeps 2 of 4)",
 *  lists with commas, numbers in shortest form. Tamed: control characters are '?'. */
void espl_figure_param(const json_t *value, char *out, size_t out_size);
/** "2026-05-12T10:04:11Z" -> "2026-05-12 10:04:11 UTC"; other texts unchanged. */
void espl_figure_time(const char *utc, char out[ESPL_FIGURE_TEXT]);

#endif
