#include "datasets/fetch/unpack.h"

#include "datasets/fetch/partial.h"

#include <archive.h>
#include <archive_entry.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An archive may expand to so many times its size, or to the floor if that is more: texts compress
 * ten- to twentyfold, a bomb a thousandfold and more. */
enum { MAX_EXPANSION = 200, MAX_ENTRIES = 1 << 20, KEY_TEXT = 1024 };
static const uint64_t expansion_floor = UINT64_C(1) << 28;

struct unpacking {
    const struct espl_cache *cache;
    const struct espl_fetch_file *file;
    const struct espl_fetch_result *archive;
    struct archive *reader;
    bool *found; /* per member */
    uint64_t budget;
};

static void record_key(const struct unpacking *work, const struct espl_fetch_member *member,
                       char out[KEY_TEXT])
{
    (void)snprintf(out, KEY_TEXT, "%s!%s", work->archive->sha256, member->member);
}

static bool report(const struct espl_fetch_member *member, const struct espl_fetch_file *file,
                   const struct espl_cache_record *record, enum espl_fetch_source source)
{
    struct espl_fetch_result result = {.size = record->size, .source = source};
    result.check =
        file->sha256 != NULL || member->sha256 != NULL ? ESPL_FETCH_GIVEN : ESPL_FETCH_FIRST;
    (void)snprintf(result.sha256, sizeof result.sha256, "%s", record->sha256);
    return espl_fetch_event_file(member->name, member->member, &result);
}

/* Members that an earlier run unpacked. Returns how many are still wanted. */
static size_t find_known(struct unpacking *work)
{
    size_t wanted = 0;
    for (size_t i = 0; i < work->file->member_count; i++) {
        const struct espl_fetch_member *const member = &work->file->members[i];
        struct espl_cache_record record;
        char key[KEY_TEXT];
        record_key(work, member, key);
        work->found[i] = espl_cache_read_record(work->cache, key, &record, NULL) == ESPL_OK &&
                         record.present &&
                         (member->sha256 == NULL || strcmp(member->sha256, record.sha256) == 0);
        if (work->found[i]) {
            (void)report(member, work->file, &record, ESPL_FETCH_CACHE);
        } else {
            wanted++;
        }
    }
    return wanted;
}

static enum espl_status fail_archive(const struct unpacking *work, struct espl_error *err)
{
    const char *const text = archive_error_string(work->reader);
    return espl_fail(err, ESPL_E_CORRUPT, "the archive '%s' is damaged: %s", work->file->name,
                     text != NULL ? text : "no reason given");
}

/* Reads the content of the current entry, into `out` when it is wanted. */
static enum espl_status read_content(struct unpacking *work, const struct espl_fetch_member *member,
                                     struct espl_partial *out, struct espl_error *err)
{
    for (;;) {
        const void *block = NULL;
        size_t len = 0;
        la_int64_t offset = 0;
        const int code = archive_read_data_block(work->reader, &block, &len, &offset);
        if (code == ARCHIVE_EOF) {
            return ESPL_OK;
        }
        if (code != ARCHIVE_OK) {
            return fail_archive(work, err);
        }
        if (len > work->budget) {
            return espl_fail(err, ESPL_E_CORRUPT,
                             "the archive '%s' expands to more than %d times its size",
                             work->file->name, (int)MAX_EXPANSION);
        }
        work->budget -= len;
        if (member == NULL) {
            continue;
        }
        if ((uint64_t)offset != out->size) {
            return espl_fail(err, ESPL_E_CORRUPT, "'%s' in '%s' has holes", member->member,
                             work->file->name);
        }
        if (len > member->max_bytes || out->size > member->max_bytes - len) {
            return espl_fail(err, ESPL_E_CORRUPT, "'%s' in '%s' is larger than %llu bytes",
                             member->member, work->file->name,
                             (unsigned long long)member->max_bytes);
        }
        const enum espl_status status = espl_partial_append(out, block, len, err);
        if (status != ESPL_OK) {
            return status;
        }
    }
}

