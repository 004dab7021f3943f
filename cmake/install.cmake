# cmake --install: programs, libraries, headers, clusters, documents and a CMake package, all relative to the prefix.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Components: `planner` (programs, manual pages: all of a wheel but the Python package), `system` (what stands in folders that
# a wheel has no place for), `trainer` (what needs LibTorch), `development`. cmake/packages.cmake makes .debs of them.
set(to_programs ${CMAKE_INSTALL_BINDIR})
set(to_manual ${CMAKE_INSTALL_MANDIR}/man1)
if(SKBUILD)  # the wheel (pyproject.toml)
  set(to_programs ${SKBUILD_SCRIPTS_DIR})
  set(to_manual ${SKBUILD_DATA_DIR}/share/man/man1)
endif()

get_property(programs GLOBAL PROPERTY AUTOMAP_PROGRAMS)
foreach(program ${programs})
  set(component planner)
  if(program STREQUAL automap-train)
    set(component trainer)
  endif()
  install(TARGETS ${program} RUNTIME DESTINATION ${to_programs} COMPONENT ${component})
endforeach()

# Not compiled: `automap apply-plan` and `automap emit-sdy`, beside the programs in the build folder, too.
set(scripts ${PROJECT_BINARY_DIR}/automap-run)
foreach(script apply_plan emit_sdy)
  string(REPLACE "_" "-" command automap-${script})
  configure_file(${PROJECT_SOURCE_DIR}/scripts/${script}.py ${PROJECT_BINARY_DIR}/${command} COPYONLY)
  set(installed ${PROJECT_BINARY_DIR}/${command})
  list(APPEND scripts ${installed})
  if(SKBUILD)
    # Of this first line pip makes the Python that the wheel is installed for.
    set(installed ${PROJECT_BINARY_DIR}/generated/${command})
    file(READ ${PROJECT_SOURCE_DIR}/scripts/${script}.py text)
    string(REPLACE "#!/usr/bin/env python3\n" "#!python\n" text "${text}")
    file(CONFIGURE OUTPUT ${installed} CONTENT "\${text}")
  endif()
  install(PROGRAMS ${installed} DESTINATION ${to_programs} COMPONENT planner)
endforeach()

# `automap run` and its kin, and the Python package that they are the commands of. In a wheel pip makes the commands.
foreach(command automap-run automap-from-stablehlo automap-export-torch)
  configure_file(${PROJECT_SOURCE_DIR}/python/run.py ${PROJECT_BINARY_DIR}/${command} COPYONLY)
  install(PROGRAMS ${PROJECT_BINARY_DIR}/${command} DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT system)
