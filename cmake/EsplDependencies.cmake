# Libraries, all through pkg-config. espl_dep_<name> is an interface target for each.
find_package(PkgConfig REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS C)
if(ESPL_ANALYZE)
    # gcc 12 reports every variable that a parallel region copies as uninitialised, so the analysed
    # build has no OpenMP; EsplFlags.cmake allows what only pragmas use.
    set_property(TARGET OpenMP::OpenMP_C PROPERTY INTERFACE_COMPILE_OPTIONS "")
endif()
find_package(Threads REQUIRED)

set(ESPL_MISSING_PACKAGES "")

# espl_dependency(name debian-package module...): the first pkg-config module that is found wins.
# cmocka stays shared: distributions have no archive of it, and tests are not carried.
function(espl_dependency name package)
    pkg_search_module(ESPL_${name} ${ARGN})
    if(NOT ESPL_${name}_FOUND)
        set(ESPL_MISSING_PACKAGES "${ESPL_MISSING_PACKAGES} ${package}" PARENT_SCOPE)
        return()
    endif()
    add_library(espl_dep_${name} INTERFACE)
    target_include_directories(espl_dep_${name} SYSTEM INTERFACE ${ESPL_${name}_INCLUDE_DIRS})
    if(STATIC_DEPS AND NOT name STREQUAL cmocka)
        espl_static_libraries(${name} libraries)
        target_link_libraries(espl_dep_${name} INTERFACE ${libraries})
    else()
        pkg_search_module(ESPL_${name} REQUIRED IMPORTED_TARGET ${ARGN})
        target_link_libraries(espl_dep_${name} INTERFACE PkgConfig::ESPL_${name})
    endif()
endfunction()

# Archives of a dependency and of what it needs. pkg-config knows most of that; what it does not say is
# given here. libc's own parts stay dynamic: the bundle runs on any Linux with the same or a newer glibc.
set(ESPL_STATIC_EXTRA_hdf5 sz aec z)
set(ESPL_STATIC_EXTRA_openblas gfortran quadmath)
set(ESPL_STATIC_EXTRA_archive nettle acl lzma zstd lz4 bz2 z xml2 icuuc icudata)
function(espl_static_libraries name out)
    set(result "")
    foreach(library IN LISTS ESPL_${name}_STATIC_LIBRARIES ESPL_STATIC_EXTRA_${name})
        if(library MATCHES "^(c|m|dl|pthread|rt)$")
            list(APPEND result ${library})
            continue()
        endif()
        execute_process(COMMAND ${CMAKE_C_COMPILER} -print-file-name=lib${library}.a
                        OUTPUT_VARIABLE from_compiler OUTPUT_STRIP_TRAILING_WHITESPACE)
        get_filename_component(compiler_dir "${from_compiler}" DIRECTORY)
        find_library(ESPL_STATIC_${library} NAMES lib${library}.a
                     HINTS ${ESPL_${name}_STATIC_LIBRARY_DIRS} ${ESPL_${name}_LIBDIR} "${compiler_dir}")
        if(ESPL_STATIC_${library})
            list(APPEND result ${ESPL_STATIC_${library}})
        else()
            set_property(GLOBAL APPEND PROPERTY ESPL_MISSING_ARCHIVES lib${library}.a)
        endif()
    endforeach()
    # Archives refer to each other in circles (OpenBLAS and libgfortran, HDF5 and szip).
    set(${out} -Wl,--start-group ${result} -Wl,--end-group PARENT_SCOPE)
endfunction()

espl_dependency(crypto libssl-dev libcrypto)
espl_dependency(hdf5 libhdf5-dev hdf5-serial hdf5)
espl_dependency(jansson libjansson-dev jansson)
espl_dependency(openblas libopenblas-openmp-dev openblas)
espl_dependency(yaml libyaml-dev yaml-0.1)
espl_dependency(sqlite libsqlite3-dev sqlite3)
espl_dependency(pcre2 libpcre2-dev libpcre2-8)
espl_dependency(utf8proc libutf8proc-dev libutf8proc)
espl_dependency(archive libarchive-dev libarchive)
espl_dependency(jpeg libjpeg-dev libjpeg)
espl_dependency(png libpng-dev libpng)
if(NOT STATIC_DEPS)
    espl_dependency(curl libcurl4-openssl-dev libcurl)
endif()
if(BUILD_TESTING)
    espl_dependency(cmocka libcmocka-dev cmocka)
endif()

if(ESPL_MISSING_PACKAGES)
    message(FATAL_ERROR "Missing libraries. Install them with:\n"
                        "    ./dev setup\nor\n    apt-get install${ESPL_MISSING_PACKAGES}")
endif()
get_property(missing_archives GLOBAL PROPERTY ESPL_MISSING_ARCHIVES)
list(REMOVE_DUPLICATES missing_archives)
if(STATIC_DEPS AND missing_archives)
    message(FATAL_ERROR "STATIC_DEPS=ON, but these archives are missing: ${missing_archives}\n"
                        "On Debian and Ubuntu: apt-get install libacl1-dev libzstd-dev liblz4-dev "
                        "libbz2-dev liblzma-dev libxml2-dev nettle-dev libaec-dev zlib1g-dev libicu-dev")
endif()
if(STATIC_DEPS)
    # libgomp and libgcc too, so that only libc and libm are needed at run time.
    execute_process(COMMAND ${CMAKE_C_COMPILER} -print-file-name=libgomp.a
                    OUTPUT_VARIABLE ESPL_STATIC_GOMP_FILE OUTPUT_STRIP_TRAILING_WHITESPACE)
    set_property(TARGET OpenMP::OpenMP_C PROPERTY INTERFACE_LINK_LIBRARIES
                 ${ESPL_STATIC_GOMP_FILE} -static-libgcc -Wl,--gc-sections dl pthread)
endif()
