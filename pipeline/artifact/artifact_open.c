/* Opening of artifacts: every fact that a file states is checked before it is used. */
#include "artifact/artifact.h"
#include "artifact/artifact_internal.h"
#include "artifact/kinds.h"
#include "core/fs.h"
#include "core/units.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Opens the descriptor and looks at the first bytes, so that files that are no HDF5 files, and
 * empty ones, get a message of their own. */
static enum espl_status open_descriptor(struct espl_artifact *artifact, struct espl_error *err)
{
    static const unsigned char signature[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
    unsigned char first[sizeof signature] = {0};
    struct stat info;
    const char *path = artifact->path;

    artifact->stream.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (artifact->stream.fd < 0) {
        return espl_fail_errno(err, errno, "cannot open artifact '%s'", path);
    }
    if (fstat(artifact->stream.fd, &info) != 0) {
        return espl_fail_errno(err, errno, "cannot examine artifact '%s'", path);
    }
    if (!S_ISREG(info.st_mode)) {
        return espl_fs_advise_folder(
            path, espl_fail(err, ESPL_E_KIND, "'%s' is not an artifact: not a regular file", path),
            err);
    }
    if (info.st_size == 0) {
        return espl_fail(err, ESPL_E_CORRUPT, "artifact '%s' is damaged: the file is empty", path);
    }
    artifact->file_bytes = (uint64_t)info.st_size;
    const ssize_t got = pread(artifact->stream.fd, first, sizeof first, 0);
    if (got < 0) {
        return espl_fail_errno(err, errno, "cannot read artifact '%s'", path);
    }
    if (memcmp(first, signature, sizeof signature) != 0) {
        return espl_fail(err, ESPL_E_KIND, "'%s' is not an artifact: not an HDF5 file", path);
    }
    return ESPL_OK;
}

/* Loads all text attributes of the root group; others are not ours. */
static enum espl_status load_attributes(struct espl_artifact *artifact, struct espl_error *err)
{
    H5O_info_t info;
    if (H5Oget_info(artifact->file, &info) < 0) {
        return espl_h5_fail(NULL, err, ESPL_E_CORRUPT, "cannot read the attributes of '%s'",
                            artifact->path);
    }
    if (info.num_attrs > ESPL_ARTIFACT_MAX_ATTRIBUTES) {
        return espl_fail(err, ESPL_E_CORRUPT, "'%s' has %" PRIu64 " attributes, the limit is %d",
                         artifact->path, (uint64_t)info.num_attrs, ESPL_ARTIFACT_MAX_ATTRIBUTES);
    }
    for (hsize_t i = 0; i < info.num_attrs; i++) {
        char name[128];
        char *value = NULL;
        const ssize_t len = H5Aget_name_by_idx(artifact->file, ".", H5_INDEX_NAME, H5_ITER_INC, i,
                                               name, sizeof name, H5P_DEFAULT);
        if (len < 0) {
            return espl_h5_fail(NULL, err, ESPL_E_CORRUPT, "cannot read the attributes of '%s'",
                                artifact->path);
        }
        if ((size_t)len >= sizeof name) {
            continue;
        }
        const enum espl_status status =
            espl_h5_read_text_attribute(artifact->file, name, &value, err);
        if (status == ESPL_E_NOMEM) {
            return status;
        }
        if (status != ESPL_OK) {
            continue;
        }
        const bool kept = espl_artifact_texts_set(&artifact->attributes, name, value);
        free(value);
        if (!kept) {
            return espl_fail(err, ESPL_E_NOMEM, "out of memory for artifact '%s'", artifact->path);
        }
    }
    espl_error_clear(err); /* of attributes that were passed over */
    return ESPL_OK;
}

/* A kind that is not in the table: a newer version of one that is, or a stranger. */
static enum espl_status fail_unknown_kind(const struct espl_artifact *artifact, const char *kind,
                                          struct espl_error *err)
{
    const char *slash = strrchr(kind, '/');
    int64_t version = 0;
    const size_t stem = slash != NULL ? (size_t)(slash - kind) + 1 : 0;
    const bool numbered = slash != NULL && espl_parse_int(slash + 1, &version);
    for (const struct espl_kind *known = espl_kinds; numbered && known->name != NULL; known++) {
        int64_t known_version = 0;
        if (strncmp(known->name, kind, stem) == 0 &&
            espl_parse_int(known->name + stem, &known_version) && version > known_version) {
            (void)espl_fail(err, ESPL_E_VERSION,
                            "artifact '%s' is of kind '%.47s', newer than the '%s' known here",
                            artifact->path, kind, known->name);
            (void)espl_hint(err, "update espalier, or make the artifact again with this version");
            return ESPL_E_VERSION;
        }
    }
    (void)espl_fail(err, ESPL_E_KIND, "artifact '%s' is of an unknown kind '%.47s'", artifact->path,
                    kind);
    (void)espl_hint(err, "it may come from a newer version of espalier");
    return ESPL_E_KIND;
}

/* Format, version, completeness mark, kind: in this order, each with its own message. */
static enum espl_status check_head(struct espl_artifact *artifact, struct espl_error *err)
{
    int64_t version = 0;
    const char *path = artifact->path;
    if (strcmp(espl_artifact_attribute(artifact, "format"), ESPL_ARTIFACT_FORMAT) != 0) {
        /* An interrupted writer leaves files without a head: those are never in the store. */
        return espl_fail(err, ESPL_E_KIND,
                         "'%s' is not an artifact: an HDF5 file without format '%s'", path,
                         ESPL_ARTIFACT_FORMAT);
    }
    if (!espl_parse_int(espl_artifact_attribute(artifact, "format_version"), &version) ||
        version < 1) {
        return espl_fail(err, ESPL_E_CORRUPT, "artifact '%s' is damaged: no format version", path);
    }
    if (version > ESPL_ARTIFACT_FORMAT_VERSION) {
        (void)espl_fail(err, ESPL_E_VERSION,
                        "artifact '%s' has format version %" PRId64 ", this program reads up to %d",
                        path, version, ESPL_ARTIFACT_FORMAT_VERSION);
        (void)espl_hint(err, "update espalier, or make the artifact again with this version");
        return ESPL_E_VERSION;
    }
    if (strcmp(espl_artifact_attribute(artifact, "complete"), "1") != 0) {
        (void)espl_fail(err, ESPL_E_CORRUPT, "artifact '%s' is incomplete: its writer was stopped",
                        path);
        (void)espl_hint(err, "delete the file and run the job again");
        return ESPL_E_CORRUPT;
    }
    const char *kind = espl_artifact_attribute(artifact, "kind");
    if (espl_kind_find(kind) == NULL) {
        return fail_unknown_kind(artifact, kind, err);
    }
    (void)snprintf(artifact->kind, sizeof artifact->kind, "%s", kind);
    const char *content = espl_artifact_attribute(artifact, "content_sha256");
    if (strlen(content) != 64) {
        return espl_fail(err, ESPL_E_CORRUPT, "artifact '%s' is damaged: no content hash", path);
    }
    memcpy(artifact->content_sha256, content, ESPL_SHA256_HEX);
    return ESPL_OK;
}

/* Reads a text attribute into a fixed field; absent gives "". */
static enum espl_status read_field(hid_t dataset, const char *name, char *out, size_t size,
                                   struct espl_error *err)
{
    char *value = NULL;
    out[0] = '\0';
    const htri_t there = H5Aexists(dataset, name);
    if (there <= 0) {
        (void)H5Eclear2(H5E_DEFAULT);
        return ESPL_OK;
    }
    enum espl_status status = espl_h5_read_text_attribute(dataset, name, &value, err);
    if (status == ESPL_OK) {
        if (strlen(value) >= size) {
            status = espl_fail(err, ESPL_E_CORRUPT, "attribute '%s' is too long", name);
        } else {
            memcpy(out, value, strlen(value) + 1);
        }
    }
    free(value);
    return status;
}

static enum espl_status load_extent(hid_t dataset, struct espl_tensor_info *info,
                                    struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    hsize_t extent[ESPL_MAX_RANK] = {0};
    const hid_t type = H5Dget_type(dataset);
    const hid_t space = H5Dget_space(dataset);
    const int rank = space >= 0 ? H5Sget_simple_extent_ndims(space) : -1;
    if (type < 0 || !espl_h5_type_parse(type, &info->dtype)) {
        status = espl_fail(err, ESPL_E_CORRUPT, "its element type is not one of an artifact");
    } else if (rank < 0 || rank > ESPL_MAX_RANK || H5Sis_simple(space) <= 0 ||
               H5Sget_simple_extent_dims(space, extent, NULL) != rank) {
        status =
            espl_fail(err, ESPL_E_CORRUPT, "its shape has more than %d dimensions", ESPL_MAX_RANK);
    } else {
        info->rank = (unsigned)rank;
        for (unsigned i = 0; i < info->rank; i++) {
            info->shape[i] = extent[i];
        }
    }
    (void)H5Eclear2(H5E_DEFAULT);
    /* Only read from. */
    espl_h5_release(space);
    espl_h5_release(type);
    return status;
}

static enum espl_status load_labels(hid_t dataset, struct espl_tensor_info *info,
                                    struct espl_error *err)
{
    char logical_dtype[16];
    enum espl_status status = read_field(dataset, "sha256", info->sha256, sizeof info->sha256, err);
    if (status == ESPL_OK && strlen(info->sha256) != 64) {
        status = espl_fail(err, ESPL_E_CORRUPT, "it has no hash");
    }
    if (status == ESPL_OK) {
        status = read_field(dataset, "logical_dtype", logical_dtype, sizeof logical_dtype, err);
    }
    if (status == ESPL_OK && logical_dtype[0] != '\0') {
        if (strcmp(logical_dtype, "bf16") != 0 || info->dtype != ESPL_DTYPE_U16) {
            return espl_fail(err, ESPL_E_CORRUPT, "its logical element type '%s' is unknown",
                             logical_dtype);
        }
        info->dtype = ESPL_DTYPE_BF16;
    }
    if (status == ESPL_OK) {
        status = read_field(dataset, "packing", info->packing, sizeof info->packing, err);
    }
    memcpy(info->logical_shape, info->shape, sizeof info->shape);
    if (status == ESPL_OK && info->packing[0] != '\0' && info->rank > 0) {
        status = espl_h5_read_u64_attribute(dataset, "logical_shape", info->logical_shape,
                                            info->rank, err);
    }
    return status;
}

/* File and offset of data that live outside. */
static enum espl_status load_external(hid_t list, hid_t dataset, struct espl_artifact_entry *entry,
                                      struct espl_error *err)
{
    off_t offset = 0;
    hsize_t size = 0;
    uint64_t state[2] = {0, 0};
    char *name = calloc(1, ESPL_PATH_MAX);
    if (name == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory");
    }
    if (H5Pget_external(list, 0, ESPL_PATH_MAX - 1, name, &offset, &size) < 0 || offset < 0 ||
        name[0] != '/' || size != entry->info.bytes) {
        (void)H5Eclear2(H5E_DEFAULT);
        free(name);
        return espl_fail(err, ESPL_E_CORRUPT, "its reference to another file is damaged");
    }
    entry->external_file = name;
    entry->offset = (uint64_t)offset;
    entry->info.external = true;
    const enum espl_status status =
        espl_h5_read_u64_attribute(dataset, "external_state", state, 2, err);
    entry->external_state = (struct espl_artifact_file_state){state[0], state[1]};
    return status;
}

/* Where the data are, and that they can be there. */
static enum espl_status load_place(const struct espl_artifact *artifact, hid_t dataset,
                                   struct espl_artifact_entry *entry, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    const hid_t list = H5Dget_create_plist(dataset);
    const int files = list >= 0 ? H5Pget_external_count(list) : -1;
    const H5D_layout_t layout = list >= 0 ? H5Pget_layout(list) : H5D_LAYOUT_ERROR;
    const uint64_t bytes = entry->info.bytes;
    if (files < 0 || files > 1 || layout != H5D_CONTIGUOUS) {
        status = espl_fail(err, ESPL_E_CORRUPT, "it is not stored in one piece");
    } else if (files == 1) {
        status = load_external(list, dataset, entry, err);
    } else if (bytes > 0) {
        const haddr_t offset = H5Dget_offset(dataset);
        if (offset == HADDR_UNDEF || offset > artifact->file_bytes ||
            bytes > artifact->file_bytes - offset) {
            status = espl_fail(err, ESPL_E_CORRUPT, "its data end behind the end of the file");
        }
        entry->offset = offset;
    }
    (void)H5Eclear2(H5E_DEFAULT);
    espl_h5_release(list);
    return status;
}

static enum espl_status load_entry(const struct espl_artifact *artifact,
                                   struct espl_artifact_entry *entry, struct espl_error *err)
{
    const hid_t dataset = H5Dopen2(artifact->file, entry->info.path, H5P_DEFAULT);
    if (dataset < 0) {
        return espl_h5_fail(NULL, err, ESPL_E_CORRUPT, "it cannot be opened");
    }
    enum espl_status status = load_extent(dataset, &entry->info, err);
    if (status == ESPL_OK) {
        status = load_labels(dataset, &entry->info, err);
    }
    if (status == ESPL_OK) {
        const struct espl_tensor_info sized = espl_tensor_info_make(
            entry->info.path, entry->info.dtype, entry->info.rank, entry->info.shape);
        entry->info.bytes = sized.bytes;
        status = espl_artifact_check_info(entry, ESPL_E_CORRUPT, err);
    }
    if (status == ESPL_OK) {
        status = load_place(artifact, dataset, entry, err);
    }
    (void)H5Dclose(dataset); /* only read from */
    return status;
}

struct visit {
    struct espl_artifact *artifact;
    enum espl_status status;
    struct espl_error *err;
};

/* Called for every object below the root. Links to other files are not followed by H5Ovisit. */
static herr_t visit_object(hid_t root, const char *name, const H5O_info_t *info, void *user)
{
    struct visit *visit = user;
    struct espl_artifact *artifact = visit->artifact;
    (void)root;
    if (info->type != H5O_TYPE_DATASET || strcmp(name, "description") == 0 ||
        strncmp(name, "provenance/", strlen("provenance/")) == 0) {
        return 0;
    }
    if (strlen(name) + 2 > ESPL_TENSOR_PATH || artifact->entry_count >= ESPL_ARTIFACT_MAX_TENSORS) {
        visit->status = espl_fail(visit->err, ESPL_E_CORRUPT,
                                  "artifact '%s' is damaged: too many tensors or too long a name",
                                  artifact->path);
        return -1;
    }
    struct espl_artifact_entry *entry = espl_artifact_add_entry(artifact);
    if (entry == NULL) {
        visit->status =
            espl_fail(visit->err, ESPL_E_NOMEM, "out of memory for artifact '%s'", artifact->path);
        return -1;
    }
    (void)snprintf(entry->info.path, sizeof entry->info.path, "/%s", name);
    return 0;
}

static enum espl_status load_entries(struct espl_artifact *artifact, struct espl_error *err)
{
    struct visit visit = {.artifact = artifact, .status = ESPL_OK, .err = err};
    const herr_t visited =
        H5Ovisit(artifact->file, H5_INDEX_NAME, H5_ITER_NATIVE, visit_object, &visit);
    if (visit.status != ESPL_OK) {
        (void)H5Eclear2(H5E_DEFAULT);
        return visit.status;
    }
    if (visited < 0) {
        return espl_h5_fail(NULL, err, ESPL_E_CORRUPT, "artifact '%s' is damaged", artifact->path);
    }
    for (size_t i = 0; i < artifact->entry_count; i++) {
        struct espl_artifact_entry *entry = &artifact->entries[i];
        struct espl_error reason;
        espl_error_clear(&reason);
        const enum espl_status status = load_entry(artifact, entry, &reason);
        if (status != ESPL_OK) {
            return espl_fail(err, status, "artifact '%s' is damaged: tensor '%s': %s",
                             artifact->path, entry->info.path, reason.message);
        }
    }
    espl_artifact_sort_entries(artifact);
    const struct espl_kind *kind = espl_kind_find(artifact->kind);
    for (const char *const *path = kind->required; *path != NULL; path++) {
        if (espl_artifact_find(artifact, *path) == NULL) {
            return espl_fail(err, ESPL_E_CORRUPT, "artifact '%s' of kind '%s' has no tensor '%s'",
                             artifact->path, artifact->kind, *path);
        }
    }
    return ESPL_OK;
}

enum espl_status espl_artifact_open(const char *path, struct espl_artifact **out,
                                    struct espl_error *err)
{
    struct espl_artifact *artifact = espl_artifact_new(path);
    if (artifact == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for artifact '%s'", path);
    }
    enum espl_status status = open_descriptor(artifact, err);
    if (status != ESPL_OK) {
        goto failed;
    }
    artifact->file = espl_h5_open_stream(&artifact->stream, path, false);
    if (artifact->file < 0) {
        status = espl_h5_fail(&artifact->stream, err, ESPL_E_CORRUPT,
                              "artifact '%s' is damaged or truncated", path);
        goto failed;
    }
    status = load_attributes(artifact, err);
    if (status == ESPL_OK) {
        status = check_head(artifact, err);
    }
    if (status == ESPL_OK) {
        status = espl_h5_read_text(artifact->file, "/description", &artifact->description, err);
        if (status != ESPL_OK) {
            status = espl_fail(err, status == ESPL_E_NOMEM ? status : ESPL_E_CORRUPT,
                               "artifact '%s' is damaged: no description", path);
        }
    }
    if (status == ESPL_OK) {
        status = load_entries(artifact, err);
    }
    if (status == ESPL_OK) {
        *out = artifact;
        return ESPL_OK;
    }

failed:
    espl_artifact_free(artifact);
    return status;
}
