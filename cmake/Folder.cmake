# A source folder is one target whose headers are reachable only through that target.
#
# millrace_folder(<name> SOURCES a.cc ... DEPS <folder>... LIBS <imported target>...)
#
# The folder's headers are included as "<name>/x.h". They are found through a directory that holds nothing but
# a link to this one folder, so a file can include only what its target links: an upward include does not
# compile. tests/layering proves that.
function(millrace_folder name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;LIBS" ${ARGN})
  set(view ${CMAKE_BINARY_DIR}/include/${name})
  file(MAKE_DIRECTORY ${view})
  file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR} ${view}/${name} SYMBOLIC)
  set(target millrace_${name})
  add_library(${target} STATIC ${ARG_SOURCES})
  target_include_directories(${target} PUBLIC ${view})
  list(TRANSFORM ARG_DEPS PREPEND millrace_)
  target_link_libraries(${target} PUBLIC ${ARG_DEPS} ${ARG_LIBS})
  if(NOT name STREQUAL "kernels")  # its few includes are parsed once per instruction set anyway
    target_precompile_headers(${target} REUSE_FROM millrace_precompiled)
  endif()
endfunction()

# millrace_test(<binary> SOURCES x_test.cc ... LIBS <target>... [LABELS label...] [TIMEOUT seconds])
#
# One GoogleTest binary, one CTest entry. MILLRACE_SHARED_DIR and MILLRACE_SOURCE_DIR are defined for tests.
function(millrace_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LIBS;LABELS" ${ARGN})
  if(MILLRACE_FUZZ)
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE MILLRACE_SHARED_DIR="${MILLRACE_SHARED_DIR}"
                                             MILLRACE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  target_precompile_headers(${name} REUSE_FROM millrace_precompiled_tests)
  # The code under test is optimised as it is shipped; the tests themselves only cost time to optimise.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O0>)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
endfunction()
