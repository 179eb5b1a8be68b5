#include "stages/atom_quantize/atom_setup.h"

#include "core/buf.h"
#include "core/checked.h"
#include "core/codes.h"
#include "stages/calibration/hessians.h"
#include "stages/prune_common/model_plan.h"
#include "stages/quant_common/channel_order.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *const espl_atom_method_choices[] = {"gptq", "rtn", NULL};
const char *const espl_atom_scale_choices[] = {"auto", "half", "full", NULL};
const char *const espl_atom_reorder_choices[] = {"hessian", "none", NULL};
const char *const espl_atom_removed_choices[] = {"remask", "freeze", NULL};

enum { MESSAGE_LIMIT = 400, NAMED_LAYERS = 3 };

/* ---- checks ---- */

static enum espl_status check_bits(int64_t bits, const char *name, struct espl_error *err)
{
    if (bits <= ESPL_CODES_MAX_BITS || bits == ESPL_QUANT_FLOAT_BITS) {
        return ESPL_OK;
    }
    espl_fail(err, ESPL_E_JOB, "%s %" PRId64 " is not possible", name, bits);
    espl_hint(err, "4 to 8 bits, or 16 to leave them in float");
    char blame[64];
    (void)snprintf(blame, sizeof blame, "param:%s", name);
    return espl_blame(err, blame);
}

/* Moving columns tears the windows of an N:M mask apart. */
static enum espl_status check_pattern(const struct espl_atom_params *params,
                                      const json_t *description, struct espl_error *err)
{
    const char *pattern =
        json_string_value(json_object_get(json_object_get(description, "pruning"), "pattern"));
    if (params->reorder == ESPL_ATOM_REORDER_NONE || pattern == NULL ||
        strcmp(pattern, "none") == 0) {
        return ESPL_OK;
    }
    espl_fail(err, ESPL_E_JOB,
              "the input model is pruned %s, and 'reorder: hessian' moves its columns out of their "
              "windows",
              pattern);
    espl_hint(err, "set 'reorder: none' (then there are no outlier channels unless you ask for "
                   "them), or prune without a pattern");
    return espl_blame(err, "param:reorder");
}

/* ---- sizes ---- */

static size_t outliers_for(const struct espl_atom_params *params, size_t columns)
{
    if (params->outlier_channels >= 0) {
        return (size_t)params->outlier_channels;
    }
    /* Without an order the last columns are no outliers. */
    return params->reorder == ESPL_ATOM_REORDER_NONE ? 0 : espl_outliers_auto(columns);
}

static bool group_fits(const struct espl_atom_params *params, size_t normal)
{
    return params->group_size < 0 ? espl_group_auto(normal) != 0
                                  : espl_group_is_legal(normal, (size_t)params->group_size);
}

/* Lists the selected layers whose columns do not fit. *first: columns of the first of them. */
static size_t list_misfits(const struct espl_atom_params *params,
                           const struct espl_prune_selection *selection, bool by_outliers,
                           struct espl_buf *names, size_t *first)
{
    size_t bad = 0;
    for (size_t i = 0; i < selection->count; i++) {
        const struct espl_prune_linear *linear = &selection->linears[i];
        const size_t columns = (size_t)linear->spec.shape[1];
        const size_t outliers = outliers_for(params, columns);
        const bool fits = by_outliers
                              ? outliers < columns
                              : outliers >= columns || group_fits(params, columns - outliers);
        if (!linear->selected || fits) {
            continue;
        }
        if (bad == 0) {
            *first = columns;
        }
        if (bad < NAMED_LAYERS) {
            (void)espl_buf_printf(names, "%s%s (%zu columns", bad > 0 ? ", " : "",
                                  linear->spec.module, columns);
            (void)espl_buf_printf(
                names, outliers > 0 && !by_outliers ? ", %zu of them outliers)" : ")", outliers);
        }
        bad++;
    }
    if (bad > NAMED_LAYERS) {
        (void)espl_buf_printf(names, " and %zu more", bad - NAMED_LAYERS);
    }
    return bad;
}

