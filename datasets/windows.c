#include "datasets/windows.h"

#include "core/rng.h"

#include <stdlib.h>
#include <string.h>

/* Draws documents until one is longer than `tokens`, as the published sampler does: a document of
 * exactly that length is rejected too. */
static enum espl_status draw_document(const struct espl_document_source *source,
                                      struct espl_mt19937 *mt, size_t tokens, size_t max_rejected,
                                      size_t *document, const int32_t **ids, size_t *len,
                                      struct espl_error *err)
{
    size_t longest = 0;
    for (size_t rejected = 0; rejected <= max_rejected; rejected++) {
        *document = (size_t)espl_mt19937_randint(mt, 0, (int64_t)source->count - 1);
        const enum espl_status status = source->load(source->user, *document, ids, len, err);
        if (status != ESPL_OK) {
            return status;
        }
        if (*len > tokens) {
            return ESPL_OK;
        }
        longest = *len > longest ? *len : longest;
        if (source->count == 1) { /* drawing the only document again changes nothing */
            (void)espl_fail(err, ESPL_E_CORRUPT,
                            "the text has %zu tokens, and a window of %zu needs at least %zu", *len,
                            tokens, tokens + 1);
            return espl_hint(err, "use a shorter sequence_length or a longer text");
        }
    }
    (void)espl_fail(err, ESPL_E_CORRUPT,
                    "no document is long enough: %zu drawn in a row have at most %zu tokens, and a "
                    "window of %zu needs at least %zu",
                    max_rejected + 1, longest, tokens, tokens + 1);
    return espl_hint(err, "use a shorter sequence_length, longer documents, or documents: whole, "
                          "which joins them");
}

enum espl_status espl_windows_draw_from(const struct espl_document_source *source, uint64_t seed,
                                        size_t windows, size_t tokens, size_t max_rejected,
                                        int32_t *out, struct espl_window_place *places,
                                        struct espl_error *err)
{
    if (source->count == 0 || source->count > INT64_MAX || tokens == 0) {
        return espl_fail(err, ESPL_E_CORRUPT,
                         "cannot draw windows of %zu tokens from %zu documents", tokens,
                         source->count);
    }
    struct espl_mt19937 mt;
    espl_mt19937_seed(&mt, seed);
    for (size_t i = 0; i < windows; i++) {
        size_t document = 0;
        const int32_t *ids = NULL;
        size_t len = 0;
        const enum espl_status status =
            draw_document(source, &mt, tokens, max_rejected, &document, &ids, &len, err);
        if (status != ESPL_OK) {
            return status;
        }
        const size_t start = (size_t)espl_mt19937_randint(&mt, 0, (int64_t)(len - tokens - 1));
        memcpy(out + i * tokens, ids + start, tokens * sizeof *out);
        if (places != NULL) {
            places[i] = (struct espl_window_place){document, start};
        }
    }
    return ESPL_OK;
}

static enum espl_status load_range(void *user, size_t document, const int32_t **ids, size_t *len,
                                   struct espl_error *err)
{
    (void)err; /* nothing can fail: the ids are in memory */
    const struct espl_documents *const documents = user;
    *ids = documents->ids + documents->offsets[document];
    *len = (size_t)(documents->offsets[document + 1] - documents->offsets[document]);
    return ESPL_OK;
}

enum espl_status espl_windows_draw(const struct espl_documents *documents, uint64_t seed,
                                   size_t windows, size_t tokens, size_t max_rejected, int32_t *out,
                                   uint64_t *starts, struct espl_error *err)
{
    struct espl_documents ranges = *documents;
    const struct espl_document_source source = {
        .count = documents->count, .load = load_range, .user = &ranges};
    struct espl_window_place *const places = calloc(windows > 0 ? windows : 1, sizeof *places);
    if (places == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for %zu windows", windows);
    }
    const enum espl_status status =
        espl_windows_draw_from(&source, seed, windows, tokens, max_rejected, out, places, err);
    for (size_t i = 0; status == ESPL_OK && starts != NULL && i < windows; i++) {
        starts[i] = documents->offsets[places[i].document] + places[i].start;
    }
    free(places);
    return status;
}
