# Finds libtorch and makes the imported target Libtorch::Libtorch: the CPU part of
# libtorch (torch_cpu, c10), which starts in milliseconds and needs no CUDA toolkit
# to configure. Torch's own package file is not used: it stops without the toolkit.
#
# Looked for, in this order:
#   LOCKSTEP_TORCH (variable, else environment; empty is unset): a libtorch folder, or .../site-packages/torch
#   what this build folder has found before: ninja and `sudo make install` know nothing of the environment
#   Libtorch_BUILT_WITH (an installed package's: the libtorch that its libraries were built with)
#   CMAKE_PREFIX_PATH (variable or environment)
#   .deps/site/torch beside the project (scripts/bootstrap puts it there)
#   the torch package of the python3 in PATH
# scripts/bootstrap looks in the same places; change both.
# Result: Libtorch_FOUND, Libtorch_ROOT (kept in the cache), Libtorch_VERSION.

set(Libtorch_SUPPORTED "2.11")

set(_libtorch_given "${LOCKSTEP_TORCH}")
if(_libtorch_given STREQUAL "")
  set(_libtorch_given "$ENV{LOCKSTEP_TORCH}")
endif()
if(NOT _libtorch_given STREQUAL "")
  set(_libtorch_candidates ${_libtorch_given})
else()
  # What an installed package was built with goes before what another one has left in this cache.
  set(_libtorch_candidates ${Libtorch_BUILT_WITH} ${Libtorch_ROOT})
  string(REPLACE ":" ";" _libtorch_prefixes "$ENV{CMAKE_PREFIX_PATH}")
  foreach(_prefix IN LISTS CMAKE_PREFIX_PATH _libtorch_prefixes)
    list(APPEND _libtorch_candidates ${_prefix} ${_prefix}/torch)
  endforeach()
  list(APPEND _libtorch_candidates ${CMAKE_CURRENT_LIST_DIR}/../.deps/site/torch)
  execute_process(
    COMMAND python3 -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    OUTPUT_VARIABLE _libtorch_python OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  list(APPEND _libtorch_candidates ${_libtorch_python})
endif()

set(_libtorch_found)
set(_libtorch_rejected)
foreach(_candidate IN LISTS _libtorch_candidates)
  if(NOT EXISTS ${_candidate}/include/torch/csrc/api/include/torch/torch.h)
    if(_candidate STREQUAL _libtorch_given)
      string(APPEND _libtorch_rejected " LOCKSTEP_TORCH=${_candidate} is none.")
    elseif(_candidate STREQUAL "${Libtorch_ROOT}" OR _candidate STREQUAL "${Libtorch_BUILT_WITH}")
      string(APPEND _libtorch_rejected " ${_candidate}, which was used before, is gone.")
    endif()
    continue()
  endif()
  set(_version)
  foreach(_file torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
    if(EXISTS ${_candidate}/include/${_file})
      file(STRINGS ${_candidate}/include/${_file} _lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
      if(_lines)
        string(REGEX MATCHALL "[0-9]+" _numbers "${_lines}")
        list(JOIN _numbers "." _version)
        break()
      endif()
    endif()
  endforeach()
  if(_version MATCHES "^2\\.11\\.")
    get_filename_component(_libtorch_found ${_candidate} REALPATH)
    set(Libtorch_VERSION ${_version})
    break()
  endif()
  string(APPEND _libtorch_rejected " ${_candidate} is ${_version}.")
endforeach()
unset(Libtorch_ROOT)
set(Libtorch_ROOT "${_libtorch_found}" CACHE PATH "The libtorch that was found" FORCE)
set(_libtorch_advice "Run scripts/bootstrap, or set LOCKSTEP_TORCH to a libtorch folder.")
if(Libtorch_BUILT_WITH)
  set(_libtorch_advice "Set LOCKSTEP_TORCH (a variable of CMake or of the environment) to a libtorch folder.")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Libtorch
  REQUIRED_VARS Libtorch_ROOT VERSION_VAR Libtorch_VERSION
  REASON_FAILURE_MESSAGE "libtorch ${Libtorch_SUPPORTED} is needed.${_libtorch_rejected} ${_libtorch_advice}")

if(Libtorch_FOUND AND NOT TARGET Libtorch::Libtorch)
  add_library(Libtorch::c10 SHARED IMPORTED)
  set_target_properties(Libtorch::c10 PROPERTIES IMPORTED_LOCATION ${Libtorch_ROOT}/lib/libc10.so)
  add_library(Libtorch::Libtorch SHARED IMPORTED)
  set_target_properties(Libtorch::Libtorch PROPERTIES
    IMPORTED_LOCATION ${Libtorch_ROOT}/lib/libtorch_cpu.so
    INTERFACE_INCLUDE_DIRECTORIES
      "${Libtorch_ROOT}/include;${Libtorch_ROOT}/include/torch/csrc/api/include"
    INTERFACE_LINK_LIBRARIES Libtorch::c10)
  # libtorch_cpu of the CUDA wheel names libcudart and libcupti; the linker wants to see
  # them, the loader finds them by libtorch's own run path or by the system's.
  foreach(_dir ${Libtorch_ROOT}/../nvidia/cu13/lib /usr/local/cuda/lib64 /usr/local/cuda/extras/CUPTI/lib64)
    if(EXISTS ${_dir})
      set_property(TARGET Libtorch::Libtorch APPEND PROPERTY INTERFACE_LINK_OPTIONS "LINKER:-rpath-link,${_dir}")
    endif()
  endforeach()
endif()
