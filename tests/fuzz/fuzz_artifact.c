/* Our own layer over HDF5: an intact artifact whose attributes, texts and datasets the input
 * changes through the library, so that the file itself stays a valid HDF5 file. (Damage of the
 * file's structure is for HDF5 to find; artifacts of others are never opened.) Reading must end in
 * an error or in tensors that are what they say.
 *
 * Input: edits of 4 bytes head (what, where, name, length) and `length` bytes each. */
#include "artifact/artifact.h"
#include "artifact/h5.h"
#include "memory_folder.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_EDITS = 16, READ_LIMIT = 1 << 20 };

static const char *const places[] = {"/", "/layers/a", "/layers/b", "/new"};
static const char *const names[] = {"format",   "format_version", "kind",           "kind_version",
                                    "complete", "content_sha256", "sha256",         "logical_dtype",
                                    "packing",  "logical_shape",  "external_state", "other"};

static void require(bool condition)
{
    if (!condition) {
        abort();
    }
}

static void make_base(const char *path)
{
    static const float values[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    const uint64_t shape[] = {3, 4};
    struct espl_artifact *artifact = NULL;
    struct espl_error err;
    const struct espl_tensor_info a = espl_tensor_info_make("/layers/a", ESPL_DTYPE_F32, 2, shape);
    const struct espl_tensor_info b = espl_tensor_info_make("/layers/b", ESPL_DTYPE_BF16, 2, shape);
    require(espl_artifact_create(path, "unit/1", &artifact, &err) == ESPL_OK);
    require(espl_artifact_set_description(artifact, "{\"a\": 1}", &err) == ESPL_OK);
    require(espl_artifact_set_provenance(artifact, "job", "text", &err) == ESPL_OK);
    require(espl_artifact_write(artifact, &a, values, &err) == ESPL_OK);
    require(espl_artifact_write(artifact, &b, values, &err) == ESPL_OK);
    require(espl_artifact_finish(&artifact, NULL, &err) == ESPL_OK);
}

/* A dataset whose shape the bytes give, without data (HDF5 stores none until something is written).
 */
static void add_dataset(hid_t file, const char *place, const uint8_t *bytes, size_t len)
{
    hsize_t shape[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    const unsigned rank = len > 0 ? bytes[0] % 9 : 0;
    for (size_t i = 0; i < rank && 1 + i < len; i++) {
        shape[i] = (hsize_t)bytes[1 + i] << (bytes[1 + i] & 1 ? 40 : 0);
    }
    const hid_t space = rank > 0 ? H5Screate_simple((int)rank, shape, NULL) : H5Screate(H5S_NULL);
    const hid_t types[] = {H5T_NATIVE_INT8, H5T_NATIVE_UINT16, H5T_NATIVE_DOUBLE, H5T_STD_I32BE,
                           H5T_C_S1,        H5T_NATIVE_UINT64, H5T_NATIVE_LDOUBLE};
    const hid_t type = types[len > 0 ? bytes[len - 1] % 7 : 0];
    const hid_t dataset =
        space >= 0 ? H5Dcreate2(file, place, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)
                   : -1;
    if (dataset >= 0) {
        (void)H5Dclose(dataset);
    }
    if (space >= 0) {
        (void)H5Sclose(space);
    }
}

/* Sets an attribute to a text or to numbers. */
static void set_attribute(hid_t object, const char *name, bool numbers, const uint8_t *bytes,
                          size_t len)
{
    char text[256];
    uint64_t values[32];
    (void)H5Adelete(object, name); /* not there in most cases */
    if (numbers) {
        for (size_t i = 0; i < len && i < 32; i++) {
            values[i] = (uint64_t)bytes[i] << (bytes[i] & 1 ? 56 : 0);
        }
        (void)espl_h5_write_u64_attribute(object, name, values, len > 0 ? (unsigned)(len % 33) : 1);
    } else {
        memcpy(text, bytes, len);
        text[len] = '\0';
        (void)espl_h5_write_text_attribute(object, name, text);
    }
}

static void apply(hid_t file, const uint8_t head[4], const uint8_t *bytes, size_t len)
{
    const char *const place = places[head[1] % 4];
    const char *const name = names[head[2] % 12];
    if (head[0] % 4 == 0) {
        (void)H5Ldelete(file, strcmp(place, "/") == 0 ? "/description" : place, H5P_DEFAULT);
        return;
    }
    if (head[0] % 4 == 1) {
        add_dataset(file, place, bytes, len);
        return;
    }
    const hid_t object = H5Oopen(file, place, H5P_DEFAULT);
    if (object >= 0) {
        set_attribute(object, name, head[0] % 4 == 2, bytes, len);
        (void)H5Oclose(object);
    }
}

static void edit(const char *path, const uint8_t *data, size_t size)
{
    const hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    require(file >= 0);
    for (int i = 0; i < MAX_EDITS && size >= 4; i++) {
        const size_t len = data[3] < size - 4 ? data[3] : size - 4;
        apply(file, data, data + 4, len);
        data += 4 + len;
        size -= 4 + len;
    }
    require(H5Fclose(file) >= 0);
}

static void read_all(const char *path)
{
    struct espl_artifact *artifact = NULL;
    struct espl_error err;
    char bad[ESPL_TENSOR_PATH];
    char *text = NULL;
    bool ok = false;
    if (espl_artifact_open(path, &artifact, &err) != ESPL_OK) {
        require(err.message[0] != '\0');
        return;
    }
    for (size_t i = 0; i < espl_artifact_tensor_count(artifact); i++) {
        const struct espl_tensor_info *const info = espl_artifact_tensor(artifact, i);
        void *values = NULL;
        size_t bytes = 0;
        require(info->rank <= ESPL_MAX_RANK);
        if (espl_artifact_read(artifact, info->path, READ_LIMIT, &values, &bytes, &err) ==
            ESPL_OK) {
            require(bytes == info->bytes && bytes <= READ_LIMIT);
            free(values);
        }
    }
    if (espl_artifact_provenance(artifact, "job", &text, &err) == ESPL_OK) {
        free(text);
    }
    (void)espl_artifact_verify(artifact, &ok, bad, &err);
    espl_artifact_close(artifact);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char *base;
    static size_t base_len;
    char path[ESPL_PATH_MAX];
    struct espl_error err;
    require(espl_fs_join(path, memory_folder(), "a.h5", &err) == ESPL_OK);
    if (base == NULL) {
        espl_artifact_library_init(); /* refused edits are no news */
        make_base(path);
        require(espl_fs_read_file(path, 1 << 20, &base, &base_len, &err) == ESPL_OK);
    }
    FILE *const stream = fopen(path, "wbe");
    require(stream != NULL && fwrite(base, 1, base_len, stream) == base_len);
    require(fclose(stream) == 0);
    edit(path, data, size);
    read_all(path);
    return 0;
}
