/* The epilogue of N:M products for the backends in host memory. */
#ifndef ESPL_KERNELS_NM_EPILOGUE_H
#define ESPL_KERNELS_NM_EPILOGUE_H

#include "espalier/nm_pack.h"

/** Stores the output of one sum at y[token * rows + row]. */
void espl_nm_store(const struct espl_nm_epilogue *epilogue, size_t rows, size_t token, size_t row,
                   int32_t sum, void *y);

#endif
