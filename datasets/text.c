#include "datasets/text.h"

#include "core/buf.h"
#include "core/fs.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { READ_BLOCK = 64 * 1024 };

/* A compression that a file name announces. */
struct filter_row {
    const char *suffix;
    int code;
    int (*enable)(struct archive *archive);
};

static const struct filter_row filters[] = {
    {".xz", ARCHIVE_FILTER_XZ, archive_read_support_filter_xz},
    {".gz", ARCHIVE_FILTER_GZIP, archive_read_support_filter_gzip},
    {".bz2", ARCHIVE_FILTER_BZIP2, archive_read_support_filter_bzip2},
    {".zst", ARCHIVE_FILTER_ZSTD, archive_read_support_filter_zstd},
    {NULL, 0, NULL},
};

static const struct filter_row *filter_of(const char *path)
{
    const size_t len = strlen(path);
    for (const struct filter_row *row = filters; row->suffix != NULL; row++) {
        const size_t suffix_len = strlen(row->suffix);
        if (len > suffix_len && strcmp(path + len - suffix_len, row->suffix) == 0) {
            return row;
        }
    }
    return NULL;
}

bool espl_text_is_compressed(const char *path)
{
    return filter_of(path) != NULL;
}

static enum espl_status broken_stream(const char *path, const struct filter_row *filter,
                                      struct archive *archive, struct espl_error *err)
{
    const char *const why = archive_error_string(archive);
    if (archive_errno(archive) == ENOMEM) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory while decompressing '%s'", path);
    }
    /* liblzma's words for a stream that ends too early. */
    const bool cut = why != NULL && strstr(why, "No progress is possible") != NULL;
    (void)espl_fail(err, ESPL_E_CORRUPT, "cannot decompress '%s' (%s): %s", path,
                    filter->suffix + 1, why == NULL || cut ? "damaged or cut off" : why);
    return espl_hint(err, "copy the file again and compare its size and checksum with the source");
}

/* Opens the stream and checks that it is what the name says: libarchive would pass unknown bytes
 * through as plain text. *empty: a stream of nothing, whose data must not be asked for. */
static enum espl_status open_stream(const char *path, const struct filter_row *filter,
                                    struct archive *archive, bool *empty, struct espl_error *err)
{
    if (archive_read_support_format_raw(archive) != ARCHIVE_OK ||
        archive_read_support_format_empty(archive) != ARCHIVE_OK) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "libarchive cannot read raw streams");
    }
    /* ARCHIVE_WARN: it would run an external program, which we do not want. */
    if (filter->enable(archive) != ARCHIVE_OK) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "libarchive was built without %s",
                         filter->suffix + 1);
    }
    if (archive_read_open_filename(archive, path, READ_BLOCK) != ARCHIVE_OK) {
        return broken_stream(path, filter, archive, err);
    }
    struct archive_entry *entry = NULL; /* owned by the archive */
    const int rc = archive_read_next_header(archive, &entry);
    if (rc != ARCHIVE_OK && rc != ARCHIVE_EOF) {
        return broken_stream(path, filter, archive, err);
    }
    if (archive_filter_code(archive, 0) != filter->code) {
        (void)espl_fail(err, ESPL_E_CORRUPT, "'%s' is not a %s stream", path, filter->suffix + 1);
        return espl_hint(err, "name the file after what it is: without the ending, if it is text");
    }
    *empty = rc == ARCHIVE_EOF;
    return ESPL_OK;
}

