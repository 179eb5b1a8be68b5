/* Wrong use of the writer, and files that a reader must refuse, each with its own message. */
#include "artifact/artifact.h"
#include "artifact/h5.h"
#include "core/fs.h"
#include "support/test_folder.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct espl_error err;

static struct espl_artifact *create(const char *name, const char *kind)
{
    struct espl_artifact *artifact = NULL;
    assert_int_equal(espl_artifact_create(below(name), kind, &artifact, &err), ESPL_OK);
    return artifact;
}

static const uint64_t shape23[2] = {2, 3};
static const uint8_t bytes6[6] = {1, 2, 3, 4, 5, 6};

/* A small complete artifact: /x/w u8 [2, 3]. */
static void write_small(const char *name)
{
    struct espl_artifact *artifact = create(name, "unit/1");
    const struct espl_tensor_info info = espl_tensor_info_make("/x/w", ESPL_DTYPE_U8, 2, shape23);
    assert_int_equal(espl_artifact_write(artifact, &info, bytes6, &err), ESPL_OK);
    assert_int_equal(espl_artifact_finish(&artifact, NULL, &err), ESPL_OK);
}

/* Expects that opening fails with `code` and a message that holds `text`. */
static void refuse(const char *name, enum espl_status code, const char *text)
{
    struct espl_artifact *artifact = NULL;
    const enum espl_status status = espl_artifact_open(below(name), &artifact, &err);
    if (status != code || strstr(err.message, text) == NULL) {
        print_message("status %d, message: %s\n", (int)status, err.message);
    }
    assert_int_equal(status, code);
    assert_non_null(strstr(err.message, text));
    assert_null(artifact);
}

/* Expects that finishing fails with INTERNAL and that no file is left. */
static void refuse_finish(struct espl_artifact *artifact, const char *name)
{
    assert_int_equal(espl_artifact_finish(&artifact, NULL, &err), ESPL_E_INTERNAL);
    assert_null(artifact);
    assert_false(espl_fs_exists(below(name)));
}

/* Of alternatives the first, until the writer says which. */
static void test_set_kind__alternatives(void **state)
{
    struct espl_artifact *artifact = create("a.h5", "unit/1|metrics/1");
    (void)state;
    assert_string_equal(espl_artifact_kind(artifact), "unit/1");
    assert_int_equal(espl_artifact_set_kind(artifact, "no.kind/1", &err), ESPL_E_INTERNAL);
    assert_int_equal(espl_artifact_set_kind(artifact, "metrics/1", &err), ESPL_OK);
    refuse_finish(artifact, "a.h5"); /* that one needs a tensor */
    artifact = create("a.h5", "metrics/1|unit/1");
    assert_int_equal(espl_artifact_set_kind(artifact, "unit/1", &err), ESPL_OK);
    assert_int_equal(espl_artifact_finish(&artifact, NULL, &err), ESPL_OK);
    assert_int_equal(espl_artifact_open(below("a.h5"), &artifact, &err), ESPL_OK);
    assert_string_equal(espl_artifact_kind(artifact), "unit/1");
    assert_int_equal(espl_artifact_set_kind(artifact, "metrics/1", &err), ESPL_E_INTERNAL);
    espl_artifact_close(artifact);
}

static void test_create__refusals(void **state)
{
    struct espl_artifact *artifact = NULL;
    (void)state;
    assert_int_equal(espl_artifact_create(below("a.h5"), "no.kind/1", &artifact, &err),
                     ESPL_E_INTERNAL);
    assert_int_equal(espl_artifact_create(below("no/a.h5"), "unit/1", &artifact, &err),
                     ESPL_E_NOTFOUND);
    assert_int_equal(espl_artifact_create(test_folder, "unit/1", &artifact, &err), ESPL_E_IO);
    assert_null(artifact);
}