static enum espl_status check_outliers(const struct espl_atom_params *params,
                                       const struct espl_prune_selection *selection,
                                       struct espl_error *err)
{
    struct espl_buf names;
    size_t first = 0;
    espl_buf_init(&names, MESSAGE_LIMIT);
    const size_t bad = list_misfits(params, selection, true, &names, &first);
    enum espl_status status = ESPL_OK;
    if (bad > 0) {
        espl_fail(err, ESPL_E_JOB, "%" PRId64 " outlier channels leave nothing of %zu layer%s: %s",
                  params->outlier_channels, bad, bad == 1 ? "" : "s", espl_buf_text(&names));
        espl_hint(err, "'auto' takes at most an eighth of the columns: %zu of %zu",
                  espl_outliers_auto(first), first);
        status = espl_blame(err, "param:outlier_channels");
    }
    espl_buf_free(&names);
    return status;
}

static enum espl_status check_groups(const struct espl_atom_params *params,
                                     const struct espl_prune_selection *selection,
                                     struct espl_error *err)
{
    struct espl_buf names;
    size_t first = 0;
    char legal[128];
    espl_buf_init(&names, MESSAGE_LIMIT);
    const size_t bad = list_misfits(params, selection, false, &names, &first);
    enum espl_status status = ESPL_OK;
    if (bad > 0) {
        espl_group_list(first - outliers_for(params, first), legal);
        if (params->group_size < 0) {
            espl_fail(err, ESPL_E_JOB, "none of 128, 64, 32 divides the columns of %zu layer%s: %s",
                      bad, bad == 1 ? "" : "s", espl_buf_text(&names));
        } else {
            espl_fail(err, ESPL_E_JOB,
                      "group_size %" PRId64 " does not fit the columns of %zu layer%s: %s",
                      params->group_size, bad, bad == 1 ? "" : "s", espl_buf_text(&names));
        }
        espl_hint(err,
                  "groups that fit the first of them: %s; 0 is one scale a row; or 'ignore' these "
                  "layers",
                  legal);
        status = espl_blame(err, "param:group_size");
    }
    espl_buf_free(&names);
    return status;
}

static void add_width(const struct espl_atom_params *params, size_t columns,
                      struct espl_quant_scheme *scheme)
{
    if (espl_quant_scheme_width(scheme, columns) != NULL ||
        scheme->width_count == ESPL_QUANT_MAX_WIDTHS) {
        return;
    }
    const size_t outliers = outliers_for(params, columns);
    const size_t group =
        params->group_size < 0 ? espl_group_auto(columns - outliers) : (size_t)params->group_size;
    scheme->widths[scheme->width_count++] = (struct espl_quant_width){columns, outliers, group};
}

static void fill_scheme(const struct espl_atom_params *params,
                        const struct espl_prune_selection *selection,
                        struct espl_quant_scheme *scheme)
{
    const bool gptq = params->method == ESPL_ATOM_GPTQ;
    *scheme = (struct espl_quant_scheme){
        .weight_bits = (unsigned)params->weight_bits,
        .activation_bits = (unsigned)params->activation_bits,
        .kv_bits = (unsigned)params->kv_bits,
        .rows_per_scale = (size_t)params->rows_per_scale,
        .weight_clip = params->weight_clip,
        .activation_clip = params->activation_clip,
        .kv_clip = params->kv_clip,
        .gptq = gptq,
        .full_scale =
            params->scale == ESPL_ATOM_SCALE_AUTO ? gptq : params->scale == ESPL_ATOM_SCALE_FULL,
        .reordered = params->reorder == ESPL_ATOM_REORDER_HESSIAN,
    };
    for (size_t i = 0; i < selection->count; i++) {
        if (selection->linears[i].selected) {
            add_width(params, (size_t)selection->linears[i].spec.shape[1], scheme);
        }
    }
}

enum espl_status espl_atom_setup_make(const struct espl_model_config *config,
                                      const struct espl_atom_params *params,
                                      const json_t *description, struct espl_atom_setup *setup,
                                      struct espl_error *err)
{
    memset(setup, 0, sizeof *setup);
    enum espl_status status = check_bits(params->activation_bits, "activation_bits", err);
    if (status == ESPL_OK) {
        status = check_bits(params->kv_bits, "kv_bits", err);
    }
    if (status == ESPL_OK) {
        status = check_pattern(params, description, err);
    }
    if (status == ESPL_OK) {
        status = espl_layers_select(config, &params->layers, &setup->selection, err);
    }
    if (status == ESPL_OK) {
        status = check_outliers(params, &setup->selection, err);
    }
    if (status == ESPL_OK) {
        status = check_groups(params, &setup->selection, err);
    }
    if (status == ESPL_OK) {
        fill_scheme(params, &setup->selection, &setup->scheme);
    }
    return status;
}

