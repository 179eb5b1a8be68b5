/* A fetched archive: the input is its bytes; the members "a" and "b/c" are wanted. Whatever the
 * archive says, nothing but blobs with the right hash may appear, and only below the cache. */
#include "datasets/fetch/unpack.h"
#include "memory_folder.h"

#include <fcntl.h>
#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition) {
        abort();
    }
}

/* Every file below blobs/ is named by its content. */
static void check_blobs(const struct espl_cache *cache)
{
    char dir[ESPL_PATH_MAX];
    char **shards = NULL;
    size_t shard_count = 0;
    require(espl_fs_join(dir, cache->root, "blobs", NULL) == ESPL_OK);
    require(espl_fs_list(dir, 1000, &shards, &shard_count, NULL) == ESPL_OK);
    for (size_t i = 0; i < shard_count; i++) {
        char shard[ESPL_PATH_MAX];
        char **names = NULL;
        size_t count = 0;
        require(espl_fs_join(shard, dir, shards[i], NULL) == ESPL_OK);
        require(espl_fs_list(shard, 1000, &names, &count, NULL) == ESPL_OK);
        for (size_t j = 0; j < count; j++) {
            char path[ESPL_PATH_MAX];
            char hash[ESPL_SHA256_HEX];
            require(espl_fs_join(path, shard, names[j], NULL) == ESPL_OK);
            require(espl_sha256_file(path, hash, NULL) == ESPL_OK);
            require(strcmp(hash, names[j]) == 0);
        }
        espl_fs_free_names(names, count);
    }
    espl_fs_free_names(shards, shard_count);
}

/* The unpacker tells its events on standard output. */
static void unpack_quietly(const struct espl_cache *cache, const struct espl_fetch_file *file,
                           const struct espl_fetch_result *archive)
{
    struct espl_error err;
    const int output = dup(STDOUT_FILENO);
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    require(output >= 0 && nowhere >= 0 && dup2(nowhere, STDOUT_FILENO) >= 0);
    (void)espl_fetch_unpack(cache, file, archive, &err); /* any answer, nothing half-made */
    require(dup2(output, STDOUT_FILENO) >= 0 && close(output) == 0 && close(nowhere) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct espl_fetch_member members[] = {
        {.member = "a", .name = "a", .max_bytes = 1 << 16},
        {.member = "b/c", .name = "c", .max_bytes = 1 << 16}};
    static const char *const urls[] = {"https://example.org/x"};
    const struct espl_fetch_file file = {.name = "x",
                                         .key = urls[0],
                                         .urls = urls,
                                         .url_count = 1,
                                         .members = members,
                                         .member_count = 2};
    struct espl_fetch_result result = {.size = size};
    struct espl_cache cache;
    struct espl_error err;
    char path[ESPL_PATH_MAX];
    require(espl_cache_locate(memory_folder(), &cache, &err) == ESPL_OK);
    require(espl_fs_remove_tree(cache.root, &err) == ESPL_OK);
    require(espl_sha256_bytes(data, size, result.sha256, &err) == ESPL_OK);
    require(espl_cache_partial_path(&cache, "new", "", path, &err) == ESPL_OK);
    require(espl_fs_write_file(path, data, size, &err) == ESPL_OK);
    require(espl_cache_publish_blob(&cache, path, result.sha256, &err) == ESPL_OK);
    unpack_quietly(&cache, &file, &result);
    check_blobs(&cache);
    return 0;
}
