# Compiles models/pretrained/pipeline*.policy into automap_planners (plan/planners/shipped_policy.h), so that planning needs no files.
# As a script: cmake -DOUTPUT=... "-DFILES=a;b" -P cmake/shipped_policy.cmake
if(CMAKE_SCRIPT_MODE_FILE)
  set(text "// Made by cmake/shipped_policy.cmake.\n#include \"plan/planners/shipped_policy.h\"\n\nnamespace automap::planners::internal {\nnamespace {\n")
  set(table "")
  set(number 0)
  foreach(file ${FILES})
    get_filename_component(name ${file} NAME)
    file(READ ${file} hex HEX)
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
    string(APPEND text "const unsigned char kBytes${number}[] = {${bytes}};\n")
    string(APPEND table "    {\"${name}\", kBytes${number}, sizeof kBytes${number}},\n")
    math(EXPR number "${number} + 1")
  endforeach()
  string(APPEND text "}  // namespace\n\nconst ShippedFile kShippedFiles[] = {\n${table}    {nullptr, nullptr, 0},\n};\n\n}  // namespace automap::planners::internal\n")
  file(WRITE ${OUTPUT} "${text}")
  return()
endif()

file(GLOB shipped_policies CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/models/pretrained/pipeline*.policy)
set(shipped_source ${PROJECT_BINARY_DIR}/generated/shipped_policy_data.cpp)
add_custom_command(OUTPUT ${shipped_source}
  COMMAND ${CMAKE_COMMAND} -DOUTPUT=${shipped_source} "-DFILES=${shipped_policies}" -P ${CMAKE_CURRENT_LIST_FILE}
  DEPENDS ${shipped_policies} ${CMAKE_CURRENT_LIST_FILE} VERBATIM COMMENT "")
target_sources(automap_planners PRIVATE ${shipped_source})
