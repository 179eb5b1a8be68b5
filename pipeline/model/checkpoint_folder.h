/* A folder that appears whole or not at all: written beside its final place, then renamed. */
#ifndef ESPL_MODEL_CHECKPOINT_FOLDER_H
#define ESPL_MODEL_CHECKPOINT_FOLDER_H

#include "core/error.h"
#include "core/fs.h"

struct espl_checkpoint_folder {
    char path[ESPL_PATH_MAX];      /* where it will be */
    char temporary[ESPL_PATH_MAX]; /* write here; "" once published or abandoned */
};

/** Creates the parent folders and an empty temporary folder, and removes temporary folders of the
 * same target whose process is gone. Errors: IO, NOSPACE, KIND (path is a file). */
enum espl_status espl_checkpoint_folder_begin(const char *path,
                                              struct espl_checkpoint_folder *folder,
                                              struct espl_error *err);
/** Makes all that was written durable and puts it in place. A folder that is there is exchanged in
 * one step and then deleted: whether it may be replaced is the caller's decision, before. On
 * failure the temporary folder is deleted. */
enum espl_status espl_checkpoint_folder_publish(struct espl_checkpoint_folder *folder,
                                                struct espl_error *err);
/** Deletes the temporary folder, if there is one. */
void espl_checkpoint_folder_abandon(struct espl_checkpoint_folder *folder);

#endif
