/* The artifact of a decode bench: description and datasets. */
#include "stages/deploy_bench/decode_record.h"

#include "stages/deploy_bench/bench_record.h"

#include <math.h>
#include <stdlib.h>

enum { NUMBERS = 8, SECONDS = 9, ENERGY = 8 };

const struct espl_decode_cell *espl_decode_record_find(const struct espl_decode_record *record,
                                                       const struct espl_decode_cell *like,
                                                       enum espl_device_form runtime)
{
    for (size_t i = 0; i < record->count; i++) {
        const struct espl_decode_cell *cell = &record->cells[i];
        if (cell->measured && cell->runtime == runtime && cell->sequences == like->sequences &&
            cell->prompt == like->prompt && cell->output == like->output) {
            return cell;
        }
    }
    return NULL;
}

static json_t *names(void)
{
    json_t *runtimes = json_array();
    for (int form = 0; form < ESPL_DEVICE_FORMS; form++) {
        (void)json_array_append_new(
            runtimes, json_string(espl_device_form_name((enum espl_device_form)form)));
    }
    return runtimes;
}

static enum espl_status write_description(const struct espl_decode_record *record,
                                          struct espl_artifact *artifact, struct espl_error *err)
{
    json_t *description = json_pack("{s:s, s:f, s:I, s:o, s:s, s:s}", "device", record->device,
                                    "copy_bytes_per_second", record->copy_bytes_a_second, "repeats",
                                    (json_int_t)record->repeats, "runtimes", names(), "meter",
                                    record->meter, "boundary", record->boundary);
    return espl_bench_take_description(artifact, description, err);
}

static void fill_numbers(const struct espl_decode_cell *cell, uint64_t *to)
{
    const uint64_t numbers[NUMBERS] = {
        (uint64_t)cell->runtime, cell->sequences,    cell->prompt,       cell->output,
        (uint64_t)cell->areas,   cell->weight_bytes, cell->device_bytes, cell->planned_bytes};
    for (size_t i = 0; i < NUMBERS; i++) {
        to[i] = numbers[i];
    }
}

static void fill_seconds(const struct espl_decode_cell *cell, double *to)
{
    const struct espl_device_step_times *times = &cell->times;
    const double seconds[SECONDS] = {
        cell->first_token_seconds, cell->step_median, cell->step_p95, times->step, times->products,
        times->attention,          times->norms,      times->head,    times->gaps};
    for (size_t i = 0; i < SECONDS; i++) {
        to[i] = seconds[i];
    }
}

static void fill_energy(const struct espl_decode_cell *cell, double *to)
{
    const struct espl_decode_energy *energy = &cell->energy;
    const double figures[ENERGY] = {energy->seconds, energy->watts,      energy->idle_watts,
                                    energy->tokens,  energy->sequences,  energy->gross_j,
                                    energy->net_j,   energy->deviation_j};
    for (size_t i = 0; i < ENERGY; i++) {
        to[i] = energy->measured ? figures[i] : (double)NAN;
    }
}

enum espl_status espl_decode_record_write(const struct espl_decode_record *record,
                                          struct espl_artifact *artifact, struct espl_error *err)
{
    const size_t rows = record->count;
    uint64_t *numbers = calloc(rows, NUMBERS * sizeof *numbers);
    double *seconds = calloc(rows, SECONDS * sizeof *seconds);
    double *rates = calloc(rows, sizeof *rates);
    double *energy = calloc(rows, ENERGY * sizeof *energy);
    enum espl_status status = numbers != NULL && seconds != NULL && rates != NULL && energy != NULL
                                  ? write_description(record, artifact, err)
                                  : espl_fail(err, ESPL_E_NOMEM, "out of memory for an artifact");
    for (size_t i = 0; status == ESPL_OK && i < rows; i++) {
        fill_numbers(&record->cells[i], numbers + i * NUMBERS);
        fill_seconds(&record->cells[i], seconds + i * SECONDS);
        fill_energy(&record->cells[i], energy + i * ENERGY);
        rates[i] = record->cells[i].tokens_per_second;
    }
    const struct {
        const char *path;
        enum espl_dtype dtype;
        uint64_t width;
        const void *data;
    } columns[] = {
        {"/cells/numbers", ESPL_DTYPE_U64, NUMBERS, numbers},
        {"/cells/seconds", ESPL_DTYPE_F64, SECONDS, seconds},
        {"/cells/tokens_per_second", ESPL_DTYPE_F64, 0, rates},
        {"/cells/energy", ESPL_DTYPE_F64, ENERGY, energy},
    };
    for (size_t i = 0; status == ESPL_OK && i < sizeof columns / sizeof columns[0]; i++) {
        status = espl_bench_write_column(artifact, columns[i].path, columns[i].dtype, rows,
                                         columns[i].width, 0, columns[i].data, err);
    }
    free(numbers);
    free(seconds);
    free(rates);
    free(energy);
    return status;
}