void espl_atom_setup_free(struct espl_atom_setup *setup)
{
    espl_prune_selection_free(&setup->selection);
}

struct espl_quantiser espl_atom_quantiser(const struct espl_quant_scheme *scheme, size_t columns)
{
    const struct espl_quant_width *width = espl_quant_scheme_width(scheme, columns);
    return (struct espl_quantiser){
        .bits = scheme->weight_bits,
        .group_size = width != NULL ? width->group_size : 0,
        .outliers = width != NULL ? width->outliers : 0,
        .rows_per_scale = scheme->rows_per_scale,
        .scale = scheme->full_scale ? ESPL_QUANT_SCALE_FULL : ESPL_QUANT_SCALE_HALF,
        .clip = (float)scheme->weight_clip,
    };
}

/* ---- for people ---- */

json_t *espl_atom_describe(const struct espl_atom_params *params,
                           const struct espl_atom_setup *setup,
                           const struct espl_calibration_info *info)
{
    return espl_json_join(espl_quant_scheme_to_json(&setup->scheme),
                          json_pack("{s:f, s:s, s:I, s:I, s:I}", "damping", params->damping,
                                    "remask", espl_atom_removed_choices[params->removed], "linears",
                                    (json_int_t)setup->selection.selected, "calibration_windows",
                                    (json_int_t)info->windows, "sequence_length",
                                    (json_int_t)info->tokens));
}

struct espl_chain_counts espl_atom_chain_counts(const struct espl_quant_scheme *scheme,
                                                uint64_t windows)
{
    const uint64_t check = espl_check_windows(windows);
    return (struct espl_chain_counts){
        {scheme->reordered ? windows : check, scheme->gptq ? windows : check}, 0};
}

/* Bytes of all codes and scales. */
static uint64_t output_bytes(const struct espl_atom_setup *setup)
{
    const struct espl_quant_scheme *scheme = &setup->scheme;
    uint64_t bytes = setup->selection.selected_mask_bytes;
    for (size_t i = 0; i < setup->selection.count; i++) {
        const struct espl_prune_linear *linear = &setup->selection.linears[i];
        const struct espl_quant_width *width =
            espl_quant_scheme_width(scheme, (size_t)linear->spec.shape[1]);
        if (!linear->selected || width == NULL) {
            continue;
        }
        const struct espl_quant_linear sizes =
            espl_quant_linear_sizes(scheme, width, (size_t)linear->spec.shape[0]);
        bytes += espl_quant_linear_bytes(&sizes) + width->columns * sizeof(int32_t);
    }
    return bytes;
}

/* "28 linear layers; 384 columns: 32 outliers, groups of 32; ..." */
static void write_note(const struct espl_atom_setup *setup, struct espl_estimate *est)
{
    const struct espl_quant_scheme *scheme = &setup->scheme;
    size_t len = 0;
    for (size_t i = 0; i <= scheme->width_count && len < sizeof est->note; i++) {
        int n = 0;
        if (i == 0) {
            n = snprintf(est->note, sizeof est->note, "%zu linear layers",
                         setup->selection.selected);
        } else if (scheme->widths[i - 1].group_size == 0) {
            n = snprintf(est->note + len, sizeof est->note - len,
                         "; %zu columns: %zu outliers, a scale a row",
                         scheme->widths[i - 1].columns, scheme->widths[i - 1].outliers);
        } else {
            n = snprintf(est->note + len, sizeof est->note - len,
                         "; %zu columns: %zu outliers, groups of %zu",
                         scheme->widths[i - 1].columns, scheme->widths[i - 1].outliers,
                         scheme->widths[i - 1].group_size);
        }
        len += n > 0 ? (size_t)n : 0;
    }
}

void espl_atom_estimate(const struct espl_model_config *config, const struct espl_atom_setup *setup,
                        const struct espl_calibration_info *info, struct espl_estimate *est)
{
    const struct espl_chain_counts counts = espl_atom_chain_counts(&setup->scheme, info->windows);
    const uint64_t overhead = 65536;
    est->units = setup->selection.selected_layers;
    est->output_bytes = output_bytes(setup) + overhead;
    est->scratch_bytes = est->output_bytes + overhead * est->units;
    est->host_bytes = espl_hessians_bytes(&setup->selection);
    write_note(setup, est);
    espl_chains_estimate(config, info, &counts, est);
    est->flop = espl_forward_flop(config, (size_t)info->tokens) *
                (double)(counts.chain[0] + 2 * counts.chain[1]);
}
