# Machine code for NVIDIA GPUs, where there is nvcc: which, for which of them, and how.
# TTI_CUDA tells whether there are kernels; TTI_CUDA_IMAGES is the folder that they lie in.

option(TUTTI_CUDA "Build the GPU kernels with nvcc, if there is one" ON)
set(TUTTI_CUDA_ARCHITECTURES "80;90;100" CACHE STRING "Compute capabilities to build kernels for")
# Another build's kernels do as well; it has to be up to date (./dev sees to that).
set(TUTTI_CUDA_IMAGES "" CACHE PATH "Folder of kernels that another build has made")
find_program(TUTTI_NVCC nvcc HINTS /usr/local/cuda/bin ENV CUDA_HOME PATH_SUFFIXES bin)
set(TTI_CUDA OFF)
if(NOT TUTTI_CUDA OR NOT TUTTI_NVCC)
  message(STATUS "No GPU kernels: TUTTI_CUDA is off, or there is no nvcc")
  return()
endif()

# A driver may be older than this, which is said then (device/cuda/cuda_kernel.c).
execute_process(COMMAND ${TUTTI_NVCC} --version OUTPUT_VARIABLE said)
if(NOT said MATCHES "release ([0-9]+)\\.([0-9]+)")
  message(FATAL_ERROR "${TUTTI_NVCC} --version names no release: ${said}")
endif()
set(release ${CMAKE_MATCH_1}.${CMAKE_MATCH_2})
math(EXPR TTI_CUDA_TOOLKIT "${CMAKE_MATCH_1} * 1000 + ${CMAKE_MATCH_2} * 10")

if(release VERSION_LESS 11.7)
  message(STATUS "No GPU kernels: ${TUTTI_NVCC} is of CUDA ${release}, and 11.7 is the oldest that has what they need (__grid_constant__); TUTTI_NVCC names another")
  return()
endif()

# What this one makes code for. GPUs that it does not know take PTX, which their driver compiles.
execute_process(COMMAND ${TUTTI_NVCC} --list-gpu-code OUTPUT_VARIABLE known ERROR_QUIET)
foreach(architecture ${TUTTI_CUDA_ARCHITECTURES})
  if(known MATCHES "sm_${architecture}\n")
    list(APPEND TTI_CUDA_ARCHITECTURES ${architecture})
  else()
    list(APPEND missing ${architecture})
  endif()
endforeach()
if(NOT TTI_CUDA_ARCHITECTURES)
  message(STATUS "No GPU kernels: ${TUTTI_NVCC} ${release} makes code for none of compute capability ${TUTTI_CUDA_ARCHITECTURES}")
  return()
elseif(missing)
  message(STATUS "${TUTTI_NVCC} ${release} makes no code for compute capability ${missing}: such GPUs compile PTX at the first use")
endif()
set(TTI_CUDA ON)
set(TTI_CUDA_IMAGES ${CMAKE_BINARY_DIR}/cuda)
if(TUTTI_CUDA_IMAGES)
  set(TTI_CUDA_IMAGES ${TUTTI_CUDA_IMAGES})
endif()
file(MAKE_DIRECTORY ${TTI_CUDA_IMAGES})

# ptxas tells of each kernel what it needs (test_device_code reads it).
set(TTI_NVCC_FLAGS -std=c++17 -O3 -Xptxas -v --threads 2 -I${CMAKE_SOURCE_DIR} -I${CMAKE_SOURCE_DIR}/include)
if(TUTTI_WERROR AND release VERSION_LESS 14)
  list(APPEND TTI_NVCC_FLAGS -Werror all-warnings)
endif()
execute_process(COMMAND ${TUTTI_NVCC} --help OUTPUT_VARIABLE help)
if(help MATCHES "--compress-mode")
  list(APPEND TTI_NVCC_FLAGS -compress-mode=size)
else()
  list(APPEND TTI_NVCC_FLAGS -Xfatbin -compress-all)
endif()

# Most kernels have nothing to gain from a newer GPU's instructions: so the compiler proper runs
# once, and what it made is assembled for each, side by side.
list(GET TTI_CUDA_ARCHITECTURES 0 oldest)
list(TRANSFORM TTI_CUDA_ARCHITECTURES REPLACE "(.+)" "sm_\\1" OUTPUT_VARIABLE code)
list(JOIN code "," code)
set(TTI_CUDA_CODE -gencode arch=compute_${oldest},code=[compute_${oldest},${code}])
# Multicast objects came with 9.0 and CUDA 12.1: what is older has a kernel that does nothing.
set(TTI_CUDA_CODE_MULTICAST ${TTI_CUDA_CODE})
set(TTI_CUDA_MULTICAST OFF)
if(TTI_CUDA_TOOLKIT GREATER_EQUAL 12010) # TTI_CU_SINCE_MULTICAST in device/cuda/cuda_driver.h
  set(TTI_CUDA_MULTICAST ON)
  set(TTI_CUDA_CODE_MULTICAST)
  set(since compute_90)
  foreach(architecture ${TTI_CUDA_ARCHITECTURES})
    if(architecture LESS 90)
      list(APPEND TTI_CUDA_CODE_MULTICAST -gencode arch=compute_${architecture},code=sm_${architecture})
    else()
      list(APPEND since sm_${architecture})
    endif()
  endforeach()
  list(JOIN since "," since)
  list(APPEND TTI_CUDA_CODE_MULTICAST -gencode arch=compute_90,code=[${since}])
endif()

# tti_cuda_images(SOURCES ... FLAGS ...): an image a source, compressed, with PTX for GPUs newer than
# it. Adds them to TTI_FATBINS, and the PTX to the global property TUTTI_PTX, for tests that run it.
function(tti_cuda_images)
  cmake_parse_arguments(IMAGES "" "" "SOURCES;FLAGS" ${ARGN})
  foreach(source ${IMAGES_SOURCES})
    get_filename_component(kernel ${source} NAME_WE)
    set(image ${TTI_CUDA_IMAGES}/${kernel})
    if(NOT TUTTI_CUDA_IMAGES)
      add_custom_command(OUTPUT ${image}.fatbin ${image}.ptx
        COMMAND ${CMAKE_SOURCE_DIR}/cmake/nvcc_image ${image} ${TUTTI_NVCC} ${TTI_NVCC_FLAGS} ${IMAGES_FLAGS}
          -MD -MF ${image}.d ${CMAKE_CURRENT_SOURCE_DIR}/${source}
        DEPENDS ${source} ${CMAKE_SOURCE_DIR}/cmake/nvcc_image DEPFILE ${image}.d
        COMMENT "Compiling ${kernel}.cu for compute capabilities ${TTI_CUDA_ARCHITECTURES}"
        VERBATIM)
    endif()
    list(APPEND TTI_FATBINS ${image}.fatbin)
    set_property(GLOBAL APPEND PROPERTY TUTTI_PTX ${image}.ptx)
  endforeach()
  set(TTI_FATBINS ${TTI_FATBINS} PARENT_SCOPE)
endfunction()
