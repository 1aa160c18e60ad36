# libtutti, shared and static, and what a user of it needs: headers, pkg-config file, CMake package.
include(CMakePackageConfigHelpers)

# The rooms that make the library. Their objects go in whole: what the linker would leave out of an
# archive because nothing refers to it yet is still the library's interface.
set(TTI_LIBRARY_ROOMS tti_base tti_plan tti_device tti_sim_kernels tti_topology tti_transport tti_launch
  tti_algorithms tti_coll tti_ddp)

set(objects)
set(private_links)
foreach(room ${TTI_LIBRARY_ROOMS})
  if(TARGET ${room})
    list(APPEND objects $<TARGET_OBJECTS:${room}>)
    get_target_property(links ${room} INTERFACE_LINK_LIBRARIES)
    list(APPEND private_links ${links})
  endif()
endforeach()
# What the rooms link from outside.
list(REMOVE_DUPLICATES private_links)
list(FILTER private_links EXCLUDE REGEX "^tti_")

add_library(tutti SHARED ${objects})
add_library(tutti_static STATIC ${objects})
foreach(library tutti tutti_static)
  target_include_directories(${library} INTERFACE
    $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  set_target_properties(${library} PROPERTIES OUTPUT_NAME tutti LINKER_LANGUAGE C)
endforeach()
target_link_libraries(tutti PRIVATE tti_flags ${private_links})
set_target_properties(tutti PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION 0)
if(TTI_SANITIZER_FLAGS)
  # A sanitized shared library resolves the run-time from the program that loads it.
  target_link_options(tutti PRIVATE -Wl,-z,undefs)
else()
  target_link_options(tutti PRIVATE -Wl,-z,defs)
endif()

# The static library's users link what it needs themselves: as plain -l names, so that neither the
# CMake package nor the pkg-config file depends on how this build found them.
set(static_links pthread)
foreach(link ${private_links})
  if(TARGET ${link})
    get_target_property(paths ${link} INTERFACE_LINK_LIBRARIES)
    foreach(path ${paths})
      get_filename_component(name ${path} NAME_WE)
      string(REGEX REPLACE "^lib" "" name ${name})
      list(APPEND static_links ${name})
    endforeach()
  else()
    list(APPEND static_links ${link})
  endif()
endforeach()
list(REMOVE_DUPLICATES static_links)
target_link_libraries(tutti_static INTERFACE ${static_links})

install(TARGETS tutti tutti_static EXPORT tutti-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/tutti DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN *.h)
# PYTHONPATH=PREFIX/lib/tutti-python; the package finds the library beside its folder.
install(DIRECTORY python/tutti DESTINATION ${CMAKE_INSTALL_LIBDIR}/tutti-python FILES_MATCHING PATTERN *.py
  PATTERN __pycache__ EXCLUDE)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# find_package(tutti): tutti::tutti, and tutti::tutti_static.
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/tutti)
install(EXPORT tutti-targets NAMESPACE tutti:: DESTINATION ${package_folder}
  FILE tutti-config.cmake)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/tutti-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/tutti-config-version.cmake DESTINATION ${package_folder})

# pkg-config --libs [--static] tutti. Relative to the file, so that a prefix can be moved.
file(RELATIVE_PATH up_to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" up_to_prefix ${up_to_prefix})
list(TRANSFORM static_links PREPEND -l OUTPUT_VARIABLE PC_PRIVATE_LIBS)
list(JOIN PC_PRIVATE_LIBS " " PC_PRIVATE_LIBS)
set(PC_PREFIX "\${pcfiledir}/${up_to_prefix}")
configure_file(cmake/tutti.pc.in tutti.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/tutti.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
