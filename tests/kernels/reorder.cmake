espl_unit_test(test_row_reorder LINK espl_kernels TIMEOUT 300)
