#include "kernels/cuda_library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { MOST_FILE = 64 };

static void *open_any(const char *name)
{
    static const char *const endings[] = {".13", ".12", ""};
    void *library = NULL;
    for (size_t i = 0; library == NULL && i < sizeof endings / sizeof endings[0]; i++) {
        char file[MOST_FILE];
        (void)snprintf(file, sizeof file, "lib%s.so%s", name, endings[i]);
        library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    }
    return library;
}

enum espl_status espl_cuda_library_open(const char *name, const char *title,
                                        const struct espl_cuda_symbol *symbols, size_t count,
                                        void **library, struct espl_error *err)
{
    *library = open_any(name);
    if (*library == NULL) {
        espl_fail(err, ESPL_E_UNSUPPORTED, "lib%s.so.13 is not on this machine", name);
        return espl_hint(err, "install cuBLAS (package libcublas of the CUDA toolkit), or name its "
                              "folder in LD_LIBRARY_PATH");
    }
    for (size_t i = 0; i < count; i++) {
        void *symbol = dlsym(*library, symbols[i].name);
        if (symbol == NULL) {
            return espl_fail(err, ESPL_E_UNSUPPORTED, "this machine's %s has no %s", title,
                             symbols[i].name);
        }
        /* C has no cast from object to function pointers. */
        memcpy(symbols[i].function, &symbol, sizeof symbol);
    }
    return ESPL_OK;
}
