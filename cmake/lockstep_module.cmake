# lockstep_module(<name> SOURCES ... [TORCH] [INTERNAL] [LINK ...] [PRIVATE_LINK ...])
#
# One folder of lockstep/ = one static library lockstep_<name>, alias lockstep::<name>.
# LINK is what the module's public headers need; the list is the rule of who may use whom.
# PRIVATE_LINK is what only its sources need.
# TORCH gives libtorch and the shared precompiled header.
# INTERNAL: for our programs only, no part of lockstep::lockstep and not installed.
function(lockstep_module name)
  cmake_parse_arguments(ARG "TORCH;INTERNAL" "" "SOURCES;LINK;PRIVATE_LINK" ${ARGN})
  set(target lockstep_${name})
  add_library(${target} STATIC ${ARG_SOURCES})
  add_library(lockstep::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_libraries(${target} PUBLIC ${ARG_LINK} PRIVATE $<BUILD_INTERFACE:lockstep_compile_flags>)
  foreach(library IN LISTS ARG_PRIVATE_LINK)
    lockstep_private_link(${target} ${library})
  endforeach()
  if(ARG_TORCH)
    lockstep_use_torch(${target})
  endif()
  if(NOT ARG_INTERNAL)
    set_property(GLOBAL APPEND PROPERTY LOCKSTEP_MODULES ${target})
  endif()
endfunction()

# A header-only library is needed to compile the module, not by those who link it: it does not
# get into the installed package.
function(lockstep_private_link target library)
  get_target_property(type ${library} TYPE)
  get_target_property(imported ${library} IMPORTED)
  if(imported AND type STREQUAL "INTERFACE_LIBRARY")
    set(library $<BUILD_INTERFACE:${library}>)
  endif()
  target_link_libraries(${target} PRIVATE ${library})
endfunction()

# The precompiled header that all targets with libtorch share; tests/ sets its own.
set(LOCKSTEP_PCH lockstep_pch)

# Gives a target libtorch and that header.
function(lockstep_use_torch target)
  target_link_libraries(${target} PUBLIC Libtorch::Libtorch)
  target_precompile_headers(${target} REUSE_FROM ${LOCKSTEP_PCH})
endfunction()

# lockstep_program(<name> SOURCES ... [TORCH] [LINK ...])
function(lockstep_program name)
  cmake_parse_arguments(ARG "TORCH" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} lockstep_compile_flags)
  if(ARG_TORCH)
    lockstep_use_torch_program(${name})
  else()  # small sources, each with a kHelp and the like of its own: nothing to gain
    set_property(TARGET ${name} PROPERTY UNITY_BUILD OFF)
  endif()
endfunction()

# An installed program finds libtorch where the build found it. CMAKE_INSTALL_RPATH_USE_LINK_PATH leaves out what lies
# in the source tree, as .deps/ does.
function(lockstep_use_torch_program target)
  target_link_libraries(${target} PRIVATE Libtorch::Libtorch)
  target_precompile_headers(${target} REUSE_FROM ${LOCKSTEP_PCH})
  set_property(TARGET ${target} APPEND PROPERTY INSTALL_RPATH ${Libtorch_ROOT}/lib)
endfunction()
