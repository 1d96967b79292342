# Installs BUILD into WORK, moves the result to WORK/tree, and checks that its package files name
# neither the build nor the source folder.
file(REMOVE_RECURSE ${WORK}/first ${WORK}/tree ${WORK}/consumer ${WORK}/subdirectory)
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/first
  OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
file(RENAME ${WORK}/first ${WORK}/tree)

file(GLOB_RECURSE package_files ${WORK}/tree/*.cmake)
if(NOT package_files)
  message(FATAL_ERROR "no package files were installed")
endif()
foreach(file IN LISTS package_files)
  file(READ ${file} content)
  foreach(path ${BUILD} ${SOURCE} ${WORK})
    string(FIND "${content}" "${path}" position)
    if(NOT position EQUAL -1)
      message(FATAL_ERROR "${file} names ${path}: it is not relocatable")
    endif()
  endforeach()
endforeach()
