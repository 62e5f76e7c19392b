# The released tokenizer.json for tests. It is not in the repository; the test fetch_tokenizer gets it once per
# build tree and is skipped when the npm registry cannot be reached.
include_guard(GLOBAL)

set(MILLRACE_TOKENIZER_DIR "${CMAKE_BINARY_DIR}/released-tokenizer" CACHE PATH
    "Directory of the released tokenizer.json, filled by scripts/fetch-tokenizer when a test needs it")

if(NOT MILLRACE_FUZZ)
  add_test(NAME fetch_tokenizer COMMAND ${CMAKE_SOURCE_DIR}/scripts/fetch-tokenizer ${MILLRACE_TOKENIZER_DIR})
  set_tests_properties(fetch_tokenizer PROPERTIES
    FIXTURES_SETUP released_tokenizer SKIP_RETURN_CODE 3 TIMEOUT 300)
endif()

# millrace_use_released_tokenizer(<test>...): runs the tests after the fetch, with MILLRACE_TOKENIZER_DIR defined.
# They skip, naming the directory, when it holds no tokenizer.json.
function(millrace_use_released_tokenizer)
  if(MILLRACE_FUZZ)
    return()
  endif()
  foreach(name IN LISTS ARGN)
    target_compile_definitions(${name} PRIVATE MILLRACE_TOKENIZER_DIR="${MILLRACE_TOKENIZER_DIR}")
    set_tests_properties(${name} PROPERTIES FIXTURES_REQUIRED released_tokenizer)
  endforeach()
endfunction()
