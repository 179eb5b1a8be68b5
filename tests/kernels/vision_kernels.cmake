espl_unit_test(test_vision_kernels LINK espl_kernels m)
