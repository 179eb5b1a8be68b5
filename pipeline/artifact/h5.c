#include "artifact/h5.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error \
    "artifacts store little-endian elements as they are in memory: this machine needs a converter"
#endif

void espl_h5_release(hid_t id)
{
    if (id >= 0) {
        (void)H5Idec_ref(id); /* what H5Tclose(), H5Sclose() and H5Pclose() do */
    }
}

/* Called for the deepest entry first; stops there. */
static herr_t copy_deepest(unsigned depth, const H5E_error2_t *entry, void *user)
{
    char *text = user;
    (void)depth;
    if (entry->desc != NULL) {
        (void)snprintf(text, 160, "%s", entry->desc);
    }
    return 1;
}

enum espl_status espl_h5_fail(const struct espl_h5_stream *stream, struct espl_error *err,
                              enum espl_status code, const char *fmt, ...)
{
    char what[384];
    char reason[160] = "";
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    (void)H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, copy_deepest, reason);
    (void)H5Eclear2(H5E_DEFAULT);
    if (stream == NULL || stream->failed_errno == 0) {
        return espl_fail(err, code, "%s%s%s", what, reason[0] != '\0' ? ": " : "", reason);
    }
    const enum espl_status status = espl_fail_errno(err, stream->failed_errno, "%s", what);
    if (status == ESPL_E_NOSPACE) {
        (void)espl_hint(err, "free space (or quota) on the file system of the results folder and "
                             "run the same command again");
    }
    return status;
}

/* IEEE 754 half: HDF5 before 1.14.4 has no such type, but can describe it. */
static hid_t create_half(void)
{
    enum { SIGN = 15, EXPONENT = 10, EXPONENT_BITS = 5, MANTISSA_BITS = 10, BIAS = 15 };
    const hid_t type = H5Tcopy(H5T_IEEE_F32LE);
    if (type >= 0 && (H5Tset_fields(type, SIGN, EXPONENT, EXPONENT_BITS, 0, MANTISSA_BITS) < 0 ||
                      H5Tset_size(type, 2) < 0 || H5Tset_ebias(type, BIAS) < 0)) {
        (void)H5Tclose(type); /* only memory */
        return H5I_INVALID_HID;
    }
    return type;
}

hid_t espl_h5_type_create(enum espl_dtype dtype)
{
    switch (dtype) {
    case ESPL_DTYPE_U8:
        return H5Tcopy(H5T_STD_U8LE);
    case ESPL_DTYPE_I8:
        return H5Tcopy(H5T_STD_I8LE);
    case ESPL_DTYPE_U16:
    case ESPL_DTYPE_BF16:
        return H5Tcopy(H5T_STD_U16LE);
    case ESPL_DTYPE_I32:
        return H5Tcopy(H5T_STD_I32LE);
    case ESPL_DTYPE_U32:
        return H5Tcopy(H5T_STD_U32LE);
    case ESPL_DTYPE_I64:
        return H5Tcopy(H5T_STD_I64LE);
    case ESPL_DTYPE_U64:
        return H5Tcopy(H5T_STD_U64LE);
    case ESPL_DTYPE_F16:
        return create_half();
    case ESPL_DTYPE_F32:
        return H5Tcopy(H5T_IEEE_F32LE);
    case ESPL_DTYPE_F64:
        return H5Tcopy(H5T_IEEE_F64LE);
    }
    return H5I_INVALID_HID;
}

bool espl_h5_type_parse(hid_t type, enum espl_dtype *out)
{
    static const enum espl_dtype stored[] = {
        ESPL_DTYPE_U8,  ESPL_DTYPE_I8,  ESPL_DTYPE_U16, ESPL_DTYPE_I32, ESPL_DTYPE_U32,
        ESPL_DTYPE_I64, ESPL_DTYPE_U64, ESPL_DTYPE_F16, ESPL_DTYPE_F32, ESPL_DTYPE_F64,
    };
    for (size_t i = 0; i < sizeof stored / sizeof stored[0]; i++) {
        const hid_t candidate = espl_h5_type_create(stored[i]);
        const bool equal = candidate >= 0 && H5Tequal(candidate, type) > 0;
        espl_h5_release(candidate);
        if (equal) {
            *out = stored[i];
            return true;
        }
    }
    return false;
}