endforeach()
file(GLOB modules CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/python/automap/*.py)
foreach(module ${modules})
  configure_file(${PROJECT_SOURCE_DIR}/${module} ${PROJECT_BINARY_DIR}/${module} COPYONLY)
endforeach()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/python/automap DESTINATION ${CMAKE_INSTALL_DATADIR}/automap/python COMPONENT system
        FILES_MATCHING PATTERN "*.py")

# Manual pages, which the programs write themselves; a sanitized program takes its time.
if(NOT AUTOMAP_SANITIZE)
  set(manual ${PROJECT_BINARY_DIR}/man)
  list(TRANSFORM programs REPLACE "(.+)" "$<TARGET_FILE:\\1>" OUTPUT_VARIABLE files)
  list(APPEND files ${scripts})
  add_custom_command(OUTPUT ${manual}/made
    COMMAND ${CMAKE_COMMAND} "-DPROGRAMS=${files}" -DOUTPUT=${manual} -P ${PROJECT_SOURCE_DIR}/cmake/man_pages.cmake
    DEPENDS ${programs} ${scripts} ${PROJECT_SOURCE_DIR}/cmake/man_pages.cmake VERBATIM COMMENT "")
  add_custom_target(automap_man ALL DEPENDS ${manual}/made)
  install(DIRECTORY ${manual}/ DESTINATION ${to_manual} COMPONENT planner
          FILES_MATCHING PATTERN "automap*.1*" PATTERN "automap-train.1*" EXCLUDE)
  if(automap-train IN_LIST programs)
    install(DIRECTORY ${manual}/ DESTINATION ${to_manual} COMPONENT trainer FILES_MATCHING PATTERN "automap-train.1*")
  endif()
endif()

# Completion: bash looks for a file of the program's name, zsh reads in the first line what a file is for.
set(completions ${PROJECT_BINARY_DIR}/completions)
list(JOIN programs " " AUTOMAP_COMPLETED)
configure_file(${PROJECT_SOURCE_DIR}/front/completion.bash ${completions}/bash/automap @ONLY)
configure_file(${PROJECT_SOURCE_DIR}/front/completion.zsh ${completions}/zsh/_automap @ONLY)
foreach(program ${programs})
  if(NOT program STREQUAL automap)
    file(CREATE_LINK automap ${completions}/bash/${program} SYMBOLIC)
  endif()
endforeach()
install(DIRECTORY ${completions}/bash/ DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT system)
install(DIRECTORY ${completions}/zsh/ DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions COMPONENT system)

# Beside the other libraries; the programs know the way from their folder to it (common/base/plugin.cpp).
file(RELATIVE_PATH plugin_folder ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR}/automap)
set_source_files_properties(common/base/plugin.cpp PROPERTIES COMPILE_DEFINITIONS "AUTOMAP_PLUGIN_FOLDER=\"${plugin_folder}\"")
if(TARGET automap_plugin)
  install(TARGETS automap_plugin LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/automap COMPONENT trainer)
endif()

# find_package(automap) gives automap::base, automap::graph, ... as listed in docs/house.md.
install(TARGETS automap_flags EXPORT automap-targets)
foreach(room ${AUTOMAP_INSTALLED})
  set_target_properties(automap_${room} PROPERTIES EXPORT_NAME ${room})
  install(TARGETS automap_${room} EXPORT automap-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
endforeach()
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/automap)
install(EXPORT automap-targets NAMESPACE automap:: DESTINATION ${package} COMPONENT development)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/automap-config.cmake.in
                              ${PROJECT_BINARY_DIR}/generated/automap-config.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/generated/automap-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/generated/automap-config.cmake
              ${PROJECT_BINARY_DIR}/generated/automap-config-version.cmake DESTINATION ${package} COMPONENT development)

# Headers keep their repository paths under include/automap: #include "common/pipeline/cost.h".
set(folders "")
foreach(room ${AUTOMAP_INSTALLED})
  string(REGEX REPLACE "/.*" "" folder ${AUTOMAP_FOLDER_${room}})
  list(APPEND folders ${folder})
endforeach()
list(REMOVE_DUPLICATES folders)
foreach(folder ${folders})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/automap COMPONENT development
          FILES_MATCHING PATTERN "*.h" PATTERN learner EXCLUDE PATTERN learned EXCLUDE PATTERN pretrained EXCLUDE)
endforeach()
target_include_directories(automap_flags INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/automap>)

foreach(folder docs clusters)
  if(IS_DIRECTORY ${PROJECT_SOURCE_DIR}/${folder})
    install(DIRECTORY ${PROJECT_SOURCE_DIR}/${folder} DESTINATION ${CMAKE_INSTALL_DATADIR}/automap COMPONENT system)
  endif()
endforeach()
# The pipeline policies are compiled into automap-infer; the files are for automap-train, automap-inspect and the curious.
if(IS_DIRECTORY ${PROJECT_SOURCE_DIR}/models/pretrained)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/models/pretrained DESTINATION ${CMAKE_INSTALL_DATADIR}/automap/models COMPONENT trainer)
endif()
install(FILES ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DATADIR}/automap
        COMPONENT system)
