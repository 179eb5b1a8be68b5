#include "report/figure_text.h"

#include "core/tame.h"
#include "core/units.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum figure_style { STYLE_REAL, STYLE_COUNT, STYLE_PERCENT, STYLE_DURATION, STYLE_SIZE };

struct figure_row {
    const char *metric; /* whole name, or a tail that starts with '_' */
    const char *label;  /* NULL = the name with spaces */
    const char *unit;
    enum figure_style style;
};

/* Whole names come before tails. */
static const struct figure_row figure_rows[] = {
    {"perplexity", "perplexity", "", STYLE_REAL},
    {"perplexity_base", "perplexity, dense", "", STYLE_REAL},
    {"perplexity_ratio", "perplexity ratio, compressed to dense", "", STYLE_REAL},
    {"mean_nll", "mean negative log-likelihood", "nats per token", STYLE_REAL},
    {"mean_nll_base", "mean negative log-likelihood, dense", "nats per token", STYLE_REAL},
    {"kl", "KL divergence from dense", "nats", STYLE_REAL}, /* mean over tokens or pictures */
    {"top1", "top-1", "%", STYLE_REAL},
    {"top1_base", "top-1, dense", "%", STYLE_REAL},
    {"top5", "top-5", "%", STYLE_REAL},
    {"top5_base", "top-5, dense", "%", STYLE_REAL},
    {"holdout_top1", "top-1 on held-out pictures", "%", STYLE_REAL},
    {"holdout_top1_dense", "top-1 on held-out pictures, dense", "%", STYLE_REAL},
    {"windows", "windows", "", STYLE_COUNT},
    {"tokens", "tokens", "", STYLE_COUNT},
    {"sequence_length", "sequence length", "tokens", STYLE_COUNT},
    {"tokens_per_second", "rate", "tokens/s", STYLE_REAL},
    {"gflops", "arithmetic rate", "GFLOP/s", STYLE_REAL},
    {"sparsity", "sparsity", "%", STYLE_PERCENT},
    {"sparsity_targeted", "sparsity of the targeted layers", "%", STYLE_PERCENT},
    {"sparsity_block_linears", "sparsity of the blocks' linears", "%", STYLE_PERCENT},
    {"sparsity_all", "sparsity of all weights", "%", STYLE_PERCENT},
    {"check_perplexity", "quick check: perplexity", "", STYLE_REAL},
    {"check_perplexity_base", "quick check: perplexity, dense", "", STYLE_REAL},
    {"check_perplexity_ratio", "quick check: perplexity ratio", "", STYLE_REAL},
    {"mask_sparsity", "sparsity of the masks", "%", STYLE_PERCENT},
    {"quantised_sparsity", "codes that are 0", "%", STYLE_PERCENT},
    {"bits_per_weight", "bits a weight, scales included", "bits", STYLE_REAL},
    {"bits_per_weight_dense", "bits a weight with dense codes, scales included", "bits",
     STYLE_REAL},
    {"pmr", "payload to metadata (PMR)", "", STYLE_REAL},
    {"pmr_effective", "payload to metadata and stored zeros (effective PMR)", "", STYLE_REAL},
    {"intensity", "compute intensity at one token", "operations per byte", STYLE_REAL},
    {"active_before", "union mask bits that are 1, rows as they are", "%", STYLE_PERCENT},
    {"active_after", "union mask bits that are 1, rows in order", "%", STYLE_PERCENT},
    {"mask_ones_saved", "union mask bits saved by the order of rows", "%", STYLE_PERCENT},
    {"linears_reordered", "layers that use their order of rows", "", STYLE_COUNT},
    {"quant_error", "output error of quantised layers, relative", "", STYLE_REAL},
    {"prune_error", "output error of pruned layers, relative", "", STYLE_REAL},
    {"outlier_share", "input energy in outlier channels", "%", STYLE_PERCENT},
    {"scale_min", "smallest weight scale", "", STYLE_REAL},
    {"scale_max", "largest weight scale", "", STYLE_REAL},
    {"rtn_fallbacks", "layers rounded to nearest for want of an inverse", "", STYLE_COUNT},
    {"damping_raised", "layers with more damping than asked", "", STYLE_COUNT},
    {"seconds", "time", "", STYLE_DURATION},
    {"_sparsity", NULL, "%", STYLE_PERCENT},
    {"_seconds", NULL, "", STYLE_DURATION},
    {"_bytes", NULL, "", STYLE_SIZE},
    {"bytes", NULL, "", STYLE_SIZE},
};

static const struct figure_row *find_row(const char *metric)
{
    const size_t len = strlen(metric);
    for (size_t i = 0; i < sizeof figure_rows / sizeof figure_rows[0]; ++i) {
        const char *name = figure_rows[i].metric;
        const size_t tail = strlen(name);
        if (strcmp(name, metric) == 0 ||
            (name[0] == '_' && len > tail && strcmp(metric + len - tail, name) == 0)) {
            return &figure_rows[i];
        }
    }
    return NULL;
}

const char *espl_figure_unit(const char *metric)
{
    const struct figure_row *row = find_row(metric);
    return row != NULL ? row->unit : "";
}

