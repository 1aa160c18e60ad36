# libnccl.so.2: the NCCL door with all of libtutti inside, so that one file serves a program that was
# built for NCCL. It lies in folders of its own, here and installed, so that nobody who looks for
# NVIDIA's finds it unasked. Included after TuttiInstall.cmake, which says what libtutti is made of.
set(nccl_objects ${objects} $<TARGET_OBJECTS:tti_nccl>)
list(REMOVE_ITEM nccl_objects $<TARGET_OBJECTS:tti_ddp>)
add_library(nccl SHARED ${nccl_objects})
target_link_libraries(nccl PRIVATE tti_flags ${private_links})
set_target_properties(nccl PROPERTIES OUTPUT_NAME nccl SOVERSION 2 LINKER_LANGUAGE C
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/nccl
  LINK_DEPENDS ${CMAKE_SOURCE_DIR}/nccl/nccl.map)
# A program may have NVIDIA's library as well: calls within this one stay in it.
target_link_options(nccl PRIVATE -Wl,-Bsymbolic-functions
  -Wl,--version-script=${CMAKE_SOURCE_DIR}/nccl/nccl.map)
target_include_directories(nccl INTERFACE
  $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/nccl/include>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/tutti-nccl>)
if(TTI_SANITIZER_FLAGS)
  target_link_options(nccl PRIVATE -Wl,-z,undefs)
else()
  target_link_options(nccl PRIVATE -Wl,-z,defs)
endif()
install(TARGETS nccl LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/tutti-nccl)
install(FILES nccl/include/nccl.h nccl/include/nccl_device.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tutti-nccl)
