#include "datasets/image_archive.h"

#include "core/buf.h"
#include "core/fs.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

enum { READ_BLOCK = 64 * 1024 };

struct visit {
    struct archive *archive;
    const char *name; /* of the archive */
    const struct espl_archive_limits *limits;
    const struct espl_archive_visitor *visitor;
    uint64_t entries;
    uint64_t announced; /* sizes in the headers so far */
    struct espl_buf content;
};

static enum espl_status fail_archive(const struct visit *visit, struct espl_error *err)
{
    const char *why = archive_error_string(visit->archive);
    if (archive_errno(visit->archive) == ENOMEM) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory while reading '%s'", visit->name);
    }
    (void)espl_fail(err, ESPL_E_CORRUPT, "cannot read archive '%s': %.200s", visit->name,
                    why != NULL ? why : "damaged or cut off");
    return espl_hint(err,
                     "tar and zip archives can be read, plain or as .xz, .gz, .bz2, .zst; if it "
                     "is one, copy it again and compare its checksum with the source");
}

bool espl_archive_name_is_safe(const char *name)
{
    if (name[0] == '\0' || name[0] == '/' || strchr(name, '\\') != NULL) {
        return false;
    }
    for (const char *part = name; part != NULL;) {
        const size_t len = strcspn(part, "/");
        if (len == 0 || (len == 2 && part[0] == '.' && part[1] == '.')) {
            return false;
        }
        part = part[len] == '/' ? part + len + 1 : NULL;
    }
    return true;
}

/* "./a/b" is "a/b". */
static const char *plain_name(const char *name)
{
    while (name != NULL && name[0] == '.' && name[1] == '/') {
        name += 2;
    }
    return name;
}

static enum espl_status over_limit(const struct visit *visit, const char *what, uint64_t limit,
                                   struct espl_error *err)
{
    return espl_fail(err, ESPL_E_CORRUPT, "archive '%s' holds more than %" PRIu64 " %s",
                     visit->name, limit, what);
}

/* Counts what has come out of the decompressor and what the headers promise. */
static enum espl_status check_total(struct visit *visit, struct archive_entry *entry,
                                    struct espl_error *err)
{
    const struct espl_archive_limits *limits = visit->limits;
    const la_int64_t size = archive_entry_size(entry);
    const la_int64_t out = archive_filter_bytes(visit->archive, 0);
    visit->announced += size > 0 ? (uint64_t)size : 0;
    if (++visit->entries > limits->entries) {
        return over_limit(visit, "entries", limits->entries, err);
    }
    if (visit->announced > limits->total_bytes ||
        (out > 0 && (uint64_t)out > limits->total_bytes)) {
        return over_limit(visit, "bytes decompressed", limits->total_bytes, err);
    }
    return ESPL_OK;
}

static enum espl_status read_content(struct visit *visit, const char *name, struct espl_error *err)
{
    char block[READ_BLOCK];
    espl_buf_reset(&visit->content);
    for (;;) {
        const la_ssize_t count = archive_read_data(visit->archive, block, sizeof block);
        if (count == 0) {
            return ESPL_OK;
        }
        if (count < 0) {
            (void)fail_archive(visit, err);
            return espl_context(err, "while reading '%s' in it", name);
        }
        if ((size_t)count > visit->content.limit - visit->content.len) {
            return espl_fail(err, ESPL_E_CORRUPT, "'%s' in archive '%s' is larger than %zu bytes",
                             name, visit->name, visit->content.limit);
        }
        if (!espl_buf_add(&visit->content, block, (size_t)count)) {
            return espl_fail(err, ESPL_E_NOMEM, "out of memory for '%s'", name);
        }
    }
}

static enum espl_status visit_entry(struct visit *visit, struct archive_entry *entry,
                                    struct espl_error *err)
{
    const char *name = plain_name(archive_entry_pathname(entry));
    const bool is_link =
        archive_entry_filetype(entry) == AE_IFLNK || archive_entry_hardlink(entry) != NULL;
    enum espl_status status = check_total(visit, entry, err);
    if (status != ESPL_OK || is_link || archive_entry_filetype(entry) != AE_IFREG) {
        if (is_link && name != NULL && visit->visitor->link != NULL &&
            visit->visitor->wanted(visit->visitor->user, name)) {
            visit->visitor->link(visit->visitor->user, name);
        }
        return status;
    }
    if (name == NULL || !espl_archive_name_is_safe(name)) {
        (void)espl_fail(err, ESPL_E_CORRUPT, "archive '%s' holds a file named '%.200s'",
                        visit->name, name != NULL ? name : "");
        return espl_hint(err, "names must be relative and without '..'");
    }
    if (!visit->visitor->wanted(visit->visitor->user, name)) {
        return ESPL_OK;
    }
    status = read_content(visit, name, err);
    return status == ESPL_OK ? visit->visitor->file(visit->visitor->user, name,
                                                    (const uint8_t *)espl_buf_text(&visit->content),
                                                    visit->content.len, err)
                             : status;
}

