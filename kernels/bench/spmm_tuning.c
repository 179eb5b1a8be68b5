#include "kernels/bench/spmm_tuning.h"

#include "core/checked.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Sparsities that differ by less are the same: files hold 12 digits. */
static const double same_sparsity = 1e-9;

static bool same_product(const struct espl_spmm_stored *stored, const char *form, size_t rows,
                         size_t cols, size_t tokens)
{
    return stored->rows == rows && stored->cols == cols && stored->tokens == tokens &&
           strcmp(stored->form, form) == 0;
}

const struct espl_spmm_stored *espl_spmm_tuning_find(const struct espl_spmm_tuning *tuning,
                                                     const char *form, size_t rows, size_t cols,
                                                     size_t tokens, double sparsity)
{
    const struct espl_spmm_stored *found = NULL;
    for (size_t i = 0; tuning != NULL && i < tuning->count; i++) {
        const struct espl_spmm_stored *stored = &tuning->items[i];
        if (!same_product(stored, form, rows, cols, tokens)) {
            continue;
        }
        const double distance = fabs(stored->sparsity - sparsity);
        const double least = found != NULL ? fabs(found->sparsity - sparsity) : (double)INFINITY;
        if (distance < least || (distance == least && stored->sparsity < found->sparsity)) {
            found = stored;
        }
    }
    return found;
}

enum espl_status espl_spmm_tuning_put(struct espl_spmm_tuning *tuning,
                                      const struct espl_spmm_stored *stored, struct espl_error *err)
{
    enum { FIRST_ROOM = 64 };
    for (size_t i = 0; i < tuning->count; i++) {
        struct espl_spmm_stored *old = &tuning->items[i];
        if (same_product(old, stored->form, stored->rows, stored->cols, stored->tokens) &&
            fabs(old->sparsity - stored->sparsity) < same_sparsity) {
            *old = *stored;
            return ESPL_OK;
        }
    }
    if (tuning->count == tuning->room) {
        size_t bytes = 0;
        const size_t room = tuning->room > 0 ? 2 * tuning->room : FIRST_ROOM;
        struct espl_spmm_stored *items =
            espl_mul_size(room, sizeof *items, &bytes) ? realloc(tuning->items, bytes) : NULL;
        if (items == NULL) {
            return espl_fail(err, ESPL_E_NOMEM, "out of memory for %zu stored choices", room);
        }
        tuning->items = items;
        tuning->room = room;
    }
    tuning->items[tuning->count++] = *stored;
    return ESPL_OK;
}

enum espl_status espl_spmm_tuning_take(struct espl_spmm_tuning *tuning,
                                       const struct espl_spmm_case *item, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; status == ESPL_OK && i < item->count; i++) {
        const struct espl_spmm_result *result = &item->results[i];
        struct espl_spmm_stored stored = {.rows = item->rows,
                                          .cols = item->cols,
                                          .tokens = item->tokens,
                                          .sparsity = item->sparsity,
                                          .choice = result->sweep.choice,
                                          .seconds = result->sweep.seconds};
        if (result->sweep.tried > 0) {
            memcpy(stored.form, result->name, sizeof stored.form);
            status = espl_spmm_tuning_put(tuning, &stored, err);
        }
    }
    return status;
}

void espl_spmm_tuning_free(struct espl_spmm_tuning *tuning)
{
    free(tuning->items);
    *tuning = (struct espl_spmm_tuning){.items = NULL};
}
