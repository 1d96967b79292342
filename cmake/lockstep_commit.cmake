# Run at every build (cmake -D SOURCE=... -D OUTPUT=... -P): writes the commit that is built into a
# header, which changes only when the commit does. "-dirty": with changes that are in no commit. Whose
# tree it is does not matter: an installation by root must not find another commit and build again.
find_program(GIT git)
set(commit)
if(GIT AND EXISTS ${SOURCE}/.git)
  execute_process(
    COMMAND ${GIT} -c safe.directory=${SOURCE} --no-optional-locks -C ${SOURCE}
      describe --always --dirty --abbrev=12 --exclude *
    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
set(text "#pragma once\n\n#define LOCKSTEP_COMMIT \"${commit}\"\n")
set(before)
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
endif()
if(NOT text STREQUAL before)
  file(WRITE ${OUTPUT} "${text}")
endif()
