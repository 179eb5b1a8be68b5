# Libraries, all through pkg-config. espl_dep_<name> is an interface target for each.
find_package(PkgConfig REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS C)
find_package(Threads REQUIRED)

set(ESPL_MISSING_PACKAGES "")

# espl_dependency(name debian-package module...): the first pkg-config module that is found wins.
function(espl_dependency name package)
    pkg_search_module(ESPL_${name} ${ARGN})
    if(NOT ESPL_${name}_FOUND)
        set(ESPL_MISSING_PACKAGES "${ESPL_MISSING_PACKAGES} ${package}" PARENT_SCOPE)
        return()
    endif()
    add_library(espl_dep_${name} INTERFACE)
    target_include_directories(espl_dep_${name} SYSTEM INTERFACE ${ESPL_${name}_INCLUDE_DIRS})
    if(STATIC_DEPS)
        espl_static_libraries(${name} libraries)
        target_link_libraries(espl_dep_${name} INTERFACE ${libraries})
    else()
        pkg_search_module(ESPL_${name} REQUIRED IMPORTED_TARGET ${ARGN})
        target_link_libraries(espl_dep_${name} INTERFACE PkgConfig::ESPL_${name})
    endif()
endfunction()

# Archives of a dependency and of what it needs, taken from `pkg-config --static`; libc's own parts and
# libraries that have no archive stay dynamic.
function(espl_static_libraries name out)
    set(result "")
    foreach(library IN LISTS ESPL_${name}_STATIC_LIBRARIES)
        find_library(ESPL_STATIC_${library} NAMES lib${library}.a
                     HINTS ${ESPL_${name}_STATIC_LIBRARY_DIRS} ${ESPL_${name}_LIBDIR})
        if(library MATCHES "^(c|m|dl|pthread|rt)$" OR NOT ESPL_STATIC_${library})
            list(APPEND result ${library})
        else()
            list(APPEND result ${ESPL_STATIC_${library}})
        endif()
    endforeach()
    set(${out} ${result} PARENT_SCOPE)
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
if(BUILD_TESTING)
    espl_dependency(cmocka libcmocka-dev cmocka)
endif()

if(ESPL_MISSING_PACKAGES)
    message(FATAL_ERROR "Missing libraries. Install them with:\n"
                        "    ./dev setup\nor\n    apt-get install${ESPL_MISSING_PACKAGES}")
endif()
