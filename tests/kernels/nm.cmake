espl_unit_test(test_nm_pack LINK espl_kernels SOURCES nm_fixture.c)
espl_unit_test(test_nm_spmm LINK espl_kernels m SOURCES nm_fixture.c)
espl_unit_test(test_cuda_nm LINK espl_kernels SOURCES cuda_arrays.c cuda_nm_product.c nm_fixture.c
               LABELS gpu TIMEOUT 300)
espl_unit_test(test_cuda_nm_large LINK espl_kernels Threads::Threads
               SOURCES cuda_arrays.c cuda_nm_product.c nm_fixture.c LABELS gpu TIMEOUT 300)
