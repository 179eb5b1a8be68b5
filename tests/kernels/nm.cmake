espl_unit_test(test_nm_pack LINK espl_kernels SOURCES nm_fixture.c)
