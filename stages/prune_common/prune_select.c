#include "stages/prune_common/prune_select.h"

#include "core/buf.h"

#include <math.h>
#include <string.h>

const char *const espl_prune_tail_choices[] = {"refuse", "dense", NULL};

enum { MESSAGE_LIMIT = 400, NAMED_LAYERS = 3 };

/* The default of the sparsity parameter: leaving it out must not contradict a pattern. */
static const double DEFAULT_SPARSITY = 0.5;

static enum espl_status check_sparsity(const struct espl_prune_params *params,
                                       struct espl_error *err)
{
    if (!(params->sparsity >= 0.0 && params->sparsity < 1.0)) {
        espl_fail(err, ESPL_E_JOB, "sparsity %g is not in [0, 1): at 1 nothing would be left",
                  params->sparsity);
        return espl_blame(err, "param:sparsity");
    }
    if (params->pattern.m == 0) {
        return ESPL_OK;
    }
    const double removed = 1.0 - (double)params->pattern.n / (double)params->pattern.m;
    if (params->sparsity != DEFAULT_SPARSITY && fabs(params->sparsity - removed) > 1e-9) {
        espl_fail(err, ESPL_E_JOB, "sparsity %g contradicts pattern %u:%u, which removes %g",
                  params->sparsity, (unsigned)params->pattern.n, (unsigned)params->pattern.m,
                  removed);
        espl_hint(err, "N:M keeps N of every M columns and so sets the sparsity; leave 'sparsity' "
                       "out");
        return espl_blame(err, "param:sparsity");
    }
    return ESPL_OK;
}

/* Group sizes of powers of two that divide the columns of every selected linear. */
static void list_legal_groups(const struct espl_prune_selection *selection, struct espl_buf *out)
{
    for (uint64_t m = 2; m <= 64; m *= 2) {
        bool fits = true;
        for (size_t i = 0; i < selection->count && fits; i++) {
            const struct espl_prune_linear *linear = &selection->linears[i];
            fits = !linear->selected || linear->spec.shape[1] % m == 0;
        }
        if (fits) {
            (void)espl_buf_printf(out, "%s%llu", out->len > 0 ? ", " : "", (unsigned long long)m);
        }
    }
}

static enum espl_status check_groups(const struct espl_prune_params *params,
                                     const struct espl_prune_selection *selection,
                                     struct espl_error *err)
{
    const uint64_t m = params->pattern.m;
    if (m == 0 || params->tail == ESPL_PRUNE_TAIL_DENSE) {
        return ESPL_OK;
    }
    struct espl_buf names, groups;
    espl_buf_init(&names, MESSAGE_LIMIT);
    espl_buf_init(&groups, MESSAGE_LIMIT);
    size_t bad = 0;
    for (size_t i = 0; i < selection->count; i++) {
        const struct espl_prune_linear *linear = &selection->linears[i];
        if (!linear->selected || linear->spec.shape[1] % m == 0) {
            continue;
        }
        if (bad < NAMED_LAYERS) {
            (void)espl_buf_printf(&names, "%s%s (%llu columns)", bad > 0 ? ", " : "",
                                  linear->spec.module, (unsigned long long)linear->spec.shape[1]);
        }
        bad++;
    }
    enum espl_status status = ESPL_OK;
    if (bad > 0) {
        if (bad > NAMED_LAYERS) {
            (void)espl_buf_printf(&names, " and %zu more", bad - NAMED_LAYERS);
        }
        list_legal_groups(selection, &groups);
        espl_fail(err, ESPL_E_JOB, "pattern %u:%u does not divide the columns of %zu layer%s: %s",
                  (unsigned)params->pattern.n, (unsigned)params->pattern.m, bad,
                  bad == 1 ? "" : "s", espl_buf_text(&names));
        espl_hint(err,
                  "M that fits every selected layer: %s; or 'tail: dense' keeps the last "
                  "columns of each row, or 'ignore' these layers",
                  groups.len > 0 ? espl_buf_text(&groups) : "none");
        status = espl_blame(err, "param:pattern");
    }
    espl_buf_free(&names);
    espl_buf_free(&groups);
    return status;
}

