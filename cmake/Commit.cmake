# Writes the header with the commit that is being built, only when it has changed. Run as a script at every build:
# cmake -DSOURCE=<repository> -DHEADER=<file> -P Commit.cmake
cmake_minimum_required(VERSION 3.25)
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(commit "")  # not a clone
endif()
file(CONFIGURE OUTPUT ${HEADER} CONTENT "#define MILLRACE_COMMIT \"@commit@\"\n" @ONLY)
