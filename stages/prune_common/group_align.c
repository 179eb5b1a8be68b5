#include "stages/prune_common/group_align.h"

#include "espalier/iebme.h"
#include "stages/prune_common/prune_mask.h"

#include <stdlib.h>
#include <string.h>

const char *const espl_align_form_choices[] = {"areas", "block", NULL};
const char *const espl_align_fill_choices[] = {"none", "union", NULL};

/* Along one side of the matrix the members of a group lie `step` apart, and `step` groups lie
 * between them: group g = (part, place) with place < step has its member m at
 * part * step * count + m * step + place. */
struct side {
    size_t count; /* members of a group */
    size_t step;
};

static struct side side_of(const struct espl_align *align, uint32_t asked, size_t tile)
{
    const size_t count = asked > 1 ? asked : 1; /* 0 = not asked for */
    const struct side side = {count, align->form == ESPL_ALIGN_AREAS ? tile / count : 1};
    return side;
}

static struct side row_side(const struct espl_align *align)
{
    return side_of(align, align->grid.rows, ESPL_IEBME_TILE_ROWS);
}

static struct side col_side(const struct espl_align *align)
{
    return side_of(align, align->grid.cols, ESPL_IEBME_TILE_COLS);
}

/* Index of member `member` of group `group` along a side. */
static size_t member_at(const struct side *side, size_t group, size_t member)
{
    return group / side->step * side->step * side->count + member * side->step + group % side->step;
}

bool espl_align_is_on(const struct espl_align *align)
{
    return align->grid.rows > 1 || align->grid.cols > 1;
}

/* Union masks have 1, 2 or 4 areas a side. */
static bool is_area_count(uint32_t count)
{
    return count <= 2 || count == 4;
}

const char *espl_align_fault(const struct espl_align *align, const struct espl_matrix_shape *shape)
{
    const struct espl_grid *grid = &align->grid;
    if (align->form == ESPL_ALIGN_AREAS) {
        if (!is_area_count(grid->rows) || !is_area_count(grid->cols)) {
            return "areas are 1, 2 or 4 a side";
        }
        if (grid->rows > 1 && shape->rows % ESPL_IEBME_TILE_ROWS != 0) {
            return "rows must be a multiple of 16";
        }
        return grid->cols > 1 && shape->cols % ESPL_IEBME_TILE_COLS != 0
                   ? "columns must be a multiple of 64"
                   : NULL;
    }
    if (shape->rows % row_side(align).count != 0) {
        return "rows must be a multiple of the block's";
    }
    return shape->cols % col_side(align).count != 0 ? "columns must be a multiple of the block's"
                                                    : NULL;
}

size_t espl_align_row_span(const struct espl_align *align)
{
    const struct side rows = row_side(align);
    return rows.count > 1 ? rows.count * rows.step : 1;
}

struct espl_matrix_shape espl_align_groups(const struct espl_align *align,
                                           const struct espl_matrix_shape *shape)
{
    const struct espl_matrix_shape groups = {shape->rows / row_side(align).count,
                                             shape->cols / col_side(align).count};
    return groups;
}

void espl_align_sum(const struct espl_align *align, const struct espl_matrix_shape *shape,
                    const float *score, float *sums)
{
    const struct side rows = row_side(align);
    const struct side cols = col_side(align);
    const struct espl_matrix_shape groups = espl_align_groups(align, shape);
    for (size_t row = 0; row < groups.rows; row++) {
        for (size_t col = 0; col < groups.cols; col++) {
            double sum = 0.0;
            for (size_t i = 0; i < rows.count; i++) {
                const float *line = score + member_at(&rows, row, i) * shape->cols;
                for (size_t j = 0; j < cols.count; j++) {
                    sum += (double)line[member_at(&cols, col, j)];
                }
            }
            sums[row * groups.cols + col] = (float)sum;
        }
    }
}

/* Index of member i of a group in a row-major matrix. */
static size_t element_at(const struct espl_align *align, const struct espl_matrix_shape *shape,
                         size_t group_row, size_t group_col, size_t i)
{
    const struct side rows = row_side(align);
    const struct side cols = col_side(align);
    return member_at(&rows, group_row, i / cols.count) * shape->cols +
           member_at(&cols, group_col, i % cols.count);
}

void espl_align_pool(const struct espl_align *align, const struct espl_matrix_shape *shape,
                     bool largest, double *score)
{
    const struct espl_matrix_shape groups = espl_align_groups(align, shape);
    const size_t members = row_side(align).count * col_side(align).count;
    for (size_t row = 0; row < groups.rows; row++) {
        for (size_t col = 0; col < groups.cols; col++) {
            double pooled = score[element_at(align, shape, row, col, 0)];
            for (size_t i = 1; i < members; i++) {
                const double other = score[element_at(align, shape, row, col, i)];
                pooled = !largest ? pooled + other : other > pooled ? other : pooled;
            }
            for (size_t i = 0; i < members; i++) {
                score[element_at(align, shape, row, col, i)] = pooled;
            }
        }
    }
}

void espl_align_spread(const struct espl_align *align, const struct espl_matrix_shape *shape,
                       const uint8_t *group_mask, uint8_t *mask)
{
    const struct side rows = row_side(align);
    const struct side cols = col_side(align);
    const struct espl_matrix_shape groups = espl_align_groups(align, shape);
    const size_t group_stride = espl_mask_stride(groups.cols);
    const size_t stride = espl_mask_stride(shape->cols);
    memset(mask, 0, shape->rows * stride);
    for (size_t row = 0; row < groups.rows; row++) {
        for (size_t col = 0; col < groups.cols; col++) {
            if (!espl_mask_bit(group_mask + row * group_stride, col)) {
                continue;
            }
            for (size_t i = 0; i < rows.count; i++) {
                for (size_t j = 0; j < cols.count; j++) {
                    espl_mask_set(mask + member_at(&rows, row, i) * stride,
                                  member_at(&cols, col, j));
                }
            }
        }
    }
}

