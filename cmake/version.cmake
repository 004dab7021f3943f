# Writes generated/automap_version.h with the version, git revision, compiler and build type. At build time the revision
# is looked up again, and the header is only touched when it changed.
# As a script: cmake -DSOURCE=... -DOUTPUT=... -DVERSION=... -DCOMPILER=... -DBUILD_TYPE=... -P cmake/version.cmake
if(CMAKE_SCRIPT_MODE_FILE)
  set(revision unknown)
  find_program(git git)
  if(git AND EXISTS ${SOURCE}/.git)
    execute_process(COMMAND ${CMAKE_COMMAND} -E env GIT_OPTIONAL_LOCKS=0 ${git} -C ${SOURCE} -c safe.directory=${SOURCE} describe --always --dirty --abbrev=12
                            --exclude=*
                    OUTPUT_VARIABLE described OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
    if(status EQUAL 0)
      set(revision ${described})
    endif()
  endif()
  file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT [[
#pragma once
#define AUTOMAP_VERSION "@VERSION@"
#define AUTOMAP_GIT_REVISION "@revision@"
#define AUTOMAP_COMPILER "@COMPILER@"
#define AUTOMAP_BUILD_TYPE "@BUILD_TYPE@"
]])
  return()
endif()

set(compiler ${CMAKE_CXX_COMPILER_ID})
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  set(compiler g++)
elseif(CMAKE_CXX_COMPILER_ID STREQUAL Clang)
  set(compiler clang++)
endif()
add_custom_target(automap_version
  COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR} -DOUTPUT=${PROJECT_BINARY_DIR}/generated/automap_version.h
          -DVERSION=${PROJECT_VERSION} "-DCOMPILER=${compiler} ${CMAKE_CXX_COMPILER_VERSION}"
          -DBUILD_TYPE=${CMAKE_BUILD_TYPE} -P ${CMAKE_CURRENT_LIST_DIR}/version.cmake
  BYPRODUCTS ${PROJECT_BINARY_DIR}/generated/automap_version.h
  VERBATIM COMMENT "")
