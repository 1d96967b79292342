# What backend "mpi" calls, once for each MPI whose compiler is found (lockstep/comm/network/mpi_table.h). The library
# itself needs none: it loads the one that has started the process. LOCKSTEP_MPI_PLUGINS: the targets.
option(LOCKSTEP_MPI "Build the plug-ins of backend mpi for the MPIs that are found" ON)

# `mark`: a macro that the mpi.h of this kind defines, and the other one does not.
function(lockstep_mpi_plugin kind mark)
  find_program(_compiler NAMES mpicc.${kind} mpicc NO_CACHE)  # one may be installed later
  if(NOT _compiler)
    return()
  endif()
  execute_process(COMMAND ${_compiler} -show OUTPUT_VARIABLE _shown RESULT_VARIABLE _failed ERROR_QUIET)
  separate_arguments(_words UNIX_COMMAND "${_shown}")
  set(_includes ${_words})
  list(FILTER _includes INCLUDE REGEX "^-I.")
  list(TRANSFORM _includes REPLACE "^-I" "")
  set(_links ${_words})
  list(FILTER _links INCLUDE REGEX "^-[Ll].")
  find_file(_header mpi.h PATHS ${_includes} NO_DEFAULT_PATH NO_CACHE)
  if(_failed OR NOT _header)
    return()
  endif()
  file(STRINGS ${_header} _marks REGEX "#define ${mark}")
  if(NOT _marks)  # plain mpicc may be another's
    return()
  endif()
  set(_target lockstep_mpi_${kind})
  add_library(${_target} MODULE ${PROJECT_SOURCE_DIR}/lockstep/comm/network/mpi_plugin.c)
  target_include_directories(${_target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_include_directories(${_target} SYSTEM PRIVATE ${_includes})
  target_compile_options(${_target} PRIVATE -Wall -Wextra)
  target_link_libraries(${_target} PRIVATE ${_links})
  # Beside the programs, where they look first.
  set_target_properties(${_target} PROPERTIES C_STANDARD 11 LIBRARY_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}
    UNITY_BUILD OFF)
  add_dependencies(lockstep_comm ${_target})
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_MPI_PLUGINS ${_target})
endfunction()

if(LOCKSTEP_MPI)
  lockstep_mpi_plugin(openmpi OPEN_MPI)
  lockstep_mpi_plugin(mpich MPICH_VERSION)
endif()
