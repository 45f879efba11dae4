# The rules that every target of the project follows, said once.

# What the sanitizer builds build: unit tests, those of them that run threads, fuzzers.
add_custom_target(unit_tests)
add_custom_target(thread_tests)
add_custom_target(fuzzers)

# softhca_options(TARGET): warnings as errors, the project's include root, the chosen sanitizer.
function(softhca_options target)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_options(${target} PRIVATE -Wall -Wextra -Werror)
  if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # A class private to one file looks like a header's to the compiler once files are joined.
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  endif()
  # libibverbs gives back its own structure, which begins an object of ours: GCC and Clang define offsetof there.
  target_compile_options(${target} PRIVATE -Wno-invalid-offsetof)
  if(SOFTHCA_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${SOFTHCA_SANITIZE} -fno-omit-frame-pointer
                                             -fno-sanitize-recover=all)
    # The check of virtual tables opens a pipe, and takes it for a finding when a test leaves no descriptors.
    target_compile_options(${target} PRIVATE -fno-sanitize=vptr)
    target_link_options(${target} PRIVATE -fsanitize=${SOFTHCA_SANITIZE})
  endif()
endfunction()

# softhca_fuzzed(): the libraries of this folder are what fuzzers and seeded simulations run for long. In the
# sanitizer builds they are optimised, and tell the fuzzers which branches an input took.
macro(softhca_fuzzed)
  if(SOFTHCA_SANITIZE)
    add_compile_options(-O1)
  endif()
  if(SOFTHCA_FUZZ)
    add_compile_options(-fsanitize=fuzzer-no-link)
  endif()
endmacro()

# softhca_hot(): the libraries of this folder are on the way of every message. The release build keeps them in a form
# that the linker can optimise across files, beside the usual one, for the programs of softhca_link_hot().
set(SOFTHCA_LTO "")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo" AND NOT SOFTHCA_SANITIZE)
  set(SOFTHCA_LTO -flto=auto)
  add_link_options($<$<NOT:$<BOOL:$<TARGET_PROPERTY:SOFTHCA_HOT>>>:-fno-lto>)
endif()
macro(softhca_hot)
  if(SOFTHCA_LTO)
    add_compile_options(${SOFTHCA_LTO} -ffat-lto-objects)
  endif()
endmacro()
function(softhca_link_hot target)
  if(SOFTHCA_LTO)
    set_target_properties(${target} PROPERTIES SOFTHCA_HOT ON)
    target_link_options(${target} PRIVATE ${SOFTHCA_LTO})
  endif()
endfunction()

# softhca_library(NAME SOURCES... [DEPENDS libs...] [NO_UNITY]): a static library of the project. The sanitizer builds
# join its files into few, so that names private to a file are its own within the library; NO_UNITY: they are not.
function(softhca_library name)
  cmake_parse_arguments(arg "NO_UNITY" "" "DEPENDS" ${ARGN})
  add_library(${name} STATIC ${arg_UNPARSED_ARGUMENTS})
  softhca_options(${name})
  target_link_libraries(${name} PUBLIC ${arg_DEPENDS})
  if(arg_NO_UNITY)
    set_target_properties(${name} PROPERTIES UNITY_BUILD OFF)
  endif()
endfunction()

# softhca_test(NAME SOURCES... [DEPENDS libs...] [LABELS labels...]): a GoogleTest program, run as one
# ctest entry; its cases are named in its own output. LABELS threads: it runs under ThreadSanitizer too.
function(softhca_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "DEPENDS;LABELS" ${ARGN})
  add_executable(${name} ${arg_UNPARSED_ARGUMENTS})
  softhca_options(${name})
  target_link_libraries(${name} PRIVATE ${arg_DEPENDS} GTest::gtest GTest::gmock GTest::gtest_main Threads::Threads)
  add_test(NAME ${name} COMMAND ${name})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT})
  add_dependencies(unit_tests ${name})
  if("threads" IN_LIST arg_LABELS)
    add_dependencies(thread_tests ${name})
  endif()
endfunction()

# softhca_fuzzer(NAME SOURCES... [DEPENDS libs...]): a libFuzzer program, built with SOFTHCA_FUZZ only, as part
# of the target `fuzzers`. NAME begins with fuzz_.
function(softhca_fuzzer name)
  if(NOT SOFTHCA_FUZZ)
    return()
  endif()
  cmake_parse_arguments(arg "" "" "DEPENDS" ${ARGN})
  add_executable(${name} EXCLUDE_FROM_ALL ${arg_UNPARSED_ARGUMENTS})
  softhca_options(${name})
  target_link_libraries(${name} PRIVATE ${arg_DEPENDS})
  target_compile_options(${name} PRIVATE -O1 -fsanitize=fuzzer-no-link)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  add_dependencies(fuzzers ${name})
endfunction()
