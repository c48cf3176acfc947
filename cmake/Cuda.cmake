# Finds the CUDA toolkit: its public headers and nvcc. Only the headers are used by our own code; nvcc builds
# the samples and the device code of the tests, as a user would.
set(STASIS_CUDA_ROOT "" CACHE PATH "Root of the CUDA toolkit (found by itself when empty)")
find_path(STASIS_CUDA_INCLUDE cuda.h
  HINTS ${STASIS_CUDA_ROOT}/include $ENV{CUDA_HOME}/include /usr/local/cuda/include NO_DEFAULT_PATH)
find_program(STASIS_NVCC nvcc
  HINTS ${STASIS_CUDA_ROOT}/bin $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
if(NOT STASIS_CUDA_INCLUDE OR NOT STASIS_NVCC)
  message(FATAL_ERROR "No CUDA toolkit found: run scripts/setup.sh, or set STASIS_CUDA_ROOT")
endif()
# NVIDIA's cuDNN, where the toolkit has it: programs of a user's are linked with it. Nothing needs it to run.
find_library(STASIS_CUDNN_LIBRARY cudnn HINTS ${STASIS_CUDA_INCLUDE}/../lib64 ${STASIS_CUDA_INCLUDE}/../lib
  NO_DEFAULT_PATH)
add_library(cuda_headers INTERFACE)
target_include_directories(cuda_headers SYSTEM INTERFACE ${STASIS_CUDA_INCLUDE})

# stasis_cuda_program(NAME SOURCES a.cu ... [OPTIONS ...] [OUTPUT path]): a CUDA program exactly as a user builds it:
# plain nvcc, shared runtime, no header of ours. The target NAME builds ${CMAKE_BINARY_DIR}/samples/NAME unless told
# otherwise; its path is in the target property PROGRAM.
function(stasis_cuda_program name)
  cmake_parse_arguments(ARG "" "OUTPUT" "SOURCES;OPTIONS;DEPENDS" ${ARGN})
  if(NOT ARG_OUTPUT)
    set(ARG_OUTPUT ${CMAKE_BINARY_DIR}/samples/${name})
  endif()
  list(TRANSFORM ARG_SOURCES PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  get_filename_component(dir ${ARG_OUTPUT} DIRECTORY)
  file(MAKE_DIRECTORY ${dir})
  add_custom_command(OUTPUT ${ARG_OUTPUT}
    COMMAND ${STASIS_NVCC} -std=c++17 -O2 -cudart shared -Wno-deprecated-gpu-targets ${ARG_OPTIONS}
            -o ${ARG_OUTPUT} ${ARG_SOURCES}
    DEPENDS ${ARG_SOURCES} ${ARG_DEPENDS}
    COMMENT "nvcc ${name}" VERBATIM COMMAND_EXPAND_LISTS)
  add_custom_target(${name} ALL DEPENDS ${ARG_OUTPUT})
  set_target_properties(${name} PROPERTIES PROGRAM ${ARG_OUTPUT})
endfunction()

# stasis_embed_ptx(TARGET source.cu): the device code of source.cu as PTX, for any GPU since Turing, in a string
# literal that the target's sources include as "source.ptx.inc".
function(stasis_embed_ptx target source)
  get_filename_component(name ${source} NAME_WE)
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/ptx)
  file(MAKE_DIRECTORY ${folder})
  set(embed ${CMAKE_SOURCE_DIR}/scripts/gen/embed_text.py)
  add_custom_command(OUTPUT ${folder}/${name}.ptx.inc
    COMMAND ${STASIS_NVCC} -std=c++17 -O3 -ptx -arch=compute_75 -Wno-deprecated-gpu-targets -o ${folder}/${name}.ptx
            ${CMAKE_CURRENT_SOURCE_DIR}/${source}
    COMMAND Python3::Interpreter -B ${embed} ${folder}/${name}.ptx ${folder}/${name}.ptx.inc
    DEPENDS ${source} ${embed} COMMENT "nvcc ${name}.ptx" VERBATIM)
  target_sources(${target} PRIVATE ${folder}/${name}.ptx.inc)
  target_include_directories(${target} PRIVATE ${folder})
endfunction()
