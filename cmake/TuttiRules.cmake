# The few rules that the rooms, tools and tests are made with.

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
find_package(Threads REQUIRED)
find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
endif()

# Warnings are errors with the compilers that have built all of this. What others warn of they tell,
# and the build goes on: it is new to us, not to who only wants to use this.
set(compiler "${CMAKE_C_COMPILER_ID} ${CMAKE_C_COMPILER_VERSION}")
set(strict OFF)
if(compiler MATCHES "^(GNU 1[1-5]|Clang (1[4-9]|2[01]))\\.")
  set(strict ON)
endif()
option(TUTTI_WERROR "Warnings are errors (by default with compilers that were tried)" ${strict})
if(TUTTI_WERROR)
  set(TTI_WERROR -Werror)
else()
  set(TTI_WERROR)
  message(STATUS "Warnings are no errors: TUTTI_WERROR is off, as by default where a compiler was not tried; this is ${compiler}")
endif()

add_library(tti_flags INTERFACE)
target_compile_definitions(tti_flags INTERFACE _GNU_SOURCE)
target_compile_options(tti_flags INTERFACE
  -Wall -Wextra ${TTI_WERROR} -Wshadow -Wpointer-arith -Wwrite-strings -Wundef
  -Wvla -fno-strict-aliasing -fno-omit-frame-pointer
  $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes -Wmissing-prototypes>)
target_include_directories(tti_flags INTERFACE
  $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>)
# GCC clears and copies structures of some 70 bytes and more by `rep stos` and `rep movs`, which take the
# processor 20 ns or so before the first byte. Other compilers do not know the options.
include(CheckCCompilerFlag)
set(TTI_NO_REP -mmemset-strategy=vector_loop:256:noalign,libcall:-1:noalign
  -mmemcpy-strategy=vector_loop:256:noalign,libcall:-1:noalign)
check_c_compiler_flag("${TTI_NO_REP}" TTI_HAS_NO_REP)
if(TTI_HAS_NO_REP)
  target_compile_options(tti_flags INTERFACE "$<$<COMPILE_LANGUAGE:C>:${TTI_NO_REP}>")
endif()
target_link_libraries(tti_flags INTERFACE Threads::Threads)

if(TUTTI_SANITIZE STREQUAL "address")
  set(TTI_SANITIZER_FLAGS -fsanitize=address,undefined -fno-sanitize-recover=undefined)
elseif(TUTTI_SANITIZE STREQUAL "thread")
  set(TTI_SANITIZER_FLAGS -fsanitize=thread)
elseif(NOT TUTTI_SANITIZE STREQUAL "")
  message(FATAL_ERROR "TUTTI_SANITIZE is \"${TUTTI_SANITIZE}\"; expected address, thread or nothing")
endif()
if(TUTTI_FUZZ)
  if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "TUTTI_FUZZ needs clang (preset fuzz sets it)")
  endif()
  list(APPEND TTI_SANITIZER_FLAGS -fsanitize=fuzzer-no-link,address,undefined)
endif()
if(TTI_SANITIZER_FLAGS AND CMAKE_C_COMPILER_ID MATCHES "Clang")
  # Instrumented loops are not vectorised; here that is no reason to fail.
  target_compile_options(tti_flags INTERFACE -Wno-pass-failed)
  # The names that GCC has for it, which older versions of clang lack.
  if(TUTTI_SANITIZE STREQUAL "thread")
    target_compile_options(tti_flags INTERFACE -U__SANITIZE_THREAD__ -D__SANITIZE_THREAD__=1)
  else()
    # Whether a function is called by its type: told by C++'s part of the run-time, which programs in C
    # are not linked with.
    list(APPEND TTI_SANITIZER_FLAGS -fno-sanitize=function)
    target_compile_options(tti_flags INTERFACE -U__SANITIZE_ADDRESS__ -D__SANITIZE_ADDRESS__=1)
  endif()
endif()
if(TTI_SANITIZER_FLAGS)
  target_compile_options(tti_flags INTERFACE ${TTI_SANITIZER_FLAGS})
  target_link_options(tti_flags INTERFACE ${TTI_SANITIZER_FLAGS})
endif()
find_program(TTI_LLD ld.lld)
if(TTI_SANITIZER_FLAGS AND TTI_LLD AND CMAKE_C_COMPILER_ID MATCHES "Clang")
  # Sanitizers make programs large: this linker takes half as long for them.
  target_link_options(tti_flags INTERFACE -fuse-ld=lld)
endif()
if(TUTTI_SANITIZE STREQUAL "address")
  # What UBSan says at each check and ASan of each global is MB of data with 200,000 pointers in it: at a
  # fixed address the linker fills them in, else each process does as it starts.
  target_link_options(tti_flags INTERFACE
    $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-no-pie>)
endif()

# tti_room(name SOURCES ... LINKS ...): one room, a static library that sees only LINKS.
# cmake/TuttiInstall.cmake makes libtutti of the rooms up to coll.
function(tti_room name)
  cmake_parse_arguments(ROOM "" "" "SOURCES;LINKS" ${ARGN})
  add_library(tti_${name} STATIC ${ROOM_SOURCES})
  target_link_libraries(tti_${name} PUBLIC tti_flags ${ROOM_LINKS})
