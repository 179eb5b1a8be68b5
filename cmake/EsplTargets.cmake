# One static library per folder: every .c file in the folder belongs to it.

# espl_library(name folder LINK ...)
function(espl_library name folder)
    cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
    file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.c)
    if(NOT sources)
        add_library(espl_${name} INTERFACE)
        target_link_libraries(espl_${name} INTERFACE ${ARG_LINK} espl_flags)
        return()
    endif()
    add_library(espl_${name} STATIC ${sources})
    target_link_libraries(espl_${name} PUBLIC ${ARG_LINK} espl_flags Threads::Threads)
endfunction()

# Stages: a folder each, all .c files of it, and the registry.
function(espl_stages_library)
    cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
    include(${PROJECT_SOURCE_DIR}/stages/CMakeLists.txt) # sets ESPL_STAGE_FOLDERS
    set(sources ${PROJECT_SOURCE_DIR}/stages/registry.c)
    foreach(stage IN LISTS ESPL_STAGE_FOLDERS)
        file(GLOB stage_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/stages/${stage}/*.c)
        list(APPEND sources ${stage_sources})
    endforeach()
    add_library(espl_stages STATIC ${sources})
    target_link_libraries(espl_stages PUBLIC ${ARG_LINK} espl_flags)
endfunction()

# Kernels: reference, CPU and, when there is a CUDA compiler, CUDA. They need only the error type of
# pipeline/core, so they can be built and used alone.
function(espl_kernels_library)
    file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/*.c
         ${PROJECT_SOURCE_DIR}/kernels/ref/*.c ${PROJECT_SOURCE_DIR}/kernels/cpu/*.c
         ${PROJECT_SOURCE_DIR}/kernels/bench/*.c ${PROJECT_SOURCE_DIR}/kernels/formats/*.c)
    file(GLOB cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/cuda/*.cu)
    if(NOT sources)
        add_library(espl_kernels INTERFACE)
        target_link_libraries(espl_kernels INTERFACE espl_flags espl_core)
        return()
    endif()
    add_library(espl_kernels STATIC ${sources})
    file(GLOB cpu_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/cpu/*.c
         ${PROJECT_SOURCE_DIR}/kernels/formats/*.c)
    # Loops of the CPU backend and the formats are written for the vectoriser; comparisons that may
    # not trap become vector selects.
    set_source_files_properties(${cpu_sources} PROPERTIES
                                COMPILE_OPTIONS "-O3;-fno-trapping-math")
    target_link_libraries(espl_kernels PUBLIC espl_flags espl_core espl_dep_openblas
                          OpenMP::OpenMP_C m)
    if(CMAKE_CUDA_COMPILER AND cuda_sources)
        target_sources(espl_kernels PRIVATE ${cuda_sources})
        # Keeps libstdc++ out: see docs/building.md.
        target_compile_options(espl_kernels PRIVATE
            $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-fno-exceptions,-fno-rtti,-fno-threadsafe-statics>)
        target_compile_definitions(espl_kernels PUBLIC ESPL_WITH_CUDA=1)
        target_link_libraries(espl_kernels PUBLIC CUDA::cudart_static)
        set_target_properties(espl_kernels PROPERTIES CUDA_RUNTIME_LIBRARY Static)
    endif()
endfunction()
