/* A registry that a user was given. What reads must hold what its users rely on: names that are
 * safe as paths, addresses, hashes; problems must render. */
#include "datasets/cache.h"
#include "datasets/registry/data_registry.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition) {
        abort();
    }
}

/* Schemes and hosts are the same in any case. */
static bool begins(const char *url, const char *with)
{
    return strncasecmp(url, with, strlen(with)) == 0;
}

static void check_file(const struct espl_registry_entry *entry,
                       const struct espl_registry_file *file)
{
    require(espl_cache_name_is_safe(file->name));
    require(file->url_count > 0 || entry->repository != NULL);
    require(file->url_count <= 16 && file->max_bytes > 0);
    require(file->sha256 == NULL || espl_sha256_is_hex(file->sha256));
    for (size_t i = 0; i < file->url_count; i++) {
        require(begins(file->urls[i], "https://") || begins(file->urls[i], "http://127.0.0.1") ||
                begins(file->urls[i], "http://localhost") || begins(file->urls[i], "http://[::1]"));
    }
    for (size_t i = 0; i < file->member_count; i++) {
        require(espl_cache_name_is_safe(file->members[i].name));
        require(espl_cache_name_is_safe(file->members[i].member));
    }
}

static void check_registry(const struct espl_registry *registry)
{
    for (size_t i = 0; i < registry->count; i++) {
        const struct espl_registry_entry *const entry = &registry->entries[i];
        require(i == 0 || strcmp(registry->entries[i - 1].name, entry->name) < 0);
        require(espl_cache_name_is_safe(entry->name) && strpbrk(entry->name, "/@") == NULL);
        require(entry->title != NULL && entry->licence != NULL);
        require(entry->repository == NULL || entry->revision != NULL);
        require(espl_registry_kind_name(entry->kind) != NULL);
        for (size_t j = 0; j < entry->file_count; j++) {
            check_file(entry, &entry->files[j]);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct espl_error err;
    struct espl_diagnostics diags;
    struct espl_registry registry;
    struct espl_buf rendered;
    struct espl_arena *const arena = espl_arena_create((size_t)64 << 20);
    require(arena != NULL && espl_diagnostics_init(&diags, &err) == ESPL_OK);
    const enum espl_status status =
        espl_registry_parse("r.yaml", (const char *)data, size, arena, &diags, &registry, &err);
    require((status == ESPL_OK) == (diags.count == 0));
    if (status == ESPL_OK) {
        check_registry(&registry);
    }
    espl_buf_init(&rendered, 1 << 22);
    espl_diagnostics_render(&diags, false, &rendered);
    require(!rendered.failed);
    espl_buf_free(&rendered);
    espl_diagnostics_free(&diags);
    espl_arena_destroy(arena);
    return 0;
}