static void test_create_rows__bad_tensors(void **state)
{
    static const char *const paths[] = {"",
                                        "x",
                                        "/",
                                        "//x",
                                        "/x//y",
                                        "/x/",
                                        "/x/../y",
                                        "/./x",
                                        "/provenance/x",
                                        "/provenance",
                                        "/description",
                                        "/description/x"};
    (void)state;
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        struct espl_artifact *artifact = create("a.h5", "unit/1");
        const struct espl_tensor_info info =
            espl_tensor_info_make(paths[i], ESPL_DTYPE_U8, 2, shape23);
        assert_int_equal(espl_artifact_create_rows(artifact, &info, &err), ESPL_E_INTERNAL);
        refuse_finish(artifact, "a.h5");
    }
    const uint64_t huge[4] = {UINT64_C(1) << 40, UINT64_C(1) << 40, 2, 2};
    const uint64_t wide[2] = {UINT64_C(1) << 63, 2};
    struct espl_tensor_info bad[7];
    for (size_t i = 0; i < 7; i++) {
        bad[i] = espl_tensor_info_make("/x", ESPL_DTYPE_U8, 2, shape23);
    }
    bad[0].bytes = 5;
    bad[1].rank = ESPL_MAX_RANK + 1;
    bad[2].dtype = (enum espl_dtype)99;
    bad[3] = espl_tensor_info_make("/x", ESPL_DTYPE_F64, 4, huge);
    bad[4] = espl_tensor_info_make("/x", ESPL_DTYPE_U8, 2, wide);
    (void)snprintf(bad[5].packing, sizeof bad[5].packing, "bitmask-lsb0");
    bad[5].logical_shape[1] = 25; /* needs 4 bytes, the shape has 3 */
    memset(bad[6].packing, 'x', sizeof bad[6].packing);
    for (size_t i = 0; i < 7; i++) {
        struct espl_artifact *artifact = create("a.h5", "unit/1");
        assert_int_equal(espl_artifact_create_rows(artifact, &bad[i], &err), ESPL_E_INTERNAL);
        refuse_finish(artifact, "a.h5");
    }
}

static void test_write__duplicates_and_clashes(void **state)
{
    (void)state;
    const struct espl_tensor_info info = espl_tensor_info_make("/x/w", ESPL_DTYPE_U8, 2, shape23);
    struct espl_artifact *artifact = create("a.h5", "unit/1");
    assert_int_equal(espl_artifact_write(artifact, &info, bytes6, &err), ESPL_OK);
    assert_int_equal(espl_artifact_write(artifact, &info, bytes6, &err), ESPL_E_INTERNAL);
    assert_non_null(strstr(err.message, "'/x/w' is written twice"));
    refuse_finish(artifact, "a.h5");
    /* A tensor where a group is, and one below a tensor. */
    static const char *const clashes[] = {"/x", "/x/w/y"};
    for (size_t i = 0; i < 2; i++) {
        artifact = create("a.h5", "unit/1");
        assert_int_equal(espl_artifact_write(artifact, &info, bytes6, &err), ESPL_OK);
        const struct espl_tensor_info clash =
            espl_tensor_info_make(clashes[i], ESPL_DTYPE_U8, 2, shape23);
        assert_int_equal(espl_artifact_write(artifact, &clash, bytes6, &err), ESPL_E_IO);
        refuse_finish(artifact, "a.h5");
    }
}

