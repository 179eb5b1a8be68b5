espl_unit_test(test_spmm_bench LINK espl_kernels)
espl_unit_test(test_spmm_cpu LINK espl_kernels)
