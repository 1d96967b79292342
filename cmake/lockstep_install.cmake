# lockstep::lockstep, the whole library as one target, and what `cmake --install` copies:
# headers, module libraries, programs, and a package file for find_package(Lockstep).
# The target is the same in the build tree, by add_subdirectory and by find_package.

option(LOCKSTEP_INSTALL "Make install rules" ${PROJECT_IS_TOP_LEVEL})

get_property(_modules GLOBAL PROPERTY LOCKSTEP_MODULES)
add_library(lockstep_library INTERFACE)
add_library(lockstep::lockstep ALIAS lockstep_library)
set_target_properties(lockstep_library PROPERTIES EXPORT_NAME lockstep)
target_link_libraries(lockstep_library INTERFACE ${_modules})

if(NOT LOCKSTEP_INSTALL)
  return()
endif()

include(CMakePackageConfigHelpers)
set(_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Lockstep)

# The headers are found when they are copied: an include may have come since this was configured.
install(CODE "set(source \"${PROJECT_SOURCE_DIR}\")\nset(destination \"${CMAKE_INSTALL_INCLUDEDIR}\")")
install(SCRIPT ${CMAKE_CURRENT_LIST_DIR}/lockstep_install_headers.cmake)
install(TARGETS lockstep_library ${_modules} EXPORT Lockstep ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
get_property(_plugins GLOBAL PROPERTY LOCKSTEP_MPI_PLUGINS)
if(_plugins)
  install(TARGETS ${_plugins} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
foreach(_program lockstep lockstep-bench-comm lockstep-bench-input lockstep-bench-launch lockstep-bench-step
        lockstep-bench-worker lockstep-checkpoint lockstep-data lockstep-predictor lockstep-trainer)
  if(TARGET ${_program})
    install(TARGETS ${_program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()

# The guide and the examples to which it refers.
install(FILES README.md CHANGELOG.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES docs/shared_state.svg DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs)
install(DIRECTORY docs/guide DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs)
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.cpp")

if(TARGET lockstep_pages)  # manual pages and completion, where man and the shells look for them
  install(DIRECTORY ${PROJECT_BINARY_DIR}/share/ DESTINATION ${CMAKE_INSTALL_DATAROOTDIR})
endif()

install(EXPORT Lockstep NAMESPACE lockstep:: FILE LockstepTargets.cmake DESTINATION ${_package_dir})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/LockstepConfig.cmake.in
  ${CMAKE_CURRENT_BINARY_DIR}/LockstepConfig.cmake INSTALL_DESTINATION ${_package_dir}
  NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/LockstepConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
  ${CMAKE_CURRENT_BINARY_DIR}/LockstepConfig.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/LockstepConfigVersion.cmake
  ${CMAKE_CURRENT_LIST_DIR}/FindLibtorch.cmake
  DESTINATION ${_package_dir})

file(REAL_PATH ${PROJECT_SOURCE_DIR} _source)
cmake_path(IS_PREFIX _source ${Libtorch_ROOT} _is_ours)
if(_is_ours)
  install(CODE "message(\"Lockstep: libtorch lies in the source tree, ${Libtorch_ROOT}: what was installed needs it \
there. To be free of the source tree, set LOCKSTEP_TORCH to a libtorch folder elsewhere and run make install again.\")")
endif()
