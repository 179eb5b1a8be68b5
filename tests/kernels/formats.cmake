foreach(name IN ITEMS test_iebme test_iebme_mutation test_iebme_sizes test_iebme_device test_peers
        test_spmm test_format_table)
    espl_unit_test(${name} LINK espl_kernels SOURCES iebme_fixture.c)
endforeach()
