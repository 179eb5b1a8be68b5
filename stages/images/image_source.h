/* Where the images stage takes its pictures from: a folder, an archive or idx files, behind one
 * interface. */
#ifndef ESPL_STAGES_IMAGE_SOURCE_H
#define ESPL_STAGES_IMAGE_SOURCE_H

#include "core/log.h"
#include "datasets/image_idx.h"
#include "datasets/image_list.h"
#include "stages/images/image_setup.h"

enum espl_image_form {
    ESPL_IMAGE_FOLDER,
    ESPL_IMAGE_ARCHIVE,
    ESPL_IMAGE_IDX,
    ESPL_IMAGE_CIFAR /* labels and pictures in one file; in memory like idx */
};

struct espl_image_source {
    enum espl_image_form form;
    const char *path;
    uint64_t count;
    uint64_t classes; /* 0 = no labels */
    /* folder, archive */
    struct espl_image_list *list;
    bool listed; /* classes are the labels of a list, not the folders */
    /* idx, cifar */
    char *picture_bytes, *label_bytes;
    struct espl_idx pictures, labels; /* labels.values NULL without */
};

/** By name: *.tar, *.zip, *.tar.xz and so on are archives, *.bin files of CIFAR-10, folders are
 *  folders, all else is idx. */
enum espl_image_form espl_image_form_of(const char *path);
/** Are the pictures all in one file, of the size that it says? */
bool espl_image_form_is_table(enum espl_image_form form);
/** "folder", "archive", "idx", "cifar" */
const char *espl_image_form_name(enum espl_image_form form);
/** JOB when labels or subset do not belong to the form. */
enum espl_status espl_image_source_check(const struct espl_image_params *params,
                                         struct espl_error *err);
/** Opens what the parameters name. Blames the parameter. */
enum espl_status espl_image_source_open(const struct espl_image_params *params,
                                        struct espl_image_source *source, struct espl_error *err);
/** Warns of links in an archive, which are not read, and of what makes labels mean other classes
 * than the user thinks: folders that hold no picture, so that they are not numbered, and folders of
 * another number than the model's classes. model_classes: 0 = not known. */
void espl_image_source_warn(const struct espl_image_source *source, uint64_t model_classes,
                            const struct espl_log *log);
/** Safe on a zeroed struct. */
void espl_image_source_close(struct espl_image_source *source);
/** -1 without labels. */
int32_t espl_image_source_label(const struct espl_image_source *source, uint64_t index);
/** Brings picture `index` to the asked size: out (size, size, channels). Errors name the picture.
 */
enum espl_status espl_image_source_fit(const struct espl_image_source *source, uint64_t index,
                                       const struct espl_picture_fit *fit, uint8_t *out,
                                       struct espl_error *err);

#endif
