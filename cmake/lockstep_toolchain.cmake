if(NOT CMAKE_SYSTEM_NAME STREQUAL Linux OR NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
  message(FATAL_ERROR "Lockstep runs on Linux on x86-64 processors; this is ${CMAKE_SYSTEM_NAME} on \
${CMAKE_SYSTEM_PROCESSOR}")
endif()

# Flags that every target shares. They must be equal everywhere, because all
# targets that use torch share one precompiled header.
add_library(lockstep_compile_flags INTERFACE)
target_compile_features(lockstep_compile_flags INTERFACE cxx_std_20)
target_compile_options(lockstep_compile_flags INTERFACE
  -fPIC -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers -Winvalid-pch
  # The arithmetic is part of the product: no compiler may fuse or reorder it.
  -ffp-contract=off
  # In a batch no source is the main file, where a class with a member of an unnamed namespace's type is no fault.
  $<$<AND:$<BOOL:${LOCKSTEP_UNITY}>,$<CXX_COMPILER_ID:GNU>>:-Wno-subobject-linkage>)
if(LOCKSTEP_SANITIZE)
  target_compile_options(lockstep_compile_flags INTERFACE
    -fsanitize=${LOCKSTEP_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(lockstep_compile_flags INTERFACE -fsanitize=${LOCKSTEP_SANITIZE})
endif()
if(LOCKSTEP_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
    message(FATAL_ERROR "LOCKSTEP_FUZZ needs clang, not ${CMAKE_CXX_COMPILER_ID}: configure with `cmake --preset fuzz`")
  endif()
  target_compile_options(lockstep_compile_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

find_program(LOCKSTEP_CCACHE ccache)
if(LOCKSTEP_CCACHE)
  # ccache only caches compilations with a precompiled header under this sloppiness. Paths below the tree are given to
  # the compiler as relative ones, so that a second clone or work tree finds what the first has compiled.
  set(launcher ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
      ${LOCKSTEP_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
endif()

# An installed program finds the libraries in unusual places where the build found them.
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)
