# Headers that most files include, parsed once: millrace_precompiled for the folders, millrace_precompiled_tests for
# test binaries. Sources still include what they use; nothing depends on these lists.
set(MILLRACE_PRECOMPILED_HEADERS
  <algorithm> <array> <atomic> <bit> <chrono> <cmath> <cstddef> <cstdint> <cstring> <filesystem> <functional> <map>
  <memory> <mutex> <optional> <span> <string> <string_view> <thread> <tuple> <unordered_map> <utility> <variant>
  <vector> <fmt/format.h>)

set(empty_source ${CMAKE_BINARY_DIR}/precompiled.cc)
file(CONFIGURE OUTPUT ${empty_source} CONTENT "// Only its precompiled header is used.\n")

add_library(millrace_precompiled OBJECT ${empty_source})
target_link_libraries(millrace_precompiled PRIVATE fmt::fmt)
target_precompile_headers(millrace_precompiled PRIVATE ${MILLRACE_PRECOMPILED_HEADERS})

if(NOT MILLRACE_FUZZ)
  add_library(millrace_precompiled_tests OBJECT ${empty_source})
  target_link_libraries(millrace_precompiled_tests PRIVATE fmt::fmt GTest::gmock GTest::gtest)
  target_compile_options(millrace_precompiled_tests PRIVATE $<$<CONFIG:Release>:-O0>)
  target_precompile_headers(millrace_precompiled_tests PRIVATE ${MILLRACE_PRECOMPILED_HEADERS} <gmock/gmock.h>
                                                               <gtest/gtest.h>)
endif()