void espl_figure_label(const char *metric, char *out, size_t out_size)
{
    const struct figure_row *row = find_row(metric);
    (void)snprintf(out, out_size, "%s", row != NULL && row->label != NULL ? row->label : metric);
    for (char *c = out; *c != '\0'; ++c) {
        *c = *c == '_' ? ' ' : *c;
    }
}

static void print_real(double value, char out[ESPL_FIGURE_TEXT])
{
    const double size = fabs(value);
    if (size >= 1e9 || (size < 1e-3 && size > 0.0)) {
        (void)snprintf(out, ESPL_FIGURE_TEXT, "%.3e", value);
    } else if (value == floor(value) && size >= 1000.0) {
        (void)snprintf(out, ESPL_FIGURE_TEXT, "%.0f", value);
    } else if (size >= 1000.0) {
        (void)snprintf(out, ESPL_FIGURE_TEXT, "%.1f", value);
    } else if (size >= 1.0) {
        (void)snprintf(out, ESPL_FIGURE_TEXT, "%.3f", value);
    } else {
        (void)snprintf(out, ESPL_FIGURE_TEXT, size > 0.0 ? "%#.4g" : "%.0f", value);
    }
}

void espl_figure_value(const char *metric, double value, char out[ESPL_FIGURE_TEXT])
{
    const struct figure_row *row = find_row(metric);
    const bool whole = value == floor(value) && fabs(value) < 1e15;
    const enum figure_style style = row != NULL ? row->style : whole ? STYLE_COUNT : STYLE_REAL;
    char unit_text[ESPL_UNIT_TEXT];
    if (!isfinite(value)) {
        (void)snprintf(out, ESPL_FIGURE_TEXT, "-");
        return;
    }
    switch (style) {
    case STYLE_COUNT:
        (void)snprintf(out, ESPL_FIGURE_TEXT, "%.0f", value);
        break;
    case STYLE_PERCENT:
        (void)snprintf(out, ESPL_FIGURE_TEXT, "%.2f", value * 100.0);
        break;
    case STYLE_DURATION:
        espl_print_duration(value, unit_text);
        (void)snprintf(out, ESPL_FIGURE_TEXT, "%s", unit_text);
        break;
    case STYLE_SIZE:
        espl_print_size(value <= 0.0 ? 0 : (uint64_t)value, unit_text);
        (void)snprintf(out, ESPL_FIGURE_TEXT, "%s", unit_text);
        break;
    case STYLE_REAL:
        print_real(value, out);
        break;
    }
}

/* Appends at *len; what does not fit is cut. */
static void append(char *out, size_t out_size, size_t *len, const char *text)
{
    const int n = snprintf(out + *len, out_size - *len, "%s", text);
    if (n > 0) {
        *len += (size_t)n < out_size - *len ? (size_t)n : out_size - *len - 1;
    }
}

static void append_scalar(const json_t *value, char *out, size_t out_size, size_t *len)
{
    char text[128];
    struct espl_nm nm;
    switch (json_typeof(value)) {
    case JSON_STRING:
        append(out, out_size, len, json_string_value(value));
        if (espl_parse_nm(json_string_value(value), &nm)) {
            (void)snprintf(text, sizeof text, " (keeps %u of %u)", nm.n, nm.m);
            append(out, out_size, len, text);
        }
        break;
    case JSON_INTEGER:
        (void)snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value));
        append(out, out_size, len, text);
        break;
    case JSON_REAL: {
        char real[ESPL_UNIT_TEXT];
        espl_print_real(json_real_value(value), real);
        append(out, out_size, len, real);
        break;
    }
    case JSON_TRUE:
        append(out, out_size, len, "true");
        break;
    case JSON_FALSE:
        append(out, out_size, len, "false");
        break;
    default: { /* an object by its name: the files of an export */
        const char *name = json_string_value(json_object_get(value, "name"));
        append(out, out_size, len, name != NULL ? name : "-");
        break;
    }
    }
}

void espl_figure_param(const json_t *value, char *out, size_t out_size)
{
    size_t len = 0;
    out[0] = '\0';
    if (!json_is_array(value)) {
        if (value != NULL) {
            append_scalar(value, out, out_size, &len);
            espl_text_tame(out);
        }
        return;
    }
    for (size_t i = 0; i < json_array_size(value); ++i) {
        append(out, out_size, &len, i == 0 ? "" : ", ");
        append_scalar(json_array_get(value, i), out, out_size, &len);
    }
    if (json_array_size(value) == 0) {
        append(out, out_size, &len, "none");
    }
    espl_text_tame(out);
}

void espl_figure_time(const char *utc, char out[ESPL_FIGURE_TEXT])
{
    (void)snprintf(out, ESPL_FIGURE_TEXT, "%s", utc);
    const size_t len = strlen(out);
    if (len == 20 && out[10] == 'T' && out[19] == 'Z') {
        out[10] = ' ';
        (void)snprintf(out + 19, ESPL_FIGURE_TEXT - 19, " UTC");
    }
}