void espl_align_fill_union(const struct espl_align *align, const struct espl_matrix_shape *shape,
                           uint8_t *mask)
{
    const struct side rows = row_side(align);
    const struct side cols = col_side(align);
    const struct espl_matrix_shape groups = espl_align_groups(align, shape);
    const size_t stride = espl_mask_stride(shape->cols);
    for (size_t row = 0; row < groups.rows; row++) {
        for (size_t col = 0; col < groups.cols; col++) {
            bool any = false;
            for (size_t i = 0; i < rows.count * cols.count && !any; i++) {
                any = espl_mask_bit(mask + member_at(&rows, row, i / cols.count) * stride,
                                    member_at(&cols, col, i % cols.count));
            }
            for (size_t i = 0; any && i < rows.count * cols.count; i++) {
                espl_mask_set(mask + member_at(&rows, row, i / cols.count) * stride,
                              member_at(&cols, col, i % cols.count));
            }
        }
    }
}

size_t espl_prune_row_count(size_t count, double sparsity)
{
    return (size_t)((double)count * sparsity);
}

static enum espl_status mask_rows(struct espl_backend *backend,
                                  const struct espl_matrix_shape *shape, const float *score,
                                  double sparsity, uint8_t *mask, struct espl_error *err)
{
    return espl_backend_ops(backend)->row_mask(
        backend, shape, score, espl_prune_row_count(shape->cols, sparsity), mask, err);
}

/* Room for the scores and the mask of the groups of a matrix. */
struct group_room {
    struct espl_matrix_shape groups;
    float *sums;
    uint8_t *mask;
};

static enum espl_status make_room(const struct espl_align *align,
                                  const struct espl_matrix_shape *shape, struct group_room *room,
                                  struct espl_error *err)
{
    const struct espl_matrix_shape groups = espl_align_groups(align, shape);
    room->groups = groups;
    room->sums = malloc(groups.rows * groups.cols * sizeof *room->sums);
    room->mask = malloc(groups.rows * espl_mask_stride(groups.cols));
    return room->sums != NULL && room->mask != NULL
               ? ESPL_OK
               : espl_fail(err, ESPL_E_NOMEM, "no memory for the scores of %zu groups",
                           groups.rows * groups.cols);
}

static void free_room(struct group_room *room)
{
    free(room->sums);
    free(room->mask);
}

/* One pattern for every `vector` rows, which divides them. */
static enum espl_status shared_nm_mask(struct espl_backend *backend,
                                       const struct espl_nm_choice *choice, size_t vector,
                                       const struct espl_matrix_shape *shape, const float *score,
                                       uint8_t *mask, struct espl_error *err)
{
    const struct espl_align align = {.grid = {(uint32_t)vector, 1}, .form = ESPL_ALIGN_BLOCK};
    struct group_room room;
    enum espl_status status = make_room(&align, shape, &room, err);
    if (status == ESPL_OK) {
        espl_align_sum(&align, shape, score, room.sums);
        status = espl_backend_ops(backend)->nm_mask(backend, &room.groups, room.sums,
                                                    choice->pattern.n, choice->pattern.m,
                                                    choice->keep_tail, room.mask, err);
    }
    if (status == ESPL_OK) {
        espl_align_spread(&align, shape, room.mask, mask);
    }
    free_room(&room);
    return status;
}

enum espl_status espl_align_nm_mask(struct espl_backend *backend,
                                    const struct espl_nm_choice *choice,
                                    const struct espl_matrix_shape *shape, const float *score,
                                    uint8_t *mask, struct espl_error *err)
{
    if (choice->vector <= 1) {
        return espl_backend_ops(backend)->nm_mask(backend, shape, score, choice->pattern.n,
                                                  choice->pattern.m, choice->keep_tail, mask, err);
    }
    const struct espl_matrix_shape whole = {shape->rows / choice->vector * choice->vector,
                                            shape->cols};
    const struct espl_matrix_shape rest = {shape->rows - whole.rows, shape->cols};
    enum espl_status status = ESPL_OK;
    if (whole.rows > 0) {
        status = shared_nm_mask(backend, choice, choice->vector, &whole, score, mask, err);
    }
    if (status == ESPL_OK && rest.rows > 0) {
        status = shared_nm_mask(backend, choice, rest.rows, &rest, score + whole.rows * shape->cols,
                                mask + whole.rows * espl_mask_stride(shape->cols), err);
    }
    return status;
}

enum espl_status espl_align_row_mask(struct espl_backend *backend, const struct espl_align *align,
                                     const struct espl_matrix_shape *shape, const float *score,
                                     double sparsity, uint8_t *mask, struct espl_error *err)
{
    if (!espl_align_is_on(align) || align->fill == ESPL_ALIGN_FILL_UNION) {
        const enum espl_status status = mask_rows(backend, shape, score, sparsity, mask, err);
        if (status == ESPL_OK && espl_align_is_on(align)) {
            espl_align_fill_union(align, shape, mask);
        }
        return status;
    }
    struct group_room room;
    enum espl_status status = make_room(align, shape, &room, err);
    if (status == ESPL_OK) {
        espl_align_sum(align, shape, score, room.sums);
        status = mask_rows(backend, &room.groups, room.sums, sparsity, room.mask, err);
    }
    if (status == ESPL_OK) {
        espl_align_spread(align, shape, room.mask, mask);
    }
    free_room(&room);
    return status;
}