endfunction()

# tti_program(name SOURCES ... LINKS ... [PRIVATE]): a program in build/bin, installed unless it is
# PRIVATE to the build. The target `programs` builds them all. What tests/ makes is for tests only.
add_custom_target(programs)
function(tti_program name)
  cmake_parse_arguments(PROGRAM "PRIVATE" "" "SOURCES;LINKS" ${ARGN})
  add_executable(${name} ${PROGRAM_SOURCES})
  target_link_libraries(${name} PRIVATE tti_flags ${PROGRAM_LINKS})
  string(FIND ${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/tests at)
  if(at EQUAL 0)
    return()
  endif()
  add_dependencies(programs ${name})
  if(NOT PROGRAM_PRIVATE)
    install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endfunction()

# tti_test(name SOURCES ... LINKS ... [ARGS ...] [TIMEOUT s] [LABELS ...] [SERIAL]): a cmocka
# program, run by CTest. LINKS: the rooms under test.
function(tti_test name)
  cmake_parse_arguments(TEST "SERIAL" "TIMEOUT" "SOURCES;LINKS;ARGS;LABELS" ${ARGN})
  add_executable(${name} ${TEST_SOURCES})
  target_link_libraries(${name} PRIVATE tti_flags ${TEST_LINKS} PkgConfig::CMOCKA m)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name} ${TEST_ARGS})
  tti_test_properties(${name} "${TEST_TIMEOUT}" "${TEST_LABELS}" "${TEST_SERIAL}")
endfunction()

# tti_script_test(name COMMAND ... [TIMEOUT s] [LABELS ...] [SERIAL]): a script run by CTest; exit
# status 77 means skipped.
function(tti_script_test name)
  cmake_parse_arguments(TEST "SERIAL" "TIMEOUT" "COMMAND;LABELS" ${ARGN})
  add_test(NAME ${name} COMMAND ${TEST_COMMAND})
  tti_test_properties(${name} "${TEST_TIMEOUT}" "${TEST_LABELS}" "${TEST_SERIAL}")
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77)
  set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT "TUTTI_BIN=${CMAKE_BINARY_DIR}/bin"
    "TUTTI_BUILD=${CMAKE_BINARY_DIR}" "TUTTI_SOURCE=${CMAKE_SOURCE_DIR}")
endfunction()

function(tti_test_properties name timeout labels serial)
  # Against what hangs, unless more is asked for: far more than the slowest machine needs, whatever a
  # test takes on a fast one. With a sanitizer all takes several times as long: on a loaded machine of
  # two cores the reproducible mode among eight threads needs over 300 s.
  if(timeout STREQUAL "")
    set(timeout 300)
    if(TUTTI_SANITIZE)
      set(timeout 900)
    endif()
  endif()
  # no_tsan: ThreadSanitizer would see nothing more in it, and is slow; `./dev tsan`, which is the build
  # with clang, builds it and does not run it. The rooms of pure functions have no threads.
  if(CMAKE_CURRENT_SOURCE_DIR MATCHES "/tests/(plan|simulate|algorithms|topology)$")
    list(APPEND labels no_tsan)
  endif()
  # What tutti-tune once wrote on this machine must not choose for the tests. PROCESSORS counts quarters
  # of a core (./dev runs some more than four such places a core).
  set_tests_properties(${name} PROPERTIES TIMEOUT ${timeout} LABELS "${labels}" PROCESSORS 4
    ENVIRONMENT TUTTI_TUNING=off)
  if(serial)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
  endif()
endfunction()

# tti_tests_sleep(name...): tests that wait for clocks and peers more than they compute; more of them
# run at a time.
function(tti_tests_sleep)
  set_tests_properties(${ARGN} PROPERTIES PROCESSORS 1)
endfunction()

# tti_tests_take(seconds name...): about so long; the longest begin first, so that none runs alone at
# the end.
function(tti_tests_take seconds)
  set_tests_properties(${ARGN} PROPERTIES COST ${seconds})
endfunction()

# tti_fuzzer(name SOURCES ... LINKS ...): LLVMFuzzerTestOneInput over one parser. With TUTTI_FUZZ a
# libFuzzer program; otherwise a program that replays tests/fuzz/corpus/<name>, run by CTest. The
# target `fuzzers` builds them all, in build/fuzzers.
add_custom_target(fuzzers)
function(tti_fuzzer name)
  cmake_parse_arguments(FUZZ "" "" "SOURCES;LINKS" ${ARGN})
  if(TUTTI_FUZZ)
    add_executable(${name} ${FUZZ_SOURCES})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  else()
    add_executable(${name} ${FUZZ_SOURCES} ${CMAKE_SOURCE_DIR}/tests/fuzz/replay.c)
    add_test(NAME ${name} COMMAND ${name} ${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/${name})
    tti_test_properties(${name} "" fuzz "")
  endif()
  target_link_libraries(${name} PRIVATE tti_flags ${FUZZ_LINKS})
  add_dependencies(fuzzers ${name})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzzers)
endfunction()
