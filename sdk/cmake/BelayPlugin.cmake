# belay_add_plugin(<id> SOURCES <files> [LINKS <libraries>] [DATA <folder>] [STATIC])
#
# Builds a plugin from its sources and the manifest plugin.toml beside the calling CMakeLists.txt:
#   libbelay_<id>.so           exports belay_plugin_v0 and nothing else
#   libbelay_<id>.plugin.toml  its manifest
# both in <build>/lib/belay/plugins, installed to <libdir>/belay/plugins; the target is belay_plugin_<id>. Works in
# Belay's own tree and, after find_package(belay), in any other. A plugin uses belay::sdk (linked for it),
# belay::graph and belay::tensor_io.
#
# DATA: what is in the folder becomes libbelay_<id>.data beside the library, which the plugin reads through the service
# belay.host.fs/1.
#
# STATIC makes a static library instead, for a program that has the plugin inside: its entry is called
# belay_plugin_v0__<id> (in <id>, each of . and - becomes _).
include(GNUInstallDirs)

function(belay_add_plugin id)
  cmake_parse_arguments(PARSE_ARGV 1 arg "STATIC" "DATA" "SOURCES;LINKS")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_SOURCES)
    message(FATAL_ERROR "belay_add_plugin(<id> SOURCES <files> [LINKS <libraries>] [DATA <folder>] [STATIC]): got '${ARGV}'.")
  endif()
  if(NOT id MATCHES "^[a-z][a-z0-9._-]*$")
    message(FATAL_ERROR "Plugin id '${id}': want a small letter, then small letters, digits, '.', '_' or '-'.")
  endif()
  foreach(library IN LISTS arg_LINKS)
    if(library MATCHES "^belay(::|_)(core(_[a-z]+)?|hal|runtime|testing)$")
      message(FATAL_ERROR "Plugin '${id}' links ${library}: it may use the SDK only.")
    endif()
  endforeach()

  set(manifest ${CMAKE_CURRENT_SOURCE_DIR}/plugin.toml)
  if(NOT EXISTS ${manifest})
    message(FATAL_ERROR "Plugin '${id}' has no manifest: want ${manifest}.")
  endif()
  file(STRINGS ${manifest} lines REGEX "^id[ \t]*=")
  if(NOT lines MATCHES "^id[ \t]*=[ \t]*[\"']${id}[\"'][ \t]*(#.*)?$")
    message(FATAL_ERROR "${manifest} says '${lines}', want 'id = \"${id}\"' as in belay_add_plugin().")
  endif()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${manifest})

  set(target belay_plugin_${id})
  if(arg_STATIC)
    add_library(${target} STATIC ${arg_SOURCES})
    string(MAKE_C_IDENTIFIER ${id} suffix)
    target_compile_definitions(${target} PRIVATE belay_plugin_v0=belay_plugin_v0__${suffix})
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  else()
    add_library(${target} MODULE ${arg_SOURCES})
  endif()
  target_link_libraries(${target} PRIVATE belay::sdk ${arg_LINKS})
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  # In the note of the library, so that a manifest of another build beside it is refused.
  file(SHA256 ${manifest} digest)
  string(REGEX REPLACE "(..)" "0x\\1," digest_bytes ${digest}) # for C, which cannot take a text apart when it compiles
  target_compile_definitions(${target} PRIVATE BELAY_PLUGIN_BUILD BELAY_MANIFEST_SHA256="${digest}"
    BELAY_MANIFEST_SHA256_BYTES=${digest_bytes})
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-gnu-unique>)
  set_target_properties(${target} PROPERTIES OUTPUT_NAME belay_${id} C_VISIBILITY_PRESET hidden
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  if(arg_STATIC)
    return()
  endif()

  set(to ${CMAKE_BINARY_DIR}/lib/belay/plugins)
  set(map ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/plugin.map)
  target_link_options(${target} PRIVATE LINKER:-z,now,-z,relro,-Bsymbolic,--exclude-libs,ALL
    LINKER:--version-script=${map})
  # clang leaves the sanitizers' symbols to the program, so with them a module cannot be complete.
  if(NOT (CMAKE_CXX_COMPILER_ID MATCHES "Clang" AND "${CMAKE_CXX_FLAGS} ${BELAY_SANITIZE}" MATCHES
    "-fsanitize|address|thread"))
    target_link_options(${target} PRIVATE LINKER:-z,defs)
  endif()
  set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${to} LINK_DEPENDS ${map})
  # What others can write is not loaded, so the umask has no say in it; nor in the folders that an installation makes.
  set(readable OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
  set(open_to_all ${readable} OWNER_EXECUTE GROUP_EXECUTE WORLD_EXECUTE)
  set(CMAKE_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS ${open_to_all} PARENT_SCOPE)
  file(MAKE_DIRECTORY ${to})
  file(CHMOD ${to} PERMISSIONS ${open_to_all})
  add_custom_command(TARGET ${target} POST_BUILD COMMAND chmod go-w $<TARGET_FILE:${target}> VERBATIM)
  configure_file(${manifest} ${to}/libbelay_${id}.plugin.toml COPYONLY
    FILE_PERMISSIONS ${readable})
  install(TARGETS ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/belay/plugins)
  install(FILES ${to}/libbelay_${id}.plugin.toml DESTINATION ${CMAKE_INSTALL_LIBDIR}/belay/plugins)
  if(arg_DATA)
    cmake_path(ABSOLUTE_PATH arg_DATA BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    if(NOT IS_DIRECTORY ${arg_DATA})
      message(FATAL_ERROR "Plugin '${id}': its DATA ${arg_DATA} is no folder.")
    endif()
    file(GLOB_RECURSE files CONFIGURE_DEPENDS ${arg_DATA}/*)
    set(data ${to}/libbelay_${id}.data)
    set(stamp ${CMAKE_CURRENT_BINARY_DIR}/${target}.data)
    add_custom_command(OUTPUT ${stamp} DEPENDS ${files} COMMAND ${CMAKE_COMMAND} -E rm -rf ${data}
      COMMAND ${CMAKE_COMMAND} -E copy_directory ${arg_DATA} ${data} COMMAND ${CMAKE_COMMAND} -E touch ${stamp} VERBATIM)
    add_custom_target(${target}_data ALL DEPENDS ${stamp})
    add_dependencies(${target} ${target}_data)
    install(DIRECTORY ${arg_DATA}/ DESTINATION ${CMAKE_INSTALL_LIBDIR}/belay/plugins/libbelay_${id}.data)
  endif()
  if(NOT TARGET belay_plugins)
    add_custom_target(belay_plugins) # all plugins
  endif()
  add_dependencies(belay_plugins ${target})
endfunction()

# belay_add_plugin_test(<id> SOURCES <files> [LINKS <libraries>])
#
# A program test_<id> with GoogleTest that ctest runs, for the plugin <id> of the same project: it gets the path of the
# built library as BELAY_PLUGIN_FILE (see belay/testing/plugin_file.hpp). Without GoogleTest there is none, and a line
# says so.
function(belay_add_plugin_test id)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LINKS")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_SOURCES)
    message(FATAL_ERROR "belay_add_plugin_test(<id> SOURCES <files> [LINKS <libraries>]): got '${ARGV}'.")
  endif()
  if(NOT TARGET belay_plugin_${id})
    message(FATAL_ERROR "belay_add_plugin_test(${id}): there is no plugin '${id}'; call belay_add_plugin(${id} ...) before.")
  endif()
  if(NOT TARGET belay::testing)
    message(STATUS "Plugin '${id}': its tests are left out, there is no GoogleTest with Google Mock.")
    return()
  endif()
  add_executable(test_${id} ${arg_SOURCES})
  target_link_libraries(test_${id} PRIVATE belay::testing GTest::gtest_main ${CMAKE_DL_LIBS} ${arg_LINKS})
  target_compile_definitions(test_${id} PRIVATE BELAY_PLUGIN_FILE="$<TARGET_FILE:belay_plugin_${id}>")
  add_dependencies(test_${id} belay_plugin_${id})
  add_test(NAME ${id} COMMAND test_${id})
endfunction()