static void test_append_rows__too_many_too_few_unknown(void **state)
{
    (void)state;
    const struct espl_tensor_info info = espl_tensor_info_make("/w", ESPL_DTYPE_U8, 2, shape23);
    struct espl_artifact *artifact = create("a.h5", "unit/1");
    assert_int_equal(espl_artifact_create_rows(artifact, &info, &err), ESPL_OK);
    assert_int_equal(espl_artifact_append_rows(artifact, "/w", 1, bytes6, &err), ESPL_OK);
    assert_int_equal(espl_artifact_finish(&artifact, NULL, &err), ESPL_E_INTERNAL);
    assert_non_null(strstr(err.message, "1 of 2 rows"));
    assert_false(espl_fs_exists(below("a.h5")));

    artifact = create("a.h5", "unit/1");
    assert_int_equal(espl_artifact_create_rows(artifact, &info, &err), ESPL_OK);
    assert_int_equal(espl_artifact_append_rows(artifact, "/w", 3, bytes6, &err), ESPL_E_INTERNAL);
    /* After a failure nothing goes on. */
    assert_int_equal(espl_artifact_append_rows(artifact, "/w", 1, bytes6, &err), ESPL_E_INTERNAL);
    assert_non_null(strstr(err.message, "an earlier write failed"));
    refuse_finish(artifact, "a.h5");

    artifact = create("a.h5", "unit/1");
    assert_int_equal(espl_artifact_write(artifact, &info, bytes6, &err), ESPL_OK);
    assert_int_equal(espl_artifact_append_rows(artifact, "/w", 1, bytes6, &err), ESPL_E_INTERNAL);
    refuse_finish(artifact, "a.h5");

    artifact = create("a.h5", "unit/1");
    assert_int_equal(espl_artifact_append_rows(artifact, "/w", 1, bytes6, &err), ESPL_E_INTERNAL);
    refuse_finish(artifact, "a.h5");
    espl_artifact_abandon(NULL);
}

static void test_texts__refusals(void **state)
{
    static const char *const not_objects[] = {"", "[]", "{", "{\"a\":1,\"a\":2}", "1"};
    (void)state;
    for (size_t i = 0; i < sizeof not_objects / sizeof not_objects[0]; i++) {
        struct espl_artifact *artifact = create("a.h5", "unit/1");
        assert_int_equal(espl_artifact_set_description(artifact, not_objects[i], &err),
                         ESPL_E_INTERNAL);
        refuse_finish(artifact, "a.h5");
    }
    struct espl_artifact *artifact = create("a.h5", "unit/1");
    assert_int_equal(espl_artifact_set_description(artifact, "{}", &err), ESPL_OK);
    assert_int_equal(espl_artifact_set_description(artifact, "{}", &err), ESPL_E_INTERNAL);
    refuse_finish(artifact, "a.h5");
    static const char *const names[] = {"complete", "kind", "format", "Upper", "", "a b", "a/b"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        artifact = create("a.h5", "unit/1");
        assert_int_equal(espl_artifact_set_attribute(artifact, names[i], "x", &err),
                         ESPL_E_INTERNAL);
        refuse_finish(artifact, "a.h5");
    }
    char *large = malloc((64 << 10) + 1);
    assert_non_null(large);
    memset(large, 'x', 64 << 10);
    large[64 << 10] = '\0';
    artifact = create("a.h5", "unit/1");
    assert_int_equal(espl_artifact_set_attribute(artifact, "big", large, &err), ESPL_E_INTERNAL);
    refuse_finish(artifact, "a.h5");
    free(large);
    artifact = create("a.h5", "unit/1");
    assert_int_equal(espl_artifact_set_provenance(artifact, "../x", "x", &err), ESPL_E_INTERNAL);
    refuse_finish(artifact, "a.h5");
}

static void test_finish__required_tensors(void **state)
{
    (void)state;
    struct espl_artifact *artifact = create("a.h5", "tokens/1");
    assert_int_equal(espl_artifact_finish(&artifact, NULL, &err), ESPL_E_INTERNAL);
    assert_non_null(strstr(err.message, "'/tokens/ids'"));
    assert_false(espl_fs_exists(below("a.h5")));
}

