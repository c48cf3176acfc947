# How tests are run: one that takes longer than its TIMEOUT is told of by its processes' stacks, and ended. What ctest
# would do itself, without a word, is left for the case that this cannot be done.
function(stasis_add_test name timeout)
  add_test(NAME ${name} COMMAND ${Python3_EXECUTABLE} -IS ${CMAKE_SOURCE_DIR}/tests/harness/hung.py --limit ${timeout}
    ${ARGN})
  math(EXPR limit "${timeout} + 120")
  set_tests_properties(${name} PROPERTIES TIMEOUT ${limit})
endfunction()

# stasis_test(NAME SOURCES ... LIBS ... [LABELS ...] [TIMEOUT s]): one GoogleTest binary, registered as one ctest case.
function(stasis_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LIBS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  if(STASIS_ASAN OR STASIS_TSAN OR STASIS_FUZZ)
    # What is looked at is the code under test; optimising the instrumented tests themselves takes most of the build.
    target_compile_options(${name} PRIVATE -O0)
  endif()
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} GTest::gtest GTest::gmock GTest::gtest_main Threads::Threads)
  stasis_add_test(${name} ${ARG_TIMEOUT} $<TARGET_FILE:${name}>)
  set_tests_properties(${name} PROPERTIES LABELS "unit;${ARG_LABELS}")
  if(STASIS_TSAN AND "rpc" IN_LIST ARG_LABELS)
    # gRPC, which is not instrumented, orders accesses that ThreadSanitizer then takes for races: not run there.
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endfunction()

# Tests that close the driver and open it again by dlopen(3): what the closed copy still held cannot be traced, since its
# pointers went with its data, so nothing is said about leaks.
function(stasis_reopens_driver)
  foreach(name ${ARGN})
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT "ASAN_OPTIONS=detect_leaks=0:strict_string_checks=1")
  endforeach()
endfunction()

# stasis_fuzzer(NAME SOURCES ... LIBS ... CORPUS dir): a libFuzzer binary in the fuzz preset; in every other preset the
# same entry point is built with a small driver that replays the corpus, so that the corpus never rots.
set(STASIS_FUZZ_SECONDS 15 CACHE STRING "How long each fuzz target runs in ctest")
function(stasis_fuzzer name)
  cmake_parse_arguments(ARG "" "CORPUS" "SOURCES;LIBS" ${ARGN})
  if(STASIS_FUZZ)
    add_executable(${name} ${ARG_SOURCES})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  else()
    add_executable(${name} ${ARG_SOURCES} ${CMAKE_SOURCE_DIR}/tests/fuzz/replay_main.cc)
  endif()
  target_link_libraries(${name} PRIVATE ${ARG_LIBS})
  if(STASIS_FUZZ)
    stasis_add_test(${name} 600 $<TARGET_FILE:${name}> -max_total_time=${STASIS_FUZZ_SECONDS} -timeout=10
      -rss_limit_mb=2048 -max_len=65536 ${CMAKE_BINARY_DIR}/fuzz/${name} ${ARG_CORPUS})
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz/${name})
    # It does nothing but compute, where twice as many tests run at once as there are processors.
    set_tests_properties(${name} PROPERTIES LABELS "fuzz" PROCESSORS 2)
  else()
    stasis_add_test(${name}_corpus 120 $<TARGET_FILE:${name}> ${ARG_CORPUS})
    set_tests_properties(${name}_corpus PROPERTIES LABELS "unit;fuzz-corpus")
  endif()
endfunction()
