espl_unit_test(test_kernels LINK espl_kernels SOURCES kernel_oracle.c)
