# Writes generated/automap_version.h with the version, git revision, compiler, build type and features. At build time the revision
# is looked up again, and the header is only touched when it changed.
# As a script: cmake -DSOURCE=... -DOUTPUT=... -DVERSION=... -DCOMPILER=... -DBUILD_TYPE=... -DBUILT_WITH=... -P cmake/version.cmake
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
#define AUTOMAP_BUILT_WITH "@BUILT_WITH@"
]])
  return()
endif()

set(compiler ${CMAKE_CXX_COMPILER_ID})
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  set(compiler g++)
elseif(CMAKE_CXX_COMPILER_ID STREQUAL Clang)
  set(compiler clang++)
endif()
# automap_built_with(): what --version says besides, once all of it has been looked for.
function(automap_built_with out)
  set(features "HDF5 ${HDF5_VERSION}")
  if(AUTOMAP_CBC_INCLUDE)
    string(APPEND features ", CBC")
  else()
    string(APPEND features ", no CBC")
  endif()
  if(TARGET automap_plugin)
    string(APPEND features ", LibTorch ${Torch_VERSION}")
    if(NOT AUTOMAP_GLOO_INCLUDE)
      string(APPEND features " (no Gloo)")
    endif()
  else()
    string(APPEND features ", no LibTorch")
  endif()
  set(names "")
  foreach(file ${shipped_policies})
    get_filename_component(name ${file} NAME)
    list(APPEND names ${name})
  endforeach()
  list(JOIN names ", " names)
  if(names)
    string(APPEND features "; policies ${names}")
  else()
    string(APPEND features "; no policies")
  endif()
  set(${out} ${features} PARENT_SCOPE)
endfunction()
automap_built_with(built_with)
add_custom_target(automap_version
  COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR} -DOUTPUT=${PROJECT_BINARY_DIR}/generated/automap_version.h
          -DVERSION=${PROJECT_VERSION} "-DCOMPILER=${compiler} ${CMAKE_CXX_COMPILER_VERSION}"
          -DBUILD_TYPE=${CMAKE_BUILD_TYPE} "-DBUILT_WITH=${built_with}" -P ${CMAKE_CURRENT_LIST_DIR}/version.cmake
  BYPRODUCTS ${PROJECT_BINARY_DIR}/generated/automap_version.h
  VERBATIM COMMENT "")
