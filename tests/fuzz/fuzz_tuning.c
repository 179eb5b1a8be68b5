/* A file of stored choices. What is accepted must be in range, must be found again by its product,
 * and must read back the same after it was written. */
#include "kernels/bench/spmm_bench.h"
#include "stages/deploy_bench/tuning_file.h"

#include "memory_folder.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char device[] = "GPU A";

static void require(bool condition)
{
    if (!condition) {
        abort();
    }
}

static void check_stored(const struct espl_spmm_tuning *tuning,
                         const struct espl_spmm_stored *stored)
{
    const struct espl_spmm_stored *found = espl_spmm_tuning_find(
        tuning, stored->form, stored->rows, stored->cols, stored->tokens, stored->sparsity);
    require(found != NULL && found->rows == stored->rows);
    require(stored->rows > 0 && stored->cols > 0 && stored->cols <= ESPL_CUDA_SPMM_MAX_COLS);
    require(stored->tokens > 0 && stored->tokens <= ESPL_SPMM_MAX_TOKENS);
    require(stored->sparsity >= 0.0 && stored->sparsity <= 1.0 && stored->seconds > 0.0);
    require(stored->choice.warps > 0 && stored->choice.splits > 0 && stored->choice.window > 0);
    require(stored->choice.stages > 0 && stored->choice.parts > 0);
}

static void check_round_trip(const struct espl_spmm_tuning *tuning)
{
    char path[ESPL_PATH_MAX];
    struct espl_spmm_tuning again = {.items = NULL};
    struct espl_error err;
    require(espl_fs_join(path, memory_folder(), "tuning.json", &err) == ESPL_OK);
    (void)remove(path); /* of the input before, when it had choices */
    require(espl_tuning_write(path, device, tuning, &err) == ESPL_OK);
    require(espl_tuning_read(path, device, &again, &err) == ESPL_OK);
    require(again.count == tuning->count);
    for (size_t i = 0; i < again.count; i++) {
        require(strcmp(again.items[i].form, tuning->items[i].form) == 0);
        require(memcmp(&again.items[i].choice, &tuning->items[i].choice,
                       sizeof again.items[i].choice) == 0);
    }
    espl_spmm_tuning_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct espl_spmm_tuning tuning = {.items = NULL};
    struct espl_error err;
    if (espl_tuning_parse((const char *)data, size, device, &tuning, &err) == ESPL_OK) {
        for (size_t i = 0; i < tuning.count; i++) {
            check_stored(&tuning, &tuning.items[i]);
        }
        check_round_trip(&tuning);
    } else {
        require(err.message[0] != '\0');
    }
    espl_spmm_tuning_free(&tuning);
    return 0;
}
