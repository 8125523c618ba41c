# Functions for tests/: belay_add_test() and belay_add_fuzz_target().
include(GoogleTest)
find_package(GTest REQUIRED CONFIG GLOBAL)

add_custom_target(belay_tsan_tests)   # the tests that ThreadSanitizer runs, and the plugins they load
add_custom_target(belay_fuzz_targets)

# belay_add_test(<name> SOURCES <files> [LINKS <libraries>] [LABELS <labels>] [PLUGINS <ids>] [TIMEOUT <seconds>])
#
# One program test_<name> with GoogleTest and Google Mock; each of its tests is a test of ctest, called
# <name>.<Suite>.<Test>, with the time limit (default 60 s; twice that, or ten times for ThreadSanitizer, in
# sanitizer builds) and the labels. PLUGINS are built before it runs. The label `tsan` puts it into the
# ThreadSanitizer run. Defined for the sources: BELAY_TEST_PLUGIN_DIR, where the plugins of the build are;
# BELAY_TEST_SOURCE_DIR, the calling folder; BELAY_TEST_ROOT, the source tree.
function(belay_add_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "SOURCES;LINKS;LABELS;PLUGINS")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_SOURCES)
    message(FATAL_ERROR "belay_add_test(${name}): want SOURCES, know no '${arg_UNPARSED_ARGUMENTS}'.")
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 60)
  endif()
  if(BELAY_SANITIZE MATCHES "thread")
    math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * 10")
  elseif(BELAY_SANITIZE)
    math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * 2")
  endif()
  add_executable(test_${name} ${arg_SOURCES})
  target_link_libraries(test_${name} PRIVATE ${arg_LINKS} belay::testing GTest::gmock_main)
  target_include_directories(test_${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(test_${name} PRIVATE
    BELAY_TEST_PLUGIN_DIR="${PROJECT_BINARY_DIR}/lib/belay/plugins"
    BELAY_TEST_SOURCE_DIR="${CMAKE_CURRENT_SOURCE_DIR}" BELAY_TEST_ROOT="${PROJECT_SOURCE_DIR}")
  # A test's own sources: mocks take long to optimise and longer to check for undefined behaviour, and run for a moment.
  target_compile_options(test_${name} PRIVATE -O0)
  if(BELAY_SANITIZE MATCHES "undefined")
    target_compile_options(test_${name} PRIVATE -fno-sanitize=undefined)
  endif()
  # Up to four files are compiled as one: what is slow is Google Mock and the mocks, which then are read and
  # instantiated once. Where sources use one name for different things, their folder sets UNITY_BUILD to OFF.
  # -Wsubobject-linkage takes for headers what is included there.
  target_compile_options(test_${name} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
  set_target_properties(test_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 4
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  list(TRANSFORM arg_PLUGINS PREPEND belay_plugin_)
  if(arg_PLUGINS)
    add_dependencies(test_${name} ${arg_PLUGINS})
  endif()
  if("tsan" IN_LIST arg_LABELS)
    add_dependencies(belay_tsan_tests test_${name})
  endif()
  gtest_discover_tests(test_${name} TEST_PREFIX ${name}. DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
    WORKING_DIRECTORY ${PROJECT_BINARY_DIR}/tests PROPERTIES TIMEOUT ${arg_TIMEOUT})
  # PROPERTIES above splits a list of labels, so ctest sets them after it has found the tests.
  set(labels ${CMAKE_CURRENT_BINARY_DIR}/test_${name}_labels.cmake)
  file(WRITE ${labels} "foreach(test IN LISTS test_${name}_TESTS)
  set_tests_properties(\${test} PROPERTIES LABELS \"${arg_LABELS}\")\nendforeach()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${labels})
endfunction()

# belay_add_fuzz_target(<name> SOURCES <files> [LINKS <libraries>] [CORPUS <folder>])
#
# In a fuzz build (preset `fuzz`) the libFuzzer program fuzz_<name>; in every other build a program that gives each
# file of the corpus (default: <name>/ in the calling folder) to LLVMFuzzerTestOneInput, run by ctest.
function(belay_add_fuzz_target name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "CORPUS" "SOURCES;LINKS")
  if(NOT arg_CORPUS)
    set(arg_CORPUS ${CMAKE_CURRENT_SOURCE_DIR}/${name})
  endif()
  if(NOT IS_DIRECTORY ${arg_CORPUS})
    message(FATAL_ERROR "belay_add_fuzz_target(${name}): the corpus ${arg_CORPUS} is no folder.")
  endif()
  add_executable(fuzz_${name} ${arg_SOURCES})
  target_link_libraries(fuzz_${name} PRIVATE ${arg_LINKS})
  set_target_properties(fuzz_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/fuzz)
  if(BELAY_FUZZ)
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    add_dependencies(belay_fuzz_targets fuzz_${name})
    file(WRITE ${PROJECT_BINARY_DIR}/fuzz/fuzz_${name}.corpus "${arg_CORPUS}\n") # tests/run.sh reads it
  else()
    target_sources(fuzz_${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests/fuzz/replay_main.cpp)
    add_test(NAME fuzz.${name} COMMAND fuzz_${name} ${arg_CORPUS})
    set_tests_properties(fuzz.${name} PROPERTIES TIMEOUT 120 LABELS fuzz)
  endif()
endfunction()