/* Layers that groups of the grid do not cover. */
static enum espl_status check_shapes(const struct espl_align *align,
                                     const struct espl_prune_selection *selection,
                                     struct espl_error *err)
{
    const char *fault = NULL;
    struct espl_buf names;
    size_t bad = 0;
    espl_buf_init(&names, MESSAGE_LIMIT);
    for (size_t i = 0; i < selection->count; i++) {
        const struct espl_tensor_spec *spec = &selection->linears[i].spec;
        const struct espl_matrix_shape shape = {(size_t)spec->shape[0], (size_t)spec->shape[1]};
        const char *found = selection->linears[i].selected ? espl_align_fault(align, &shape) : NULL;
        if (found == NULL) {
            continue;
        }
        fault = fault != NULL ? fault : found;
        if (bad < NAMED_LAYERS) {
            (void)espl_buf_printf(&names, "%s%s (%zu x %zu)", bad > 0 ? ", " : "", spec->module,
                                  shape.rows, shape.cols);
        }
        bad++;
    }
    enum espl_status status = ESPL_OK;
    if (bad > 0) {
        if (bad > NAMED_LAYERS) {
            (void)espl_buf_printf(&names, " and %zu more", bad - NAMED_LAYERS);
        }
        espl_fail(err, ESPL_E_JOB, "align %ux%u (%s) does not fit %zu layer%s: %s",
                  (unsigned)align->grid.rows, (unsigned)align->grid.cols,
                  espl_align_form_choices[align->form], bad, bad == 1 ? "" : "s",
                  espl_buf_text(&names));
        espl_hint(err, "%s; or 'ignore' these layers", fault);
        status = espl_blame(err, "param:align");
    }
    espl_buf_free(&names);
    return status;
}

static enum espl_status check_align(const struct espl_prune_params *params,
                                    const struct espl_prune_selection *selection,
                                    struct espl_error *err)
{
    if (!espl_align_is_on(&params->align)) {
        if (params->align.fill == ESPL_ALIGN_FILL_NONE) {
            return ESPL_OK;
        }
        espl_fail(err, ESPL_E_JOB, "fill 'union' needs groups to fill");
        espl_hint(err,
                  "say which weights share a mask bit, for example 'align: {rows: 2, cols: 1}'");
        return espl_blame(err, "param:fill");
    }
    if (params->pattern.m > 0) {
        espl_fail(err, ESPL_E_JOB, "align %ux%u cannot be combined with pattern %u:%u",
                  (unsigned)params->align.grid.rows, (unsigned)params->align.grid.cols,
                  (unsigned)params->pattern.n, (unsigned)params->pattern.m);
        espl_hint(err, "N:M fixes the count of every window; leave 'align' or 'pattern' out");
        return espl_blame(err, "param:align");
    }
    return check_shapes(&params->align, selection, err);
}

static enum espl_status check_vector(const struct espl_prune_params *params, struct espl_error *err)
{
    if (params->vector <= 1 || params->pattern.m > 0) {
        return ESPL_OK;
    }
    espl_fail(err, ESPL_E_JOB, "vector %lld needs a pattern for the rows to share",
              (long long)params->vector);
    espl_hint(err, "add 'pattern: N:M'; without a pattern 'align' groups weights");
    return espl_blame(err, "param:vector");
}

struct espl_nm_choice espl_prune_nm_choice(const struct espl_prune_params *params)
{
    return (struct espl_nm_choice){.pattern = params->pattern,
                                   .keep_tail = params->tail == ESPL_PRUNE_TAIL_DENSE,
                                   .vector = (size_t)params->vector};
}

size_t espl_prune_row_span(const struct espl_prune_params *params)
{
    return params->vector > 1 ? (size_t)params->vector : espl_align_row_span(&params->align);
}

enum espl_status espl_prune_select(const struct espl_model_config *config,
                                   const struct espl_prune_params *params,
                                   struct espl_prune_selection *selection, struct espl_error *err)
{
    memset(selection, 0, sizeof *selection);
    enum espl_status status = check_sparsity(params, err);
    if (status == ESPL_OK) {
        status = check_vector(params, err);
    }
    if (status == ESPL_OK) {
        status = espl_layers_select(config, &params->layers, selection, err);
    }
    if (status == ESPL_OK) {
        status = check_groups(params, selection, err);
    }
    return status == ESPL_OK ? check_align(params, selection, err) : status;
}
