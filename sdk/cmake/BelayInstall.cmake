# Install rules and the package config: find_package(belay) gives belay::sdk, belay::runtime, belay::graph,
# belay::tensor_io, belay::testing (with GoogleTest) and belay_add_plugin(). Included at the end of sdk/CMakeLists.txt.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/belay)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/sdk/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
foreach(folder graph tensor_io runtime acl)
  if(TARGET belay_${folder} AND EXISTS ${PROJECT_SOURCE_DIR}/sdk/${folder}/include)
    install(DIRECTORY ${PROJECT_SOURCE_DIR}/sdk/${folder}/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
      FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
  endif()
endforeach()

set(exported belay_sdk)
foreach(target belay_graph belay_tensor_io belay_runtime)
  if(TARGET ${target})
    list(APPEND exported ${target})
  endif()
endforeach()
install(TARGETS ${exported} EXPORT belayTargets)
install(EXPORT belayTargets NAMESPACE belay:: DESTINATION ${package_dir})
install(TARGETS belay_testing EXPORT belayTestingTargets)
install(EXPORT belayTestingTargets NAMESPACE belay:: DESTINATION ${package_dir})
if(TARGET belay_cli)
  install(TARGETS belay_cli)
endif()

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/belayConfig.cmake.in
  ${PROJECT_BINARY_DIR}/package/belayConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/belayConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/package/belayConfig.cmake
  ${PROJECT_BINARY_DIR}/package/belayConfigVersion.cmake ${CMAKE_CURRENT_LIST_DIR}/BelayPlugin.cmake
  ${CMAKE_CURRENT_LIST_DIR}/plugin.map DESTINATION ${package_dir})
if(EXISTS ${PROJECT_SOURCE_DIR}/configs)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/configs/ DESTINATION ${CMAKE_INSTALL_DATADIR}/belay/configs
    FILES_MATCHING PATTERN "*.toml")
endif()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