/* The current entry becomes a blob. */
static enum espl_status extract(struct unpacking *work, const struct espl_fetch_member *member,
                                struct espl_error *err)
{
    struct espl_partial out = {.fd = -1};
    struct espl_cache_record record = {.size = 0};
    char key[KEY_TEXT];
    char id[ESPL_SHA256_HEX];
    char private_id[128];
    record_key(work, member, key);
    enum espl_status status = espl_sha256_bytes(key, strlen(key), id, err);
    (void)snprintf(private_id, sizeof private_id, "%s-unpack", id);
    if (status == ESPL_OK) {
        status = espl_partial_open(&out, work->cache, private_id, err);
    }
    if (status == ESPL_OK) { /* what a killed run left is of no use here */
        status = espl_partial_restart(&out, "", err);
    }
    if (status == ESPL_OK) {
        status = read_content(work, member, &out, err);
    }
    if (status == ESPL_OK) {
        record.size = out.size;
        espl_partial_hash(&out, record.sha256);
        if (member->sha256 != NULL && strcmp(member->sha256, record.sha256) != 0) {
            status = espl_fail(err, ESPL_E_CORRUPT, "'%s' in '%s' has sha256 %s, expected %s",
                               member->member, work->file->name, record.sha256, member->sha256);
        }
    }
    if (status == ESPL_OK) {
        status = espl_partial_publish(&out, work->cache, record.sha256, err);
    }
    if (status == ESPL_OK) {
        status = espl_cache_write_record(work->cache, key, &record, err);
    }
    if (status != ESPL_OK) {
        espl_partial_discard(&out);
        return status;
    }
    (void)report(member, work->file, &record, ESPL_FETCH_ARCHIVE);
    return ESPL_OK;
}

/* Index of the member that the entry is, or member_count. A leading "./" does not matter. */
static size_t find_member(const struct unpacking *work, const char *path)
{
    size_t i = 0;
    while (strncmp(path, "./", 2) == 0) {
        path += 2;
    }
    while (i < work->file->member_count && strcmp(work->file->members[i].member, path) != 0) {
        i++;
    }
    return i;
}

static enum espl_status take_entry(struct unpacking *work, struct archive_entry *entry,
                                   struct espl_error *err)
{
    const char *const path = archive_entry_pathname(entry);
    const size_t index = path != NULL ? find_member(work, path) : work->file->member_count;
    if (index == work->file->member_count || work->found[index]) {
        return read_content(work, NULL, NULL, err);
    }
    const struct espl_fetch_member *const member = &work->file->members[index];
    if (archive_entry_filetype(entry) != AE_IFREG || archive_entry_hardlink(entry) != NULL ||
        archive_entry_symlink(entry) != NULL) {
        return espl_fail(err, ESPL_E_CORRUPT, "'%s' in '%s' is a link or no regular file",
                         member->member, work->file->name);
    }
    work->found[index] = true;
    return extract(work, member, err);
}

static enum espl_status read_entries(struct unpacking *work, struct espl_error *err)
{
    for (size_t entries = 0;; entries++) {
        struct archive_entry *entry = NULL;
        const int code = archive_read_next_header(work->reader, &entry);
        if (code == ARCHIVE_EOF) {
            break;
        }
        if (code != ARCHIVE_OK && code != ARCHIVE_WARN) {
            return fail_archive(work, err);
        }
        if (entries >= MAX_ENTRIES) {
            return espl_fail(err, ESPL_E_CORRUPT, "the archive '%s' has more than %d entries",
                             work->file->name, (int)MAX_ENTRIES);
        }
        const enum espl_status status = take_entry(work, entry, err);
        if (status != ESPL_OK) {
            return status;
        }
    }
    for (size_t i = 0; i < work->file->member_count; i++) {
        if (!work->found[i]) {
            return espl_fail(err, ESPL_E_CORRUPT, "the archive '%s' has no '%s'", work->file->name,
                             work->file->members[i].member);
        }
    }
    return ESPL_OK;
}

static bool open_reader(struct archive *reader, const char *path)
{
    enum { BLOCK = 1 << 16 };
    return archive_read_support_filter_gzip(reader) == ARCHIVE_OK &&
           archive_read_support_filter_xz(reader) == ARCHIVE_OK &&
           archive_read_support_filter_bzip2(reader) == ARCHIVE_OK &&
           archive_read_support_format_tar(reader) == ARCHIVE_OK &&
           archive_read_support_format_zip(reader) == ARCHIVE_OK &&
           archive_read_open_filename(reader, path, BLOCK) == ARCHIVE_OK;
}

enum espl_status espl_fetch_unpack(const struct espl_cache *cache,
                                   const struct espl_fetch_file *file,
                                   const struct espl_fetch_result *archive, struct espl_error *err)
{
    struct unpacking work = {.cache = cache, .file = file, .archive = archive};
    char path[ESPL_PATH_MAX];
    const uint64_t most = archive->size * MAX_EXPANSION;
    work.budget = most > expansion_floor ? most : expansion_floor;
    enum espl_status status = espl_cache_blob_path(cache, archive->sha256, path, err);
    work.found = calloc(file->member_count, sizeof *work.found);
    work.reader = archive_read_new();
    if (work.found == NULL || work.reader == NULL) {
        status = espl_fail(err, ESPL_E_NOMEM, "no memory to unpack '%s'", file->name);
    }
    if (status == ESPL_OK && find_known(&work) > 0) {
        status =
            open_reader(work.reader, path) ? read_entries(&work, err) : fail_archive(&work, err);
    }
    (void)archive_read_free(work.reader); /* only read from */
    free(work.found);
    return status;
}