/* Fixed-length UTF-8 text. HDF5 has no length 0, so an empty text is one NUL. */
static hid_t create_text_type(size_t len)
{
    const hid_t type = H5Tcopy(H5T_C_S1);
    if (type >= 0 &&
        (H5Tset_size(type, len == 0 ? 1 : len) < 0 || H5Tset_strpad(type, H5T_STR_NULLPAD) < 0 ||
         H5Tset_cset(type, H5T_CSET_UTF8) < 0)) {
        (void)H5Tclose(type); /* only memory */
        return H5I_INVALID_HID;
    }
    return type;
}

herr_t espl_h5_write_text_attribute(hid_t object, const char *name, const char *value)
{
    herr_t result = -1;
    hid_t attribute = H5I_INVALID_HID;
    const hid_t type = create_text_type(strlen(value));
    const hid_t space = H5Screate(H5S_SCALAR);
    if (type >= 0 && space >= 0) {
        attribute = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    }
    if (attribute >= 0) {
        result = H5Awrite(attribute, type, value);
        if (H5Aclose(attribute) < 0) {
            result = -1;
        }
    }
    /* The rest is only memory. */
    espl_h5_release(space);
    espl_h5_release(type);
    return result;
}

herr_t espl_h5_write_u64_attribute(hid_t object, const char *name, const uint64_t *values,
                                   unsigned count)
{
    herr_t result = -1;
    hid_t attribute = H5I_INVALID_HID;
    const hsize_t extent[1] = {count};
    const hid_t space = H5Screate_simple(1, extent, NULL);
    if (space >= 0) {
        attribute = H5Acreate2(object, name, H5T_STD_U64LE, space, H5P_DEFAULT, H5P_DEFAULT);
        (void)H5Sclose(space); /* only memory */
    }
    if (attribute >= 0) {
        result = H5Awrite(attribute, H5T_STD_U64LE, values);
        if (H5Aclose(attribute) < 0) {
            result = -1;
        }
    }
    return result;
}

/* Size of a scalar fixed-length text; false when it is anything else. */
static bool text_size(hid_t type, hid_t space, size_t limit, size_t *size)
{
    if (H5Tget_class(type) != H5T_STRING || H5Tis_variable_str(type) != 0 ||
        H5Sget_simple_extent_type(space) != H5S_SCALAR) {
        return false;
    }
    *size = H5Tget_size(type);
    return *size > 0 && *size <= limit;
}

enum espl_status espl_h5_read_text_attribute(hid_t object, const char *name, char **value,
                                             struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    size_t size = 0;
    char *text = NULL;
    hid_t type = H5I_INVALID_HID;
    hid_t space = H5I_INVALID_HID;
    const hid_t attribute = H5Aopen(object, name, H5P_DEFAULT);
    if (attribute < 0) {
        return espl_h5_fail(NULL, err, ESPL_E_CORRUPT, "cannot open attribute '%s'", name);
    }
    type = H5Aget_type(attribute);
    space = H5Aget_space(attribute);
    if (type < 0 || space < 0 || !text_size(type, space, ESPL_H5_ATTRIBUTE_LIMIT, &size)) {
        (void)H5Eclear2(H5E_DEFAULT);
        status = espl_fail(err, ESPL_E_CORRUPT, "attribute '%s' is not a text of 1 to %d bytes",
                           name, ESPL_H5_ATTRIBUTE_LIMIT);
        goto cleanup;
    }
    text = calloc(1, size + 1);
    if (text == NULL) {
        status = espl_fail(err, ESPL_E_NOMEM, "out of memory for attribute '%s'", name);
        goto cleanup;
    }
    if (H5Aread(attribute, type, text) < 0) {
        status = espl_h5_fail(NULL, err, ESPL_E_CORRUPT, "cannot read attribute '%s'", name);
        goto cleanup;
    }
    *value = text;
    text = NULL;

cleanup:
    free(text);
    /* Only read from. */
    espl_h5_release(space);
    espl_h5_release(type);
    (void)H5Aclose(attribute);
    return status;
}

