# fake_cuda_ptx: the fake driver with the PTX of the real images, as C (ptx_to_c). That C has unused labels
# and the like; -fwrapv, since PTX's integers wrap; -Og without debug information, a third of what
# -O1 with it takes to compile. Not under sanitizers, which see what the host's
# compiler makes of the kernels elsewhere: this would only be slow.
find_package(Python3 QUIET COMPONENTS Interpreter)
if(TUTTI_SANITIZE)
  return()
endif()
if(NOT Python3_FOUND)
  message(WARNING "No tests of the kernels' PTX: there is no Python 3, which translates it")
  return()
endif()
option(TUTTI_PTX_COVERAGE "Count what of the PTX is run (tools/measure_ptx)" OFF)
set(ptx_flags -w -Og -g0 -fwrapv -ffp-contract=off -fno-trapping-math)
if(TUTTI_PTX_COVERAGE)
  list(APPEND ptx_flags --coverage) # counts may be lost between threads; all that matters is whether there are any
  add_link_options(--coverage)
endif()
function(ptx_translate result)
  foreach(ptx ${ARGN})
    get_filename_component(name ${ptx} NAME)
    set(log)
    if(NOT name STREQUAL "instructions.ptx") # what ptxas said of the images
      string(REGEX REPLACE "ptx$" "log" log ${ptx})
    endif()
    set(translated ${CMAKE_CURRENT_BINARY_DIR}/${name}.c)
    add_custom_command(OUTPUT ${translated}
      COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/ptx/ptx_to_c ${ptx} ${translated} ${log}
      DEPENDS ${ptx} ${CMAKE_CURRENT_SOURCE_DIR}/ptx/ptx_to_c
      COMMENT "Translating ${name} to C"
      VERBATIM)
    set_source_files_properties(${translated} PROPERTIES COMPILE_OPTIONS
      "${ptx_flags}"
      OBJECT_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/ptx/ptx_on_host.h)
    list(APPEND made ${translated})
  endforeach()
  set(${result} ${made} PARENT_SCOPE)
endfunction()

get_property(ptx GLOBAL PROPERTY TUTTI_PTX)
ptx_translate(kernels ${ptx})
add_library(ptx_kernels OBJECT ${kernels})
target_link_libraries(ptx_kernels PRIVATE tti_flags)
add_library(fake_cuda_ptx MODULE fake_cuda.c fake_stream.c fake_memory.c fake_pool.c ptx/ptx.c
  $<TARGET_OBJECTS:ptx_kernels>)
target_link_libraries(fake_cuda_ptx PRIVATE tti_flags tti_device m)

# The translation itself.
set(instructions ${CMAKE_CURRENT_LIST_DIR}/instructions.ptx)
ptx_translate(translated ${instructions})
tti_test(test_ptx SOURCES ptx/test_ptx.c ptx/ptx.c gpu_under_test.c ${translated} LINKS tti_device m)
get_filename_component(nvcc_folder ${TUTTI_NVCC} DIRECTORY)
find_program(TUTTI_PTXAS ptxas HINTS ${nvcc_folder})
if(TUTTI_PTXAS)
  list(GET TTI_CUDA_ARCHITECTURES 0 oldest)
  add_test(NAME test_ptx_assembles COMMAND ${TUTTI_PTXAS} -arch=sm_${oldest} -o /dev/null ${instructions})
  tti_test_properties(test_ptx_assembles "" "" "")
endif()

# What runs on it: what runs on the other; operations by ranks, in tests/integration; training.
foreach(name test_gpu test_gpu_reduce test_gpu_all_reduce test_gpu_withdraw test_gpu_processes test_gpu_passing)
  add_test(NAME ${name}_ptx COMMAND ${name})
  tti_test_properties(${name}_ptx "" device "")
  set_property(TEST ${name}_ptx APPEND PROPERTY ENVIRONMENT
    "TUTTI_SIM_DEVICES=4;TUTTI_TEST_GPU=cuda;TUTTI_LIBCUDA=$<TARGET_FILE:fake_cuda_ptx>")
endforeach()
if(TARGET example_gpt)
  add_executable(test_gpt_gpu_ptx ${CMAKE_SOURCE_DIR}/tests/examples/test_gpt_gpu.c ptx/ptx_anywhere.c
    $<FILTER:$<TARGET_OBJECTS:ptx_kernels>,INCLUDE,/gpt_>)
  target_compile_definitions(test_gpt_gpu_ptx PRIVATE PTX_BY_NAME)
  target_link_libraries(test_gpt_gpu_ptx PRIVATE example_gpt m)
  set_target_properties(test_gpt_gpu_ptx PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME example_gpt_gpu_ptx COMMAND test_gpt_gpu_ptx)
  tti_test_properties(example_gpt_gpu_ptx "" "" "")
endif()
if(TARGET test_ddp_device)
  add_test(NAME ddp_memory_of_gpu_ptx COMMAND test_ddp_device --ranks 2)
  tti_test_properties(ddp_memory_of_gpu_ptx "" device "")
  set_property(TEST ddp_memory_of_gpu_ptx APPEND PROPERTY ENVIRONMENT TUTTI_DEVICE=cuda
    TUTTI_LIBCUDA=$<TARGET_FILE:fake_cuda_ptx> CUDA_DEVICE_MAX_CONNECTIONS=32)
endif()
