/* A fetched archive: the input is its bytes; the members "a" and "b/c" are wanted. Whatever the
 * archive says, nothing but the archive and the two may be in the cache, each under its hash and
 * within its limit, nothing beside the cache, and a success means that both are there. */
#include "datasets/fetch/unpack.h"
#include "memory_folder.h"

#include <fcntl.h>
#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MEMBERS = 2, MEMBER_BYTES = 1 << 16 };

static const struct espl_fetch_member members[MEMBERS] = {
    {.member = "a", .name = "a", .max_bytes = MEMBER_BYTES},
    {.member = "b/c", .name = "c", .max_bytes = MEMBER_BYTES}};

static void require(bool condition)
{
    if (!condition) {
        abort();
    }
}

/* One blob: named by its content, and no larger than a member may be unless it is the archive. */
static void check_blob(const char *path, const char *name, const char *archive)
{
    char hash[ESPL_SHA256_HEX];
    uint64_t size = 0;
    require(espl_sha256_file(path, hash, NULL) == ESPL_OK);
    require(strcmp(hash, name) == 0);
    require(espl_fs_file_size(path, &size, NULL) == ESPL_OK);
    require(size <= MEMBER_BYTES || strcmp(name, archive) == 0);
}

static void check_blobs(const struct espl_cache *cache, const char *archive)
{
    char dir[ESPL_PATH_MAX];
    char **shards = NULL;
    size_t shard_count = 0;
    size_t blobs = 0;
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
            require(espl_fs_join(path, shard, names[j], NULL) == ESPL_OK);
            check_blob(path, names[j], archive);
        }
        blobs += count;
        espl_fs_free_names(names, count);
    }
    require(blobs <= MEMBERS + 1);
    espl_fs_free_names(shards, shard_count);
}

static void check_members(const struct espl_cache *cache, const char *archive)
{
    for (size_t i = 0; i < MEMBERS; i++) {
        struct espl_cache_record record;
        char key[ESPL_SHA256_HEX + 8];
        (void)snprintf(key, sizeof key, "%s!%s", archive, members[i].member);
        require(espl_cache_read_record(cache, key, &record, NULL) == ESPL_OK && record.present);
    }
}

/* The folder around the cache holds the cache alone. */
static void check_outside(void)
{
    char **names = NULL;
    size_t count = 0;
    require(espl_fs_list(memory_folder(), 10, &names, &count, NULL) == ESPL_OK);
    require(count == 1 && strcmp(names[0], "cache") == 0);
    espl_fs_free_names(names, count);
}

/* The unpacker tells its events on standard output. */
static enum espl_status unpack_quietly(const struct espl_cache *cache,
                                       const struct espl_fetch_file *file,
                                       const struct espl_fetch_result *archive)
{
    struct espl_error err;
    const int output = dup(STDOUT_FILENO);
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    require(output >= 0 && nowhere >= 0 && dup2(nowhere, STDOUT_FILENO) >= 0);
    const enum espl_status status = espl_fetch_unpack(cache, file, archive, &err);
    require(dup2(output, STDOUT_FILENO) >= 0 && close(output) == 0 && close(nowhere) == 0);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const urls[] = {"https://example.org/x"};
    const struct espl_fetch_file file = {.name = "x",
                                         .key = urls[0],
                                         .urls = urls,
                                         .url_count = 1,
                                         .members = members,
                                         .member_count = MEMBERS};
    struct espl_fetch_result result = {.size = size};
    struct espl_cache cache;
    struct espl_error err;
    char path[ESPL_PATH_MAX];
    require(espl_fs_join(path, memory_folder(), "cache", &err) == ESPL_OK);
    require(espl_cache_locate(path, &cache, &err) == ESPL_OK);
    require(espl_fs_remove_tree(cache.root, &err) == ESPL_OK);
    require(espl_sha256_bytes(data, size, result.sha256, &err) == ESPL_OK);
    require(espl_cache_partial_path(&cache, "new", "", path, &err) == ESPL_OK);
    require(espl_fs_write_file(path, data, size, &err) == ESPL_OK);
    require(espl_cache_publish_blob(&cache, path, result.sha256, &err) == ESPL_OK);
    if (unpack_quietly(&cache, &file, &result) == ESPL_OK) {
        check_members(&cache, result.sha256);
    }
    check_blobs(&cache, result.sha256);
    check_outside();
    return 0;
}