enum espl_status espl_h5_read_u64_attribute(hid_t object, const char *name, uint64_t *values,
                                            unsigned count, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    hid_t type = H5I_INVALID_HID;
    hid_t space = H5I_INVALID_HID;
    const hid_t attribute = H5Aopen(object, name, H5P_DEFAULT);
    if (attribute < 0) {
        return espl_h5_fail(NULL, err, ESPL_E_CORRUPT, "cannot open attribute '%s'", name);
    }
    type = H5Aget_type(attribute);
    space = H5Aget_space(attribute);
    if (type < 0 || space < 0 || H5Tequal(type, H5T_STD_U64LE) <= 0 ||
        H5Sget_simple_extent_npoints(space) != (hssize_t)count) {
        (void)H5Eclear2(H5E_DEFAULT);
        status =
            espl_fail(err, ESPL_E_CORRUPT, "attribute '%s' does not hold %u numbers", name, count);
    } else if (H5Aread(attribute, H5T_STD_U64LE, values) < 0) {
        status = espl_h5_fail(NULL, err, ESPL_E_CORRUPT, "cannot read attribute '%s'", name);
    }
    /* Only read from. */
    espl_h5_release(space);
    espl_h5_release(type);
    (void)H5Aclose(attribute);
    return status;
}

hid_t espl_h5_plain_list(hid_t list_class)
{
    const hid_t list = H5Pcreate(list_class);
    if (list >= 0 && H5Pset_obj_track_times(list, false) < 0) {
        (void)H5Pclose(list); /* only memory */
        return H5I_INVALID_HID;
    }
    return list;
}

herr_t espl_h5_write_text(hid_t file, const char *path, const char *text)
{
    herr_t result = -1;
    hid_t dataset = H5I_INVALID_HID;
    const hid_t type = create_text_type(strlen(text));
    const hid_t space = H5Screate(H5S_SCALAR);
    const hid_t list = espl_h5_plain_list(H5P_DATASET_CREATE);
    if (type >= 0 && space >= 0 && list >= 0) {
        dataset = H5Dcreate2(file, path, type, space, H5P_DEFAULT, list, H5P_DEFAULT);
    }
    if (dataset >= 0) {
        result = H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, text);
        if (H5Dclose(dataset) < 0) {
            result = -1;
        }
    }
    /* The rest is only memory. */
    espl_h5_release(list);
    espl_h5_release(space);
    espl_h5_release(type);
    return result;
}

enum espl_status espl_h5_read_text(hid_t file, const char *path, char **text,
                                   struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    size_t size = 0;
    char *data = NULL;
    hid_t type = H5I_INVALID_HID;
    hid_t space = H5I_INVALID_HID;
    hid_t dataset = H5I_INVALID_HID;
    if (H5Lexists(file, path, H5P_DEFAULT) <= 0) {
        (void)H5Eclear2(H5E_DEFAULT);
        return espl_fail(err, ESPL_E_NOTFOUND, "there is no text '%s'", path);
    }
    dataset = H5Dopen2(file, path, H5P_DEFAULT);
    if (dataset < 0) {
        return espl_h5_fail(NULL, err, ESPL_E_CORRUPT, "cannot open text '%s'", path);
    }
    type = H5Dget_type(dataset);
    space = H5Dget_space(dataset);
    if (type < 0 || space < 0 || !text_size(type, space, ESPL_H5_TEXT_LIMIT, &size)) {
        (void)H5Eclear2(H5E_DEFAULT);
        status = espl_fail(err, ESPL_E_CORRUPT, "'%s' is not a text of 1 to %d bytes", path,
                           ESPL_H5_TEXT_LIMIT);
        goto cleanup;
    }
    data = calloc(1, size + 1);
    if (data == NULL) {
        status = espl_fail(err, ESPL_E_NOMEM, "out of memory for text '%s'", path);
        goto cleanup;
    }
    if (H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0) {
        status = espl_h5_fail(NULL, err, ESPL_E_CORRUPT, "cannot read text '%s'", path);
        goto cleanup;
    }
    *text = data;
    data = NULL;

cleanup:
    free(data);
    /* Only read from. */
    espl_h5_release(space);
    espl_h5_release(type);
    (void)H5Dclose(dataset);
    return status;
}
