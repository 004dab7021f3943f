# cmake --install: programs, libraries, headers, clusters, documents and a CMake package, all relative to the prefix.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(programs GLOBAL PROPERTY AUTOMAP_PROGRAMS)
if(programs)
  install(TARGETS ${programs} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

# Not compiled: `automap apply-plan` and `automap emit-sdy`, beside the programs in the build folder, too.
foreach(script apply_plan emit_sdy)
  string(REPLACE "_" "-" command automap-${script})
  configure_file(${PROJECT_SOURCE_DIR}/scripts/${script}.py ${PROJECT_BINARY_DIR}/${command} COPYONLY)
  install(PROGRAMS ${PROJECT_BINARY_DIR}/${command} DESTINATION ${CMAKE_INSTALL_BINDIR})
endforeach()

# `automap run` and its kin, and the Python package that they are the commands of.
foreach(command automap-run automap-from-stablehlo automap-export-torch)
  configure_file(${PROJECT_SOURCE_DIR}/python/run.py ${PROJECT_BINARY_DIR}/${command} COPYONLY)
  install(PROGRAMS ${PROJECT_BINARY_DIR}/${command} DESTINATION ${CMAKE_INSTALL_BINDIR})
endforeach()
file(GLOB modules CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/python/automap/*.py)
foreach(module ${modules})
  configure_file(${PROJECT_SOURCE_DIR}/${module} ${PROJECT_BINARY_DIR}/${module} COPYONLY)
endforeach()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/python/automap DESTINATION ${CMAKE_INSTALL_DATADIR}/automap/python
        FILES_MATCHING PATTERN "*.py")

# Beside the other libraries; the programs know the way from their folder to it (common/base/plugin.cpp).
file(RELATIVE_PATH plugin_folder ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR}/automap)
set_source_files_properties(common/base/plugin.cpp PROPERTIES COMPILE_DEFINITIONS "AUTOMAP_PLUGIN_FOLDER=\"${plugin_folder}\"")
if(TARGET automap_plugin)
  install(TARGETS automap_plugin LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/automap)
endif()

# find_package(automap) gives automap::base, automap::graph, ... as listed in docs/house.md.
install(TARGETS automap_flags EXPORT automap-targets)
foreach(room ${AUTOMAP_INSTALLED})
  set_target_properties(automap_${room} PROPERTIES EXPORT_NAME ${room})
  install(TARGETS automap_${room} EXPORT automap-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
endforeach()
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/automap)
install(EXPORT automap-targets NAMESPACE automap:: DESTINATION ${package})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/automap-config.cmake.in
                              ${PROJECT_BINARY_DIR}/generated/automap-config.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/generated/automap-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/generated/automap-config.cmake
              ${PROJECT_BINARY_DIR}/generated/automap-config-version.cmake DESTINATION ${package})

# Headers keep their repository paths under include/automap: #include "common/pipeline/cost.h".
set(folders "")
foreach(room ${AUTOMAP_INSTALLED})
  string(REGEX REPLACE "/.*" "" folder ${AUTOMAP_FOLDER_${room}})
  list(APPEND folders ${folder})
endforeach()
list(REMOVE_DUPLICATES folders)
foreach(folder ${folders})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/automap
          FILES_MATCHING PATTERN "*.h" PATTERN learner EXCLUDE PATTERN learned EXCLUDE PATTERN pretrained EXCLUDE)
endforeach()
target_include_directories(automap_flags INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/automap>)

foreach(folder docs clusters)
  if(IS_DIRECTORY ${PROJECT_SOURCE_DIR}/${folder})
    install(DIRECTORY ${PROJECT_SOURCE_DIR}/${folder} DESTINATION ${CMAKE_INSTALL_DATADIR}/automap)
  endif()
endforeach()
# The pipeline policies are compiled into automap-infer; the files are for automap-train, automap-inspect and the curious.
if(IS_DIRECTORY ${PROJECT_SOURCE_DIR}/models/pretrained)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/models/pretrained DESTINATION ${CMAKE_INSTALL_DATADIR}/automap/models)
endif()
install(FILES ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DATADIR}/automap)
