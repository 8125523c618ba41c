# How everything in the tree is built: flags, third-party libraries, and functions that add folders and libraries.
# Not installed; what an author of plugins needs is in BelayPlugin.cmake.
include(GNUInstallDirs)

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

# The build tree has the shape of an installed one, so plugins and configurations are found the same way in both.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)

find_program(CCACHE ccache)
if(CCACHE)
  foreach(language C CXX)
    if(NOT CMAKE_${language}_COMPILER_LAUNCHER)
      set(CMAKE_${language}_COMPILER_LAUNCHER ${CCACHE})
    endif()
  endforeach()
endif()

add_compile_options(-Wall -Wextra -fno-omit-frame-pointer)
if(BELAY_SANITIZE)
  add_compile_options(-fsanitize=${BELAY_SANITIZE} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${BELAY_SANITIZE})
  # Clang's check of vtables opens a pipe, so it fails where a test has taken all descriptors.
  add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,Clang>:-fno-sanitize=vptr>)
  # gcc takes the sanitizers' own branches for paths that read unset variables.
  add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>)
endif()
if(BELAY_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# Third-party libraries. Those of the core are header-only, so libbelay.so needs none of them at run time.
find_package(Threads REQUIRED)
find_package(Boost 1.81 REQUIRED CONFIG) # 1.74, the default of Debian 12, lacks what Boost.DLL needs here
find_package(tomlplusplus REQUIRED CONFIG)
find_package(spdlog REQUIRED CONFIG)
find_package(fmt REQUIRED CONFIG)

add_library(belay_boost INTERFACE)
target_link_libraries(belay_boost INTERFACE Boost::headers Threads::Threads ${CMAKE_DL_LIBS})
target_compile_definitions(belay_boost INTERFACE BOOST_DLL_USE_STD_FS BOOST_ASIO_NO_DEPRECATED)
if(BELAY_SANITIZE MATCHES "thread")
  # ThreadSanitizer knows no fences (gcc warns of each); the locks of Asio's scheduler order the same.
  target_compile_definitions(belay_boost INTERFACE BOOST_ASIO_DISABLE_FENCED_BLOCK)
endif()

add_library(belay_toml INTERFACE)
get_target_property(toml_include tomlplusplus::tomlplusplus INTERFACE_INCLUDE_DIRECTORIES)
target_include_directories(belay_toml SYSTEM INTERFACE ${toml_include})
target_compile_definitions(belay_toml INTERFACE TOML_HEADER_ONLY=1 TOML_EXCEPTIONS=0)

add_library(belay_spdlog INTERFACE)
get_target_property(spdlog_include spdlog::spdlog_header_only INTERFACE_INCLUDE_DIRECTORIES)
target_include_directories(belay_spdlog SYSTEM INTERFACE ${spdlog_include})
target_link_libraries(belay_spdlog INTERFACE fmt::fmt-header-only Threads::Threads)
target_compile_definitions(belay_spdlog INTERFACE SPDLOG_FMT_EXTERNAL)

# belay_add_folder(<dir>): adds a folder that has a CMakeLists.txt; passes over one that is not there.
function(belay_add_folder dir)
  if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${dir}/CMakeLists.txt)
    add_subdirectory(${dir})
  endif()
endfunction()

# belay_add_all_folders([<dir>]): adds every folder with a CMakeLists.txt below the calling one (or below and with
# <dir>), at any depth, so a folder need not add its subfolders; passes over projects of their own and what is below
# them. A new folder is found at the next build.
function(belay_add_all_folders)
  cmake_path(APPEND CMAKE_CURRENT_SOURCE_DIR "${ARGN}" CMakeLists.txt OUTPUT_VARIABLE pattern)
  file(GLOB_RECURSE lists CONFIGURE_DEPENDS ${pattern})
  list(TRANSFORM lists REPLACE "/CMakeLists.txt$" "")
  list(REMOVE_ITEM lists ${CMAKE_CURRENT_SOURCE_DIR})
  list(SORT lists) # a folder before what is below it
  set(project ${CMAKE_CURRENT_SOURCE_DIR}/no-project)
  foreach(dir IN LISTS lists)
    cmake_path(IS_PREFIX project ${dir} below_project)
    if(below_project)
      continue()
    endif()
    file(STRINGS ${dir}/CMakeLists.txt is_project REGEX "^project\\(")
    if(is_project)
      set(project ${dir})
      continue()
    endif()
    get_property(added GLOBAL PROPERTY BELAY_ADDED_FOLDERS)
    if(NOT dir IN_LIST added)
      set_property(GLOBAL APPEND PROPERTY BELAY_ADDED_FOLDERS ${dir})
      add_subdirectory(${dir})
    endif()
  endforeach()
endfunction()

# belay_add_library(<name> [PUBLIC <libraries>] [PRIVATE <libraries>]): the static library belay_<name>, alias
# belay::<name>, of every .cpp file in the calling folder. What other folders include of it lies in the folder's
# include/, or beside the sources: then INCLUDE names the include root.
function(belay_add_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "INCLUDE" "PUBLIC;PRIVATE")
  file(GLOB sources CONFIGURE_DEPENDS *.cpp)
  if(NOT sources)
    return()
  endif()
  add_library(belay_${name} STATIC ${sources})
  add_library(belay::${name} ALIAS belay_${name})
  set_target_properties(belay_${name} PROPERTIES EXPORT_NAME ${name})
  target_link_libraries(belay_${name} PUBLIC ${arg_PUBLIC} PRIVATE ${arg_PRIVATE})
  if(arg_INCLUDE)
    target_include_directories(belay_${name} PUBLIC ${arg_INCLUDE})
  else()
    target_include_directories(belay_${name} PUBLIC $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>
      $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}> PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  endif()
endfunction()
