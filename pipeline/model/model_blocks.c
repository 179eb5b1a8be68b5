/* Blocks of a model that hold the same bytes. */
#include "model/model_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { PREFIX_ROOM = 32 };

static size_t block_prefix(uint64_t block, char out[PREFIX_ROOM])
{
    return (size_t)snprintf(out, PREFIX_ROOM, "/layers/%03" PRIu64 "/", block);
}

static size_t count_of(const struct espl_artifact *artifact, uint64_t block)
{
    char prefix[PREFIX_ROOM];
    const size_t len = block_prefix(block, prefix);
    size_t count = 0;
    for (size_t i = 0; i < espl_artifact_tensor_count(artifact); i++) {
        count += strncmp(espl_artifact_tensor(artifact, i)->path, prefix, len) == 0 ? 1 : 0;
    }
    return count;
}

bool espl_model_blocks_equal(const struct espl_model *model, uint64_t first, uint64_t second)
{
    const struct espl_artifact *artifact = model->chain[0];
    char from[PREFIX_ROOM];
    char to[PREFIX_ROOM];
    const size_t from_len = block_prefix(first, from);
    (void)block_prefix(second, to);
    if (first == second) {
        return true;
    }
    if (model->chain_count != 1 || count_of(artifact, first) != count_of(artifact, second)) {
        return false;
    }
    for (size_t i = 0; i < espl_artifact_tensor_count(artifact); i++) {
        const struct espl_tensor_info *one = espl_artifact_tensor(artifact, i);
        char path[ESPL_TENSOR_PATH + PREFIX_ROOM];
        if (strncmp(one->path, from, from_len) != 0) {
            continue;
        }
        (void)snprintf(path, sizeof path, "%s%s", to, one->path + from_len);
        const struct espl_tensor_info *other = espl_artifact_find(artifact, path);
        if (other == NULL || one->sha256[0] == '\0' || strcmp(one->sha256, other->sha256) != 0 ||
            one->dtype != other->dtype || one->bytes != other->bytes) {
            return false;
        }
    }
    return true;
}
