# Makes a stranger's project in FOLDER, of nothing but what README shows: its CMakeLists.txt, and the first example as
# the program.
file(READ ${SOURCE}/README.md readme)
if(NOT readme MATCHES "```cmake\n([^`]*)```")
  message(FATAL_ERROR "README.md shows no CMakeLists.txt")
endif()
file(REMOVE_RECURSE ${FOLDER})
file(WRITE ${FOLDER}/CMakeLists.txt "${CMAKE_MATCH_1}")
configure_file(${SOURCE}/examples/own_loop.cpp ${FOLDER}/train.cpp COPYONLY)
