/* Gives a root attribute of an HDF5 file another text, for tests of damaged and foreign artifacts.
 *
 *   artifact_edit FILE NAME TEXT */
#include <hdf5.h>

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    if (argc != 4) {
        fputs("usage: artifact_edit FILE NAME TEXT\n", stderr);
        return 2;
    }
    const hid_t file = H5Fopen(argv[1], H5F_ACC_RDWR, H5P_DEFAULT);
    const hid_t old = H5Aopen(file, argv[2], H5P_DEFAULT);
    if (file < 0 || old < 0) {
        fprintf(stderr, "cannot open '%s' or its attribute '%s'\n", argv[1], argv[2]);
        return 1;
    }
    const hid_t old_type = H5Aget_type(old);
    const hid_t type = H5Tcopy(old_type); /* the one in the file is read-only */
    const hid_t space = H5Aget_space(old);
    const htri_t variable = H5Tis_variable_str(type);
    if (variable <= 0) {
        (void)H5Tset_size(type, strlen(argv[3]));
    }
    (void)H5Aclose(old);
    (void)H5Adelete(file, argv[2]);
    const hid_t attribute = H5Acreate2(file, argv[2], type, space, H5P_DEFAULT, H5P_DEFAULT);
    const char *text = argv[3];
    const herr_t written =
        variable > 0 ? H5Awrite(attribute, type, &text) : H5Awrite(attribute, type, text);
    (void)H5Aclose(attribute);
    (void)H5Sclose(space);
    (void)H5Tclose(type);
    (void)H5Tclose(old_type);
    return H5Fclose(file) < 0 || written < 0 ? 1 : 0;
}
