/* libFuzzer target: the text that names some pictures of a folder (`list:` of the images stage).
 * What is accepted keeps pictures of the folder alone, each once and with a class in range. */
#include "datasets/image_list.h"
#include "memory_folder.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_ENTRIES = 16, MOST_BYTES = 1 << 16 };

static const char *const pictures[] = {"cat/1.png", "cat/2.png", "dog/1.png", "dog/a b.png"};
enum { PICTURES = sizeof pictures / sizeof pictures[0] };

static void require(bool condition)
{
    if (!condition) {
        abort();
    }
}

static void make_pictures(const char *folder)
{
    static bool made;
    for (size_t i = 0; !made && i < PICTURES; i++) {
        char path[ESPL_PATH_MAX];
        require(espl_fs_join(path, folder, pictures[i], NULL) == ESPL_OK);
        *strrchr(path, '/') = '\0';
        require(espl_fs_make_dirs(path, NULL) == ESPL_OK);
        require(espl_fs_join(path, folder, pictures[i], NULL) == ESPL_OK);
        require(espl_fs_write_file(path, "x", 1, NULL) == ESPL_OK);
    }
    made = true;
}

static void check_kept(const struct espl_image_list *list)
{
    const size_t count = espl_image_list_count(list);
    require(count > 0 && count <= PICTURES);
    for (size_t i = 0; i < count; i++) {
        const char *const name = espl_image_list_name(list, i);
        const int32_t label = espl_image_list_class(list, i);
        size_t known = 0;
        for (size_t p = 0; p < PICTURES; p++) {
            known += strcmp(name, pictures[p]) == 0 ? 1 : 0;
        }
        require(known == 1);
        require(i == 0 || strcmp(espl_image_list_name(list, i - 1), name) < 0);
        require(label >= 0 && (size_t)label < espl_image_list_classes(list));
        require(espl_image_list_class_name(list, (size_t)label) != NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct espl_archive_limits limits = {MOST_ENTRIES, MOST_BYTES, MOST_BYTES};
    struct espl_image_list *list = NULL;
    make_pictures(memory_folder());
    require(espl_image_list_open(memory_folder(), NULL, &limits, MOST_BYTES, &list, NULL) ==
            ESPL_OK);
    /* An exact copy, so that an access behind the end is seen. A NUL ends a text: what a file holds
     * behind one is refused before. */
    char *const text = malloc(size + 1);
    if (text != NULL) {
        if (size > 0) {
            memcpy(text, data, size);
        }
        text[size] = '\0';
        if (espl_image_list_keep(list, text, NULL) == ESPL_OK) {
            check_kept(list);
        }
        free(text);
    }
    espl_image_list_close(list);
    return 0;
}
