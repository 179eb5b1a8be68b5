#include "unit/archive_fixture.h"

#include "support/cmocka_all.h"

#include <archive.h>
#include <archive_entry.h>
#include <string.h>
#include <sys/stat.h>

static void set_format(struct archive *archive, const char *ending)
{
    if (strcmp(ending, ".zip") == 0) {
        assert_int_equal(archive_write_set_format_zip(archive), ARCHIVE_OK);
        return;
    }
    assert_int_equal(archive_write_set_format_pax_restricted(archive), ARCHIVE_OK);
    if (strcmp(ending, ".tar.xz") == 0) {
        assert_int_equal(archive_write_add_filter_xz(archive), ARCHIVE_OK);
    } else if (strcmp(ending, ".tar.gz") == 0) {
        assert_int_equal(archive_write_add_filter_gzip(archive), ARCHIVE_OK);
    } else if (strcmp(ending, ".tar.zst") == 0) {
        assert_int_equal(archive_write_add_filter_zstd(archive), ARCHIVE_OK);
    }
}

void archive_fixture_write(const char *path, const char *ending, const struct archive_file *files,
                           size_t count)
{
    struct archive *archive = archive_write_new();
    assert_non_null(archive);
    set_format(archive, ending);
    assert_int_equal(archive_write_open_filename(archive, path), ARCHIVE_OK);
    for (size_t i = 0; i < count; i++) {
        struct archive_entry *entry = archive_entry_new();
        assert_non_null(entry);
        archive_entry_set_pathname(entry, files[i].name);
        archive_entry_set_perm(entry, 0644);
        if (files[i].link != NULL) {
            archive_entry_set_filetype(entry, AE_IFLNK);
            archive_entry_set_symlink(entry, files[i].link);
        } else {
            archive_entry_set_filetype(entry, AE_IFREG);
            archive_entry_set_size(entry, (la_int64_t)files[i].len);
        }
        assert_int_equal(archive_write_header(archive, entry), ARCHIVE_OK);
        if (files[i].link == NULL) {
            assert_int_equal(archive_write_data(archive, files[i].bytes, files[i].len),
                             (la_ssize_t)files[i].len);
        }
        archive_entry_free(entry);
    }
    assert_int_equal(archive_write_free(archive), ARCHIVE_OK);
}
