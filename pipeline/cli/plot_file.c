#include "cli/plot_file.h"

#include "core/fs.h"

enum espl_status espl_plot_write(const char *folder, const char *file, struct espl_buf *content,
                                 struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    enum espl_status status = espl_buf_check(content, file, err);
    if (status == ESPL_OK) {
        status = espl_fs_join(path, folder, file, err);
    }
    if (status == ESPL_OK) {
        status = espl_fs_write_file(path, content->data, content->len, err);
    }
    espl_buf_reset(content);
    return status;
}
