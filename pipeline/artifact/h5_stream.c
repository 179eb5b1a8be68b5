/* HDF5 file driver on a descriptor that the artifact owns. See h5.h for why it exists. */
#include "artifact/h5.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if H5_VERSION_GE(1, 14, 0)
#include <H5FDdevelop.h>
#endif

/* HDF5 keeps a copy of this in the access list. */
struct stream_access {
    struct espl_h5_stream *stream;
};

/* What HDF5 sees as an open file; `head` must come first. */
struct stream_file {
    H5FD_t head;
    struct espl_h5_stream *stream;
    haddr_t allocated; /* end of the address space that HDF5 has given out */
};

static const haddr_t largest_address = ((haddr_t)1 << 62) - 1;

static void note_failure(struct espl_h5_stream *stream, int reason)
{
    if (stream->failed_errno == 0) {
        stream->failed_errno = reason;
    }
}

static bool drops_writes(const struct espl_h5_stream *stream)
{
    return stream->discard || stream->failed_errno != 0;
}

static H5FD_t *stream_open(const char *name, unsigned flags, hid_t fapl, haddr_t maxaddr)
{
    const struct stream_access *access = H5Pget_driver_info(fapl);
    (void)name;
    (void)maxaddr;
    if (access == NULL) {
        return NULL;
    }
    struct stream_file *file = calloc(1, sizeof *file);
    if (file == NULL) {
        note_failure(access->stream, ENOMEM);
        return NULL;
    }
    file->stream = access->stream;
    if ((flags & H5F_ACC_TRUNC) != 0 && ftruncate(file->stream->fd, 0) != 0) {
        note_failure(file->stream, errno);
    }
    return &file->head;
}

static herr_t stream_close(H5FD_t *head)
{
    free(head); /* the descriptor belongs to the artifact */
    return 0;
}

static herr_t stream_query(const H5FD_t *head, unsigned long *flags)
{
    (void)head;
    *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
             H5FD_FEAT_AGGREGATE_SMALLDATA | H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
    return 0;
}

static haddr_t stream_get_allocated(const H5FD_t *head, H5FD_mem_t type)
{
    (void)type;
    return ((const struct stream_file *)head)->allocated;
}

static herr_t stream_set_allocated(H5FD_t *head, H5FD_mem_t type, haddr_t address)
{
    (void)type;
    ((struct stream_file *)head)->allocated = address;
    return 0;
}

static haddr_t stream_get_size(const H5FD_t *head, H5FD_mem_t type)
{
    struct stat info;
    (void)type;
    const struct stream_file *file = (const struct stream_file *)head;
    if (fstat(file->stream->fd, &info) != 0) {
        return HADDR_UNDEF;
    }
    return (haddr_t)info.st_size;
}

static herr_t stream_read(H5FD_t *head, H5FD_mem_t type, hid_t list, haddr_t address, size_t size,
                          void *buffer)
{
    const struct stream_file *file = (const struct stream_file *)head;
    char *out = buffer;
    (void)type;
    (void)list;
    if (address > largest_address || size > largest_address - address) {
        return -1;
    }
    while (size > 0) {
        const ssize_t got = pread(file->stream->fd, out, size, (off_t)address);
        if (got < 0) {
            if (errno == EINTR) {
                continue;
            }
            return -1;
        }
        if (got == 0) { /* given out, but not written yet */
            memset(out, 0, size);
            return 0;
        }
        out += got;
        address += (haddr_t)got;
        size -= (size_t)got;
    }
    return 0;
}

static herr_t stream_write(H5FD_t *head, H5FD_mem_t type, hid_t list, haddr_t address, size_t size,
                           const void *buffer)
{
    struct espl_h5_stream *stream = ((struct stream_file *)head)->stream;
    const char *in = buffer;
    (void)type;
    (void)list;
    if (address > largest_address || size > largest_address - address) {
        return -1;
    }
    while (size > 0 && !drops_writes(stream)) {
        const ssize_t put = pwrite(stream->fd, in, size, (off_t)address);
        if (put < 0) {
            if (errno != EINTR) {
                note_failure(stream, errno);
            }
            continue;
        }
        in += put;
        address += (haddr_t)put;
        size -= (size_t)put;
    }
    return 0;
}

