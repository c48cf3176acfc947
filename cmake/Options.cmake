# Compile options shared by every target, and the sanitizer switches behind the presets.
option(STASIS_ASAN "Build with AddressSanitizer and UndefinedBehaviorSanitizer" OFF)
option(STASIS_TSAN "Build with ThreadSanitizer" OFF)
option(STASIS_FUZZ "Build the libFuzzer targets (clang only)" OFF)

find_program(STASIS_CCACHE ccache)
if(STASIS_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER ${STASIS_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${STASIS_CCACHE})
endif()
set(STASIS_CRIU "" CACHE FILEPATH "The criu binary that the tests use")

add_compile_options(-Wall -Wextra -Werror -fno-omit-frame-pointer)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  add_compile_options(-Wthread-safety)
else()
  add_compile_options(-fno-gnu-unique)  # clang never emits STB_GNU_UNIQUE, and refuses the option
endif()

# Results must not depend on which CPU the compiler was asked for: a*b+c is fused only where the code says so.
add_compile_options(-ffp-contract=off)

if(STASIS_ASAN)
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all)
  add_link_options(-fsanitize=address,undefined)
endif()
if(STASIS_TSAN)
  add_compile_options(-fsanitize=thread)
  add_link_options(-fsanitize=thread)
endif()
if(STASIS_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "The fuzz preset needs clang: libFuzzer is part of it")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all)
  add_link_options(-fsanitize=address,undefined)
endif()