/* A tar ends with blocks of zeros. libarchive takes the end of the file for it as well, so one that
 * was cut off between two files would pass for a smaller one. */
static enum espl_status check_end(const struct visit *visit, struct espl_error *err)
{
    const bool is_tar =
        (archive_format(visit->archive) & ARCHIVE_FORMAT_BASE_MASK) == ARCHIVE_FORMAT_TAR;
    if (!is_tar ||
        archive_filter_bytes(visit->archive, 0) > archive_read_header_position(visit->archive)) {
        return ESPL_OK;
    }
    (void)espl_fail(err, ESPL_E_CORRUPT, "archive '%s' is cut off: its end mark is missing",
                    visit->name);
    return espl_hint(err, "copy it again and compare its checksum with the source");
}

static enum espl_status visit_all(struct visit *visit, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    while (status == ESPL_OK) {
        struct archive_entry *entry = NULL; /* owned by the archive */
        const int code = archive_read_next_header(visit->archive, &entry);
        if (code == ARCHIVE_EOF) {
            return check_end(visit, err);
        }
        /* A warning leaves the entry usable (a name that is not UTF-8). */
        status = code == ARCHIVE_OK || code == ARCHIVE_WARN ? visit_entry(visit, entry, err)
                                                            : fail_archive(visit, err);
    }
    return status;
}

/* A format or filter that would need an external program is not enabled. */
static bool enable_formats(struct archive *archive)
{
    (void)archive_read_support_filter_xz(archive);
    (void)archive_read_support_filter_gzip(archive);
    (void)archive_read_support_filter_bzip2(archive);
    (void)archive_read_support_filter_zstd(archive);
    return archive_read_support_format_tar(archive) == ARCHIVE_OK &&
           archive_read_support_format_zip(archive) == ARCHIVE_OK;
}

/* path: NULL to read from memory. */
static enum espl_status open_and_visit(const char *path, const void *bytes, size_t len,
                                       struct visit *visit, struct espl_error *err)
{
    visit->archive = archive_read_new();
    if (visit->archive == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for '%s'", visit->name);
    }
    espl_buf_init(&visit->content, (size_t)visit->limits->file_bytes);
    enum espl_status status = ESPL_OK;
    if (!enable_formats(visit->archive)) {
        status = espl_fail(err, ESPL_E_UNSUPPORTED, "libarchive cannot read tar and zip");
    } else {
        const int code = path != NULL ? archive_read_open_filename(visit->archive, path, READ_BLOCK)
                                      : archive_read_open_memory(visit->archive, bytes, len);
        status = code == ARCHIVE_OK ? visit_all(visit, err) : fail_archive(visit, err);
    }
    espl_buf_free(&visit->content);
    (void)archive_read_free(visit->archive); /* what was read is whole; closing adds nothing */
    return status;
}

/* Names that a zip marks as UTF-8 are lost where the locale is another one, so this thread's is
 * UTF-8 for as long as the archive is read. */
static enum espl_status visit_source(const char *path, const void *bytes, size_t len,
                                     struct visit *visit, struct espl_error *err)
{
    const locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    const locale_t before = utf8 != (locale_t)0 ? uselocale(utf8) : (locale_t)0;
    const enum espl_status status = open_and_visit(path, bytes, len, visit, err);
    if (utf8 != (locale_t)0) {
        (void)uselocale(before);
        freelocale(utf8);
    }
    return status;
}

enum espl_status espl_archive_visit(const char *path, const struct espl_archive_limits *limits,
                                    const struct espl_archive_visitor *visitor,
                                    struct espl_error *err)
{
    struct visit visit = {.name = path, .limits = limits, .visitor = visitor};
    uint64_t size = 0; /* only asked for the clear message when the file is not there */
    const enum espl_status status = espl_fs_file_size(path, &size, err);
    return status == ESPL_OK ? visit_source(path, NULL, 0, &visit, err) : status;
}

enum espl_status espl_archive_visit_memory(const void *bytes, size_t len, const char *name,
                                           const struct espl_archive_limits *limits,
                                           const struct espl_archive_visitor *visitor,
                                           struct espl_error *err)
{
    struct visit visit = {.name = name, .limits = limits, .visitor = visitor};
    return visit_source(NULL, bytes, len, &visit, err);
}