static herr_t stream_truncate(H5FD_t *head, hid_t list, hbool_t closing)
{
    const struct stream_file *file = (const struct stream_file *)head;
    (void)list;
    (void)closing;
    if (drops_writes(file->stream) || stream_get_size(head, H5FD_MEM_DEFAULT) == file->allocated) {
        return 0;
    }
    while (ftruncate(file->stream->fd, (off_t)file->allocated) != 0) {
        if (errno != EINTR) {
            note_failure(file->stream, errno);
            break;
        }
    }
    return 0;
}

static const H5FD_class_t stream_class = {
#if H5_VERSION_GE(1, 14, 0)
    .version = H5FD_CLASS_VERSION,
    .value = (H5FD_class_value_t)600, /* 512 and above are free for applications */
#endif
    .name = "espalier stream",
    .maxaddr = ((haddr_t)1 << 62) - 1,
    .fc_degree = H5F_CLOSE_WEAK,
    .fapl_size = sizeof(struct stream_access),
    .open = stream_open,
    .close = stream_close,
    .query = stream_query,
    .get_eoa = stream_get_allocated,
    .set_eoa = stream_set_allocated,
    .get_eof = stream_get_size,
    .read = stream_read,
    .write = stream_write,
    .truncate = stream_truncate,
    .fl_map = H5FD_FLMAP_DICHOTOMY,
};

/* Nothing of the file's metadata is written or dropped before the close: after a failed write the
 * library must never need to read back what could not be written. */
static herr_t keep_metadata(hid_t access)
{
    H5AC_cache_config_t config = {.version = H5AC__CURR_CACHE_CONFIG_VERSION};
    if (H5Pget_mdc_config(access, &config) < 0) {
        return -1;
    }
    config.evictions_enabled = false;
    config.incr_mode = H5C_incr__off;
    config.flash_incr_mode = H5C_flash_incr__off;
    config.decr_mode = H5C_decr__off;
    return H5Pset_mdc_config(access, &config);
}

static hid_t make_access_list(struct espl_h5_stream *stream, bool create)
{
    const struct stream_access info = {.stream = stream};
    if (stream->driver <= 0) {
        stream->driver = H5FDregister(&stream_class);
    }
    if (stream->driver < 0) {
        return H5I_INVALID_HID;
    }
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    if (access >= 0 && (H5Pset_driver(access, stream->driver, &info) < 0 ||
                        H5Pset_fclose_degree(access, H5F_CLOSE_STRONG) < 0 ||
                        H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_V110) < 0 ||
                        H5Pset_alignment(access, ESPL_H5_ALIGNMENT, ESPL_H5_ALIGNMENT) < 0 ||
                        (create && keep_metadata(access) < 0))) {
        (void)H5Pclose(access); /* a failed set-up is reported by the caller */
        access = H5I_INVALID_HID;
    }
    return access;
}

hid_t espl_h5_open_stream(struct espl_h5_stream *stream, const char *path, bool create)
{
    const unsigned most_compact_attributes = 64; /* more would go to a heap with its own layout */
    const unsigned least_dense_attributes = 32;
    hid_t file = H5I_INVALID_HID;
    hid_t creation = H5I_INVALID_HID;

    const hid_t access = make_access_list(stream, create);
    if (access < 0) {
        return H5I_INVALID_HID;
    }
    if (!create) {
        file = H5Fopen(path, H5F_ACC_RDONLY, access);
        goto cleanup;
    }
    creation = H5Pcreate(H5P_FILE_CREATE);
    if (creation >= 0 && H5Pset_obj_track_times(creation, false) >= 0 &&
        H5Pset_attr_phase_change(creation, most_compact_attributes, least_dense_attributes) >= 0) {
        file = H5Fcreate(path, H5F_ACC_TRUNC, creation, access);
    }

cleanup:
    /* Closing a property list only drops memory. */
    espl_h5_release(creation);
    (void)H5Pclose(access);
    return file;
}

void espl_h5_release_stream(struct espl_h5_stream *stream)
{
    if (stream->driver > 0) {
        (void)H5FDunregister(stream->driver); /* only memory */
    }
    stream->driver = 0;
}
