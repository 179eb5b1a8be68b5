#include "cli/diff_tensors.h"

#include "cli/print.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN_PAIRS = 20 };

static bool same_shape(const struct espl_tensor_info *a, const struct espl_tensor_info *b)
{
    bool same = a->rank == b->rank;
    for (unsigned i = 0; same && i < a->rank; ++i) {
        same = a->logical_shape[i] == b->logical_shape[i];
    }
    return same;
}

static enum espl_status relate(struct espl_artifact *artifact_a, struct espl_artifact *artifact_b,
                               struct espl_tensor_pair *pair, struct espl_error *err)
{
    const struct espl_tensor_info *a = pair->a;
    const struct espl_tensor_info *b = pair->b;
    if (a == NULL || b == NULL) {
        pair->relation = a != NULL ? ESPL_TENSOR_ONLY_A : ESPL_TENSOR_ONLY_B;
        return ESPL_OK;
    }
    if (!same_shape(a, b)) {
        pair->relation = ESPL_TENSOR_SHAPE;
        return ESPL_OK;
    }
    if (a->dtype == b->dtype && strcmp(a->packing, b->packing) == 0 &&
        strcmp(a->sha256, b->sha256) == 0) {
        pair->relation = ESPL_TENSOR_EQUAL;
        return ESPL_OK;
    }
    pair->relation = ESPL_TENSOR_DIFFER;
    return espl_tensor_compare(artifact_a, a, artifact_b, b, &pair->difference, err);
}

enum espl_status espl_tensor_pairs_load(struct espl_artifact *a, struct espl_artifact *b,
                                        struct espl_tensor_pairs *out, struct espl_error *err)
{
    const size_t count_a = espl_artifact_tensor_count(a);
    const size_t count_b = espl_artifact_tensor_count(b);
    memset(out, 0, sizeof *out);
    out->items = calloc(count_a + count_b + 1, sizeof *out->items);
    if (out->items == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for %zu datasets", count_a + count_b);
    }
    size_t i = 0;
    size_t j = 0;
    enum espl_status status = ESPL_OK;
    while (status == ESPL_OK && (i < count_a || j < count_b)) {
        struct espl_tensor_pair *pair = &out->items[out->count++];
        const struct espl_tensor_info *at_a = i < count_a ? espl_artifact_tensor(a, i) : NULL;
        const struct espl_tensor_info *at_b = j < count_b ? espl_artifact_tensor(b, j) : NULL;
        const int order = at_a == NULL ? 1 : at_b == NULL ? -1 : strcmp(at_a->path, at_b->path);
        pair->a = order <= 0 ? at_a : NULL;
        pair->b = order >= 0 ? at_b : NULL;
        i += order <= 0 ? 1 : 0;
        j += order >= 0 ? 1 : 0;
        status = relate(a, b, pair, err);
        out->equal += pair->relation == ESPL_TENSOR_EQUAL ? 1 : 0;
    }
    return status;
}

void espl_tensor_pairs_free(struct espl_tensor_pairs *pairs)
{
    free(pairs->items);
    memset(pairs, 0, sizeof *pairs);
}

static void pair_row(struct espl_table *table, const struct espl_tensor_pair *pair)
{
    char shape_a[ESPL_SHAPE_TEXT];
    char shape_b[ESPL_SHAPE_TEXT];
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", pair->a != NULL ? pair->a->path : pair->b->path);
    if (pair->a == NULL || pair->b == NULL) {
        espl_table_cell(table, ESPL_STYLE_PLAIN, "only in %s", pair->a != NULL ? "a" : "b");
    } else if (pair->relation == ESPL_TENSOR_SHAPE) {
        espl_tensor_shape_text(pair->a, shape_a);
        espl_tensor_shape_text(pair->b, shape_b);
        espl_table_cell(table, ESPL_STYLE_PLAIN, "shape %s, %s", shape_a, shape_b);
    } else if (pair->a->dtype != pair->b->dtype) {
        espl_table_cell(table, ESPL_STYLE_PLAIN, "type %s, %s", espl_dtype_name(pair->a->dtype),
                        espl_dtype_name(pair->b->dtype));
    } else {
        espl_table_cell(table, ESPL_STYLE_PLAIN, "values differ");
    }
    if (pair->relation == ESPL_TENSOR_DIFFER) {
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%" PRIu64 " of %" PRIu64,
                        pair->difference.differing, pair->difference.count);
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%.4g", pair->difference.max_abs);
    } else {
        espl_table_cell(table, ESPL_STYLE_DIM, "-");
        espl_table_cell(table, ESPL_STYLE_DIM, "-");
    }
}

enum espl_status espl_tensor_pairs_print(const struct espl_cli *cli,
                                         const struct espl_tensor_pairs *pairs, bool all,
                                         struct espl_error *err)
{
    static const struct espl_column columns[] = {{.title = "dataset"},
                                                 {.title = "what differs"},
                                                 {.title = "elements", .right = true},
                                                 {.title = "largest difference", .right = true}};
    struct espl_table *table = NULL;
    if (pairs->equal == pairs->count) {
        fprintf(cli->out, "datasets: all %zu equal\n", pairs->count);
        return ESPL_OK;
    }
    enum espl_status status = espl_table_create(columns, 4, &table, err);
    if (status != ESPL_OK) {
        return status;
    }
    size_t shown = 0;
    for (size_t i = 0; i < pairs->count; ++i) {
        if (pairs->items[i].relation != ESPL_TENSOR_EQUAL && (all || shown < SHOWN_PAIRS)) {
            pair_row(table, &pairs->items[i]);
            ++shown;
        }
    }
    const size_t different = pairs->count - pairs->equal;
    if (shown < different) {
        espl_table_line(table, "... %zu more differ (--all)", different - shown);
    }
    if (pairs->equal > 0) {
        espl_table_line(table, "%zu more are equal", pairs->equal);
    }
    status = espl_table_print(table, cli->out, 0, cli->colour_out, err);
    espl_table_destroy(table);
    return status;
}

json_t *espl_tensor_pairs_json(const struct espl_tensor_pairs *pairs)
{
    static const char *const names[] = {[ESPL_TENSOR_EQUAL] = "equal",
                                        [ESPL_TENSOR_DIFFER] = "values",
                                        [ESPL_TENSOR_SHAPE] = "shape",
                                        [ESPL_TENSOR_ONLY_A] = "only-a",
                                        [ESPL_TENSOR_ONLY_B] = "only-b"};
    json_t *list = json_array();
    for (size_t i = 0; i < pairs->count; ++i) {
        const struct espl_tensor_pair *pair = &pairs->items[i];
        if (pair->relation == ESPL_TENSOR_EQUAL) {
            continue;
        }
        json_t *item =
            json_pack("{s:s, s:s}", "path", pair->a != NULL ? pair->a->path : pair->b->path,
                      "relation", names[pair->relation]);
        if (pair->relation == ESPL_TENSOR_DIFFER) {
            const bool finite = isfinite(pair->difference.max_abs);
            (void)json_object_set_new(item, "elements",
                                      json_integer((json_int_t)pair->difference.count));
            (void)json_object_set_new(item, "differing",
                                      json_integer((json_int_t)pair->difference.differing));
            (void)json_object_set_new(item, "max_abs",
                                      finite ? json_real(pair->difference.max_abs) : json_null());
        }
        (void)json_array_append_new(list, item);
    }
    return json_pack("{s:o, s:I}", "different", list, "same", (json_int_t)pairs->equal);
}
