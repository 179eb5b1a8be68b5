/* The few HDF5 calls that artifacts need, with our errors and our file access.
 *
 * Files go through a small HDF5 driver of our own (h5_stream.c) instead of the default one, for one
 * reason: when a write fails (disk full), HDF5 1.10 cannot close the file any more and crashes in
 * its exit handler. Our driver notes the errno, reports success to the library and drops all later
 * writes; the artifact layer looks at the note after every call. It takes no file locks. */
#ifndef ESPL_ARTIFACT_H5_H
#define ESPL_ARTIFACT_H5_H

#include "artifact/artifact.h"
#include "core/error.h"

/* One meaning of every call, whatever version of the library is installed. */
#ifndef H5_USE_110_API
#define H5_USE_110_API
#endif
#include <hdf5.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** An open file under the driver. Owned by the artifact; must outlive the HDF5 file. */
struct espl_h5_stream {
    int fd;           /* -1 = closed */
    int failed_errno; /* of the first failed write, 0 = none */
    bool discard;     /* drop writes: the file is being abandoned */
    /** The registered driver, 0 = none. HDF5 1.10 reads the driver's table after it dropped its own
     * reference in H5Fclose(), so ours must live longer: espl_h5_release_stream() drops it. */
    hid_t driver;
};

enum {
    ESPL_H5_ALIGNMENT = 4096,          /* of raw data: whole pages, so that they can be mapped */
    ESPL_H5_TEXT_LIMIT = 64 << 20,     /* bytes of a text dataset */
    ESPL_H5_ATTRIBUTE_LIMIT = 32 << 10 /* bytes of an attribute; the format allows 64 KiB */
};

/** Creates (create = true, truncating) or opens read-only the file behind stream->fd. path is for
 * messages only. Returns a negative value on failure. */
hid_t espl_h5_open_stream(struct espl_h5_stream *stream, const char *path, bool create);
/** Lets go of the driver; after the HDF5 file is closed. */
void espl_h5_release_stream(struct espl_h5_stream *stream);

/** Lets go of a type, data space or property list: things in memory whose closing can lose nothing.
 * A negative id is ignored. */
void espl_h5_release(hid_t id);

/** Fills err from the stream's errno when a write failed (NOSPACE with advice), else with `code`
 * and the deepest entry of the HDF5 error stack, which it clears. */
enum espl_status espl_h5_fail(const struct espl_h5_stream *stream, struct espl_error *err,
                              enum espl_status code, const char *fmt, ...) ESPL_PRINTF(4, 5);

/** New file type of an element type; close with H5Tclose(). Negative on failure. bf16 gives uint16:
 *  a dataset says which it is by its attribute "logical_dtype". */
hid_t espl_h5_type_create(enum espl_dtype dtype);
/** Finds the element type of a file type (bf16 comes back as u16). */
bool espl_h5_type_parse(hid_t type, enum espl_dtype *out);

/** Text attribute of an object, padded with NUL to at least one byte. */
herr_t espl_h5_write_text_attribute(hid_t object, const char *name, const char *value);
/** Array of unsigned 64-bit numbers. */
herr_t espl_h5_write_u64_attribute(hid_t object, const char *name, const uint64_t *values,
                                   unsigned count);
/** *value: malloc'ed, NUL-terminated, owned by the caller. CORRUPT when it is no text or too long.
 */
enum espl_status espl_h5_read_text_attribute(hid_t object, const char *name, char **value,
                                             struct espl_error *err);
/** Fails with CORRUPT unless there are exactly `count` numbers. */
enum espl_status espl_h5_read_u64_attribute(hid_t object, const char *name, uint64_t *values,
                                            unsigned count, struct espl_error *err);

/** New group or dataset creation list without time stamps; close with H5Pclose(). */
hid_t espl_h5_plain_list(hid_t list_class);
/** Scalar text dataset. */
herr_t espl_h5_write_text(hid_t file, const char *path, const char *text);
/** *text: malloc'ed, owned by the caller. NOTFOUND when absent, CORRUPT when it is no text. */
enum espl_status espl_h5_read_text(hid_t file, const char *path, char **text,
                                   struct espl_error *err);

#endif
