espl_unit_test(test_nm_pack LINK espl_kernels SOURCES nm_fixture.c)
espl_unit_test(test_nm_spmm LINK espl_kernels m SOURCES nm_fixture.c)