static void test_open__not_an_artifact(void **state)
{
    (void)state;
    refuse("absent.h5", ESPL_E_NOTFOUND, "No such file");
    assert_int_equal(espl_fs_write_file(below("text.h5"), "just a text\n", 12, &err), ESPL_OK);
    refuse("text.h5", ESPL_E_KIND, "not an HDF5 file");
    assert_int_equal(espl_fs_write_file(below("short.h5"), "\x89H", 2, &err), ESPL_OK);
    refuse("short.h5", ESPL_E_KIND, "not an HDF5 file");
    assert_int_equal(espl_fs_write_file(below("empty.h5"), "", 0, &err), ESPL_OK);
    refuse("empty.h5", ESPL_E_CORRUPT, "empty");
    refuse("", ESPL_E_KIND, "not a regular file");
    assert_string_equal(err.hint, "a folder stands where this file should be: move it away");
    assert_int_equal(mkfifo(below("pipe.h5"), 0600), 0);
    refuse("pipe.h5", ESPL_E_KIND, "not a regular file");
    /* An HDF5 file of another program. */
    const hid_t file = H5Fcreate(below("other.h5"), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(file >= 0);
    assert_true(H5Fclose(file) >= 0);
    refuse("other.h5", ESPL_E_KIND, "without format 'espl-artifact'");
}

static void test_open__truncated_at_every_size(void **state)
{
    char *data = NULL;
    size_t len = 0;
    (void)state;
    write_small("whole.h5");
    assert_int_equal(espl_fs_read_file(below("whole.h5"), 1 << 20, &data, &len, &err), ESPL_OK);
    assert_true(len > 500);
    const size_t step = len > 4000 ? len / 400 : 7;
    for (size_t size = 8; size < len; size += step) {
        struct espl_artifact *artifact = NULL;
        assert_int_equal(espl_fs_write_file(below("cut.h5"), data, size, &err), ESPL_OK);
        assert_int_equal(espl_artifact_open(below("cut.h5"), &artifact, &err), ESPL_E_CORRUPT);
        assert_non_null(strstr(err.message, "damaged or truncated"));
    }
    free(data);
}

/* Replaces a root attribute of a finished artifact; value NULL: removes it. */
static void change_attribute(const char *name, const char *attribute, const char *value)
{
    const hid_t file = H5Fopen(below(name), H5F_ACC_RDWR, H5P_DEFAULT);
    assert_true(file >= 0);
    assert_true(H5Adelete(file, attribute) >= 0);
    if (value != NULL) {
        assert_true(espl_h5_write_text_attribute(file, attribute, value) >= 0);
    }
    assert_true(H5Fclose(file) >= 0);
}

static void test_open__versions_and_marks(void **state)
{
    static const struct {
        const char *attribute;
        const char *value;
        enum espl_status code;
        const char *text;
    } cases[] = {
        {"complete", NULL, ESPL_E_CORRUPT, "incomplete"},
        {"complete", "0", ESPL_E_CORRUPT, "incomplete"},
        {"format", NULL, ESPL_E_KIND, "without format"},
        {"format_version", "2", ESPL_E_VERSION, "format version 2, this program reads up to 1"},
        {"format_version", "x", ESPL_E_CORRUPT, "no format version"},
        {"format_version", "0", ESPL_E_CORRUPT, "no format version"},
        {"kind", "unit/2", ESPL_E_VERSION, "kind 'unit/2', newer than the 'unit/1'"},
        {"kind", "unit/0", ESPL_E_KIND, "unknown kind 'unit/0'"},
        {"kind", "model.future/1", ESPL_E_KIND, "unknown kind 'model.future/1'"},
        {"kind", NULL, ESPL_E_KIND, "unknown kind ''"},
        {"kind", "metrics/1", ESPL_E_CORRUPT, "no tensor '/metrics/values'"},
        {"content_sha256", NULL, ESPL_E_CORRUPT, "no content hash"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_small("v.h5");
        change_attribute("v.h5", cases[i].attribute, cases[i].value);
        refuse("v.h5", cases[i].code, cases[i].text);
    }
    write_small("v.h5");
    change_attribute("v.h5", "format_version", "2");
    refuse("v.h5", ESPL_E_VERSION, "2");
    assert_non_null(strstr(err.hint, "update espalier"));
}

/* Opens the dataset of a finished artifact for a change by hand. */
static hid_t open_tensor(const char *name, hid_t *file)
{
    *file = H5Fopen(below(name), H5F_ACC_RDWR, H5P_DEFAULT);
    assert_true(*file >= 0);
    const hid_t dataset = H5Dopen2(*file, "/x/w", H5P_DEFAULT);
    assert_true(dataset >= 0);
    return dataset;
}

static void close_tensor(hid_t dataset, hid_t file)
{
    assert_true(H5Dclose(dataset) >= 0);
    assert_true(H5Fclose(file) >= 0);
}

static void test_open__damaged_tensors(void **state)
{
    hid_t file = H5I_INVALID_HID;
    const uint64_t three[3] = {1, 2, 3};
    (void)state;
    write_small("d.h5");
    hid_t dataset = open_tensor("d.h5", &file);
    assert_true(H5Adelete(dataset, "sha256") >= 0);
    close_tensor(dataset, file);
    refuse("d.h5", ESPL_E_CORRUPT, "tensor '/x/w': it has no hash");

    write_small("d.h5");
    dataset = open_tensor("d.h5", &file);
    assert_true(espl_h5_write_text_attribute(dataset, "logical_dtype", "bf16") >= 0);
    close_tensor(dataset, file);
    refuse("d.h5", ESPL_E_CORRUPT, "logical element type 'bf16'"); /* over u8 */

    write_small("d.h5");
    dataset = open_tensor("d.h5", &file);
    assert_true(espl_h5_write_text_attribute(dataset, "packing", "bitmask-lsb0") >= 0);
    assert_true(espl_h5_write_u64_attribute(dataset, "logical_shape", three, 3) >= 0);
    close_tensor(dataset, file);
    refuse("d.h5", ESPL_E_CORRUPT, "'logical_shape' does not hold 2 numbers");

    write_small("d.h5");
    dataset = open_tensor("d.h5", &file);
    assert_true(espl_h5_write_text_attribute(dataset, "packing", "bitmask-lsb0") >= 0);
    assert_true(espl_h5_write_u64_attribute(dataset, "logical_shape", three, 2) >= 0);
    close_tensor(dataset, file);
    refuse("d.h5", ESPL_E_CORRUPT, "does not fit its packing");

    /* A chunked dataset of a foreign type beside it. */
    write_small("d.h5");
    dataset = open_tensor("d.h5", &file);
    const hsize_t extent[1] = {4};
    const hid_t space = H5Screate_simple(1, extent, NULL);
    hid_t foreign =
        H5Dcreate2(file, "/foreign", H5T_STD_U32BE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(foreign >= 0);
    assert_true(H5Dclose(foreign) >= 0);
    assert_true(H5Sclose(space) >= 0);
    close_tensor(dataset, file);
    refuse("d.h5", ESPL_E_CORRUPT, "'/foreign': its element type is not one of an artifact");
}

static void test_verify__finds_changed_bytes_and_labels(void **state)
{
    char bad[ESPL_TENSOR_PATH];
    bool ok = true;
    hid_t file = H5I_INVALID_HID;
    struct espl_artifact *artifact = NULL;
    const uint8_t other[6] = {1, 2, 3, 4, 5, 7};
    (void)state;
    write_small("v.h5");
    hid_t dataset = open_tensor("v.h5", &file);
    assert_true(H5Dwrite(dataset, H5T_NATIVE_UCHAR, H5S_ALL, H5S_ALL, H5P_DEFAULT, other) >= 0);
    close_tensor(dataset, file);
    assert_int_equal(espl_artifact_open(below("v.h5"), &artifact, &err), ESPL_OK);
    assert_int_equal(espl_artifact_verify(artifact, &ok, bad, &err), ESPL_OK);
    assert_false(ok);
    assert_string_equal(bad, "/x/w");
    /* Resuming from it must not take the damage over. */
    struct espl_artifact *copy = create("copy.h5", "unit/1");
    assert_int_equal(espl_artifact_copy_datasets(copy, artifact, &err), ESPL_E_CORRUPT);
    espl_artifact_abandon(copy);
    assert_false(espl_fs_exists(below("copy.h5")));
    espl_artifact_close(artifact);

    write_small("v.h5");
    file = H5Fopen(below("v.h5"), H5F_ACC_RDWR, H5P_DEFAULT);
    assert_true(H5Lmove(file, "/x/w", file, "/x/v", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    assert_true(H5Fclose(file) >= 0);
    assert_int_equal(espl_artifact_open(below("v.h5"), &artifact, &err), ESPL_OK);
    assert_int_equal(espl_artifact_verify(artifact, &ok, bad, &err), ESPL_OK);
    assert_false(ok);
    assert_string_equal(bad, "/");
    espl_artifact_close(artifact);
}

static void test_write__on_a_reader_is_refused(void **state)
{
    struct espl_artifact *artifact = NULL;
    const struct espl_tensor_info info = espl_tensor_info_make("/y", ESPL_DTYPE_U8, 2, shape23);
    (void)state;
    write_small("r.h5");
    assert_int_equal(espl_artifact_open(below("r.h5"), &artifact, &err), ESPL_OK);
    assert_int_equal(espl_artifact_write(artifact, &info, bytes6, &err), ESPL_E_INTERNAL);
    assert_non_null(strstr(err.message, "open for reading"));
    espl_artifact_abandon(artifact); /* wrong call, but the published file must survive it */
    assert_true(espl_fs_exists(below("r.h5")));
}

/* ---- data in other files ---- */

static const char sha_of_bytes6[] =
    "7192385c3c0605de55bb9476ce1d90748190ecb32a8eed7f5207b30cf6a1fe89";

static void write_external(const char *name)
{
    char content[ESPL_SHA256_HEX];
    const struct espl_tensor_info info = espl_tensor_info_make("/x/w", ESPL_DTYPE_U8, 2, shape23);
    assert_int_equal(espl_fs_write_file(below("raw"), "head\1\2\3\4\5\6tail", 14, &err), ESPL_OK);
    struct espl_artifact *artifact = create(name, "unit/1");
    assert_int_equal(
        espl_artifact_write_external(artifact, &info, below("raw"), 4, sha_of_bytes6, &err),
        ESPL_OK);
    assert_int_equal(espl_artifact_finish(&artifact, content, &err), ESPL_OK);
}

static void test_external__reads_and_hashes_like_a_copy(void **state)
{
    uint8_t row[3];
    char bad[ESPL_TENSOR_PATH];
    bool ok = false;
    struct espl_artifact *artifact = NULL;
    struct espl_artifact *copy = NULL;
    (void)state;
    write_external("ext.h5");
    write_small("int.h5");
    assert_int_equal(espl_artifact_open(below("ext.h5"), &artifact, &err), ESPL_OK);
    assert_int_equal(espl_artifact_open(below("int.h5"), &copy, &err), ESPL_OK);
    assert_string_equal(espl_artifact_content_sha256(artifact), espl_artifact_content_sha256(copy));
    espl_artifact_close(copy);
    assert_true(espl_artifact_find(artifact, "/x/w")->external);
    assert_int_equal(espl_artifact_read_rows(artifact, "/x/w", 1, 1, row, 3, &err), ESPL_OK);
    assert_memory_equal(row, bytes6 + 3, 3);
    assert_int_equal(espl_artifact_verify(artifact, &ok, bad, &err), ESPL_OK);
    assert_true(ok);
    /* A copy of the datasets stays a reference. */
    copy = create("copy.h5", "unit/1");
    assert_int_equal(espl_artifact_copy_datasets(copy, artifact, &err), ESPL_OK);
    assert_int_equal(espl_artifact_finish(&copy, NULL, &err), ESPL_OK);
    espl_artifact_close(artifact);
    assert_int_equal(espl_artifact_open(below("copy.h5"), &copy, &err), ESPL_OK);
    assert_true(espl_artifact_find(copy, "/x/w")->external);
    espl_artifact_close(copy);
    /* Other HDF5 programs can read it, too. */
    hid_t file = H5I_INVALID_HID;
    uint8_t all[6] = {0};
    const hid_t dataset = open_tensor("ext.h5", &file);
    assert_true(H5Dread(dataset, H5T_NATIVE_UCHAR, H5S_ALL, H5S_ALL, H5P_DEFAULT, all) >= 0);
    assert_memory_equal(all, bytes6, 6);
    close_tensor(dataset, file);
}

static void test_external__gone_shrunk_or_changed(void **state)
{
    uint8_t row[3];
    char bad[ESPL_TENSOR_PATH];
    bool ok = true;
    struct espl_artifact *artifact = NULL;
    (void)state;
    write_external("ext.h5");
    assert_int_equal(espl_artifact_open(below("ext.h5"), &artifact, &err), ESPL_OK);
    assert_int_equal(espl_fs_write_file(below("raw"), "head\1\2\3\4\5\7tail", 14, &err), ESPL_OK);
    assert_int_equal(espl_artifact_verify(artifact, &ok, bad, &err), ESPL_OK);
    assert_false(ok);
    assert_string_equal(bad, "/x/w");
    assert_int_equal(espl_artifact_read_rows(artifact, "/x/w", 0, 1, row, 3, &err), ESPL_E_CORRUPT);
    assert_non_null(strstr(err.message, "raw' has changed since '"));
    assert_non_null(strstr(err.hint, "storage: copy"));
    assert_int_equal(truncate(below("raw"), 9), 0);
    assert_int_equal(espl_artifact_read_rows(artifact, "/x/w", 0, 1, row, 3, &err), ESPL_E_CORRUPT);
    assert_non_null(strstr(err.message, "too short: tensor '/x/w' needs 6 bytes at 4"));
    assert_int_equal(unlink(below("raw")), 0);
    assert_int_equal(espl_artifact_read_rows(artifact, "/x/w", 0, 1, row, 3, &err),
                     ESPL_E_NOTFOUND);
    assert_non_null(strstr(err.message, "holds the data of tensor '/x/w'"));
    assert_non_null(strstr(err.hint, "storage: copy"));
    espl_artifact_close(artifact);
    /* The header can still be looked at. */
    assert_int_equal(espl_artifact_open(below("ext.h5"), &artifact, &err), ESPL_OK);
    espl_artifact_close(artifact);
}

static void test_external__bad_references(void **state)
{
    static const struct {
        const char *file;
        uint64_t offset;
        const char *sha256;
    } cases[] = {
        {"relative/raw", 0, sha_of_bytes6},
        {"/raw", UINT64_MAX - 2, sha_of_bytes6},
        {"/raw", 0, ""},
        {"/raw", 0, "7192385C3C0605DE55BB9476CE1D90748190ECB32A8EED7F5207B30CF6A1FE89"},
    };
    (void)state;
    const struct espl_tensor_info info = espl_tensor_info_make("/x/w", ESPL_DTYPE_U8, 2, shape23);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct espl_artifact *artifact = create("a.h5", "unit/1");
        assert_int_equal(espl_artifact_write_external(artifact, &info, cases[i].file,
                                                      cases[i].offset, cases[i].sha256, &err),
                         ESPL_E_INTERNAL);
        refuse_finish(artifact, "a.h5");
    }
}

int main(void)
{
    espl_artifact_library_init();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_create__refusals),
        cmocka_unit_test(test_set_kind__alternatives),
        cmocka_unit_test(test_create_rows__bad_tensors),
        cmocka_unit_test(test_write__duplicates_and_clashes),
        cmocka_unit_test(test_append_rows__too_many_too_few_unknown),
        cmocka_unit_test(test_texts__refusals),
        cmocka_unit_test(test_finish__required_tensors),
        cmocka_unit_test(test_open__not_an_artifact),
        cmocka_unit_test(test_open__truncated_at_every_size),
        cmocka_unit_test(test_open__versions_and_marks),
        cmocka_unit_test(test_open__damaged_tensors),
        cmocka_unit_test(test_verify__finds_changed_bytes_and_labels),
        cmocka_unit_test(test_write__on_a_reader_is_refused),
        cmocka_unit_test(test_external__reads_and_hashes_like_a_copy),
        cmocka_unit_test(test_external__gone_shrunk_or_changed),
        cmocka_unit_test(test_external__bad_references),
    };
    return cmocka_run_group_tests(tests, test_folder_set_up, test_folder_tear_down);
}