static enum espl_status read_stream(const char *path, const struct filter_row *filter,
                                    struct archive *archive, struct espl_buf *text,
                                    struct espl_error *err)
{
    bool empty = false;
    enum espl_status status = open_stream(path, filter, archive, &empty, err);
    char *const block = malloc(READ_BLOCK);
    if (status == ESPL_OK && block == NULL) {
        status = espl_fail(err, ESPL_E_NOMEM, "out of memory for '%s'", path);
    }
    while (status == ESPL_OK && !empty) {
        const la_ssize_t n = archive_read_data(archive, block, READ_BLOCK);
        if (n == 0) {
            break;
        }
        if (n < 0) {
            status = broken_stream(path, filter, archive, err);
        } else if ((size_t)n > text->limit - text->len) {
            status = espl_fail(err, ESPL_E_CORRUPT, "'%s' is larger than %zu bytes decompressed",
                               path, text->limit);
        } else if (!espl_buf_add(text, block, (size_t)n)) {
            status = espl_fail(err, ESPL_E_NOMEM, "out of memory for '%s'", path);
        }
    }
    free(block);
    return status;
}

/* CRC-32 of gzip (RFC 1952, polynomial 0xEDB88320), four bits at a time. */
static uint32_t crc32_of(const char *bytes, size_t len)
{
    uint32_t table[16];
    for (uint32_t i = 0; i < 16; i++) {
        uint32_t row = i;
        for (unsigned bit = 0; bit < 4; bit++) {
            row = (row & 1u) != 0 ? 0xEDB88320u ^ row >> 1 : row >> 1;
        }
        table[i] = row;
    }
    uint32_t crc = 0xFFFFFFFFu;
    for (size_t i = 0; i < len; i++) {
        crc ^= (unsigned char)bytes[i];
        crc = table[crc & 15u] ^ crc >> 4;
        crc = table[crc & 15u] ^ crc >> 4;
    }
    return ~crc;
}

static uint32_t little_endian(const unsigned char *bytes)
{
    return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

/* libarchive does not compare gzip's checksum, unlike those of the other formats: the last eight
 * bytes of the file are the CRC-32 and the length of the text, if it is one member. */
static enum espl_status check_gzip_trailer(const char *path, const struct espl_buf *text,
                                           struct espl_error *err)
{
    unsigned char trailer[8];
    FILE *const file = fopen(path, "rb");
    if (file == NULL) {
        return espl_fail_errno(err, errno, "cannot open '%s'", path);
    }
    const bool whole = fseek(file, -(long)sizeof trailer, SEEK_END) == 0 &&
                       fread(trailer, 1, sizeof trailer, file) == sizeof trailer;
    (void)fclose(file); /* only read */
    if (whole && little_endian(trailer) == crc32_of(espl_buf_text(text), text->len) &&
        little_endian(trailer + 4) == (uint32_t)text->len) {
        return ESPL_OK;
    }
    (void)espl_fail(err, ESPL_E_CORRUPT, "'%s' does not match its gzip checksum", path);
    return espl_hint(err, "it is damaged, or several gzip files in one: decompress it with gunzip, "
                          "which checks it, and give the plain text");
}

enum espl_status espl_text_read(const char *path, size_t limit, char **text, size_t *len,
                                struct espl_error *err)
{
    const struct filter_row *const filter = filter_of(path);
    if (filter == NULL) {
        return espl_fs_read_file(path, limit, text, len, err);
    }
    uint64_t file_size = 0; /* only asked for the clear message when the file is not there */
    enum espl_status status = espl_fs_file_size(path, &file_size, err);
    if (status != ESPL_OK) {
        return status;
    }
    struct archive *const archive = archive_read_new();
    if (archive == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for '%s'", path);
    }
    struct espl_buf buf;
    espl_buf_init(&buf, limit);
    status = read_stream(path, filter, archive, &buf, err);
    if (status == ESPL_OK && filter->code == ARCHIVE_FILTER_GZIP) {
        status = check_gzip_trailer(path, &buf, err);
    }
    if (status == ESPL_OK && !espl_buf_add(&buf, "", 0)) { /* an empty text has memory too */
        status = espl_fail(err, ESPL_E_NOMEM, "out of memory for '%s'", path);
    }
    if (status == ESPL_OK) {
        *text = buf.data;
        *len = buf.len;
        buf.data = NULL;
    }
    espl_buf_free(&buf);
    (void)archive_read_free(archive); /* what was read is whole; closing adds nothing */
    return status;
}
