espl_unit_test(test_dense_device LINK espl_kernels SOURCES iebme_fixture.c)
espl_unit_test(test_cuda_blas LINK espl_kernels SOURCES cuda_arrays.c LABELS gpu)
espl_unit_test(test_cuda_spmm LINK espl_kernels SOURCES cuda_load.c cuda_product.c iebme_fixture.c
               LABELS gpu TIMEOUT 300)
espl_unit_test(test_cuda_atom LINK espl_kernels
               SOURCES cuda_arrays.c cuda_atom_fixture.c cuda_load.c iebme_fixture.c LABELS gpu TIMEOUT 300)
espl_unit_test(test_cuda_quantize LINK espl_kernels
               SOURCES cuda_arrays.c cuda_atom_fixture.c iebme_fixture.c LABELS gpu TIMEOUT 300)
espl_unit_test(test_cuda_decode LINK espl_kernels
               SOURCES cuda_arrays.c cuda_atom_fixture.c iebme_fixture.c LABELS gpu TIMEOUT 300)
espl_unit_test(test_cuda_attention LINK espl_kernels
               SOURCES cuda_arrays.c cuda_atom_fixture.c iebme_fixture.c LABELS gpu TIMEOUT 300)
espl_unit_test(test_cuda_vision LINK espl_kernels m SOURCES cuda_arrays.c cuda_vision_fixture.c
               LABELS gpu TIMEOUT 300)
if(CMAKE_CUDA_COMPILER)
    # Skipped without cuobjdump.
    add_test(NAME cuda-sass COMMAND ${PROJECT_SOURCE_DIR}/kernels/cuda/check_sass.sh
             $<TARGET_FILE:espl_kernels>)
    set_tests_properties(cuda-sass PROPERTIES LABELS gpu SKIP_RETURN_CODE 77 TIMEOUT 300)
endif()
