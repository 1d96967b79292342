# Installs BUILD into WORK, moves the result to WORK/tree, and checks that its package files name
# neither the build nor the source folder, but for LIBTORCH, which the package remembers. Where that lies
# in the source folder, the installation says so.
file(REMOVE_RECURSE ${WORK}/first ${WORK}/tree ${WORK}/consumer ${WORK}/headers)
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/first
  OUTPUT_VARIABLE said ERROR_VARIABLE said COMMAND_ERROR_IS_FATAL ANY)
file(RENAME ${WORK}/first ${WORK}/tree)

string(FIND "${LIBTORCH}" "${SOURCE}/" inside)
string(FIND "${said}" "libtorch lies in the source tree" told)
if(inside EQUAL 0 AND told EQUAL -1)
  message(FATAL_ERROR "the installation does not say that libtorch lies in the source tree:\n${said}")
endif()

file(GLOB_RECURSE package_files ${WORK}/tree/*.cmake)
if(NOT package_files)
  message(FATAL_ERROR "no package files were installed")
endif()
foreach(file IN LISTS package_files)
  file(READ ${file} content)
  string(REPLACE "${LIBTORCH}" "" content "${content}")
  foreach(path ${BUILD} ${SOURCE} ${WORK})
    string(FIND "${content}" "${path}" position)
    if(NOT position EQUAL -1)
      message(FATAL_ERROR "${file} names ${path}: it is not relocatable")
    endif()
  endforeach()
endforeach()

# What a module keeps to itself is not installed.
foreach(header data_parallel.h distributed_data_parallel.h ema.h engine.h exponential_moving_average.h forward_scope.h
        hooks join.h logging_data.h module_pointer.h nested_tensors.h options.h replica_tensors.h replica_threads.h
        scale_gradients.h shards.h sync_batch_norm.h torch_rates.h zero_redundancy_optimizer.h)
  list(APPEND public ${WORK}/tree/include/lockstep/parallel/${header})
endforeach()
file(GLOB installed ${WORK}/tree/include/lockstep/parallel/*)
if(NOT installed STREQUAL public)
  message(FATAL_ERROR "of lockstep/parallel other headers were installed than the public ones: ${installed}")
endif()

foreach(header functions.h operations.h optimizer.h session.h)
  list(APPEND hvd ${WORK}/tree/include/lockstep/horovod/${header})
endforeach()
file(GLOB installed ${WORK}/tree/include/lockstep/horovod/*)
if(NOT installed STREQUAL hvd)
  message(FATAL_ERROR "of lockstep/horovod other headers were installed than the public ones: ${installed}")
endif()
foreach(header async.h collectives.h)
  if(NOT EXISTS ${WORK}/tree/include/lockstep/comm/${header})
    message(FATAL_ERROR "lockstep/comm/${header} was not installed")
  endif()
endforeach()

foreach(header additions.h main.h shard_losses.h trainer.h trainer_observers.h)
  list(APPEND train ${WORK}/tree/include/lockstep/train/${header})
endforeach()
file(GLOB installed ${WORK}/tree/include/lockstep/train/*)
if(NOT installed STREQUAL train)
  message(FATAL_ERROR "of lockstep/train other headers were installed than the public ones: ${installed}")
endif()

foreach(folder data/fetch data/inspect flags launch)
  if(EXISTS ${WORK}/tree/include/lockstep/${folder})
    message(FATAL_ERROR "headers of lockstep/${folder} were installed, which is for our programs only")
  endif()
endforeach()

# What shells and man look for, and what a reader of the guide does.
foreach(file doc/Lockstep/docs/guide/README.md doc/Lockstep/examples/own_loop.cpp man/man1/lockstep.1
        man/man1/lockstep-train.1 bash-completion/completions/lockstep zsh/site-functions/_lockstep
        fish/vendor_completions.d/lockstep.fish)
  if(NOT EXISTS ${WORK}/tree/share/${file})
    message(FATAL_ERROR "share/${file} was not installed")
  endif()
endforeach()

# The plug-ins of backend mpi that were built.
file(GLOB plugins RELATIVE ${BUILD}/bin ${BUILD}/bin/liblockstep_mpi_*.so)
foreach(plugin IN LISTS plugins)
  file(GLOB_RECURSE found ${WORK}/tree/${plugin})
  if(NOT found)
    message(FATAL_ERROR "${plugin} was built, and not installed")
  endif()
endforeach()
