#include "cli/doctor.h"

#include "core/fs.h"
#include "core/units.h"

#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Magic numbers of statfs(2), as <linux/magic.h> lists them. */
static const struct {
    unsigned long magic;
    const char *name;
    bool network;
} file_systems[] = {
    {0xEF53, "ext4", false},      {0x58465342, "xfs", false},     {0x9123683E, "btrfs", false},
    {0x01021994, "tmpfs", false}, {0x794C7630, "overlay", false}, {0x2FC12FC1, "zfs", false},
    {0xF2F52010, "f2fs", false},  {0x6969, "nfs", true},          {0xFF534D42, "cifs", true},
    {0xFE534D42, "smb2", true},   {0x0BD00BD0, "lustre", true},   {0x47504653, "gpfs", true},
    {0x00C36400, "ceph", true},   {0x19830326, "beegfs", true},   {0x65735546, "fuse", true},
    {0x01021997, "9p", true},
};

/* The folder itself, or the nearest one above it that is there. */
static void nearest_folder(const char *path, char out[ESPL_PATH_MAX])
{
    (void)snprintf(out, ESPL_PATH_MAX, "%s", path);
    while (out[0] != '\0' && !espl_fs_is_dir(out)) {
        char *slash = strrchr(out, '/');
        if (slash == NULL) {
            (void)snprintf(out, ESPL_PATH_MAX, ".");
            return;
        }
        slash[slash == out ? 1 : 0] = '\0';
        if (slash == out) {
            return;
        }
    }
}

/* What a stage does when it publishes: write, fsync, rename, fsync the folder. */
static enum espl_status try_publish(const char *folder, struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    char name[64];
    (void)snprintf(name, sizeof name, ".espalier-doctor-%ld", (long)getpid());
    enum espl_status status = espl_fs_join(path, folder, name, err);
    if (status == ESPL_OK) {
        status = espl_fs_write_file(path, "doctor\n", 7, err);
    }
    if (status == ESPL_OK && unlink(path) != 0) {
        status = espl_fail(err, ESPL_E_IO, "cannot remove '%s'", path);
    }
    return status;
}

void espl_check_store(const struct espl_cli *cli, struct espl_check *check)
{
    char folder[ESPL_PATH_MAX];
    char free_text[ESPL_UNIT_TEXT];
    struct espl_error err = {0};
    struct statfs facts;
    uint64_t bytes = 0;
    nearest_folder(cli->store_dir, folder);
    if (statfs(folder, &facts) != 0 || espl_fs_free_bytes(folder, &bytes, &err) != ESPL_OK) {
        check->state = ESPL_CHECK_FAIL;
        (void)snprintf(check->facts, sizeof check->facts, "cannot read the file system of '%.300s'",
                       folder);
        return;
    }
    const char *name = "an unknown file system";
    bool network = false;
    for (size_t i = 0; i < sizeof file_systems / sizeof file_systems[0]; ++i) {
        if ((unsigned long)facts.f_type == file_systems[i].magic) {
            name = file_systems[i].name;
            network = file_systems[i].network;
        }
    }
    espl_print_size(bytes, free_text);
    if (try_publish(folder, &err) != ESPL_OK) {
        check->state = ESPL_CHECK_FAIL;
        (void)snprintf(check->facts, sizeof check->facts, "'%s' on %s: %.300s", cli->store_dir,
                       name, err.message);
        (void)snprintf(check->advice, sizeof check->advice,
                       "make the folder writable, or use --store on another disk");
        return;
    }
    check->state = network ? ESPL_CHECK_WARN : ESPL_CHECK_OK;
    (void)snprintf(check->facts, sizeof check->facts,
                   "%s%s on %s, rename and fsync tested, %s free", cli->store_dir,
                   espl_fs_is_dir(cli->store_dir) ? "" : " (not there yet)", name, free_text);
    if (network) {
        (void)snprintf(check->advice, sizeof check->advice,
                       "a network file system may keep neither locks nor fsync: prefer a local "
                       "disk for --store, and never run one job from two hosts at once");
    }
}
