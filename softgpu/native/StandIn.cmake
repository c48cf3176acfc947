# softgpu_stand_in(TARGET NAME cublas SOVERSION 13 [NODE libcublas.so.13] HEADERS cublas.h ... STATUS type=value
#                  SOURCES ... [FORWARDS table INCLUDE header] [LIBS ...] [LINK_OPTIONS ...])
# A library that stands in for one of NVIDIA's, in lib/softgpu of the build folder. exports.list of the calling folder
# names what it exports, all under the version NODE. What neither the sources define nor the table forwards
# (gen_library.py) is a stub that answers the status' value.
function(softgpu_stand_in target)
  cmake_parse_arguments(ARG "" "NAME;SOVERSION;NODE;STATUS;FORWARDS;INCLUDE;EXPORTS" "HEADERS;SOURCES;LIBS;LINK_OPTIONS"
    ${ARGN})
  if(NOT ARG_EXPORTS)
    set(ARG_EXPORTS exports.list)
  endif()
  set(generated ${CMAKE_CURRENT_BINARY_DIR}/generated/${ARG_NAME})
  list(TRANSFORM ARG_SOURCES PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ OUTPUT_VARIABLE sources)
  set(options --exports ${CMAKE_CURRENT_SOURCE_DIR}/${ARG_EXPORTS} --library lib${ARG_NAME}.so.${ARG_SOVERSION}
    --status ${ARG_STATUS} --out ${generated})
  set(outputs)
  foreach(header IN LISTS ARG_HEADERS)
    list(LENGTH outputs i)
    list(APPEND outputs ${generated}/stubs_${i}.cc)
    list(APPEND options --header ${header})
  endforeach()
  if(ARG_NODE)
    list(APPEND options --node ${ARG_NODE})
  endif()
  if(ARG_FORWARDS)
    list(APPEND options --forwards ${CMAKE_CURRENT_SOURCE_DIR}/${ARG_FORWARDS} --forward-include ${ARG_INCLUDE})
    list(APPEND outputs ${generated}/forwards.cc)
  endif()
  set(generator ${CMAKE_SOURCE_DIR}/softgpu/native/gen_library.py)
  add_custom_command(
    OUTPUT ${outputs} ${generated}/library.map ${generated}/not_supported.list
    COMMAND Python3::Interpreter ${generator} --cxx ${CMAKE_CXX_COMPILER} --include ${STASIS_CUDA_INCLUDE} ${options}
            ${sources}
    DEPENDS ${generator} ${ARG_EXPORTS} ${ARG_FORWARDS} ${sources}
    VERBATIM)
  add_library(${target} SHARED ${ARG_SOURCES} ${outputs})
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR})
  # Callers in C may pass any number as an enumerator, which the functions check themselves.
  target_compile_options(${target} PRIVATE -fno-exceptions -fno-sanitize=enum
    $<$<CXX_COMPILER_ID:Clang>:-fno-sanitize=function>)
  # The headers say nothing of visibility; the version script says what is exported.
  set_target_properties(${target} PROPERTIES CXX_VISIBILITY_PRESET default VISIBILITY_INLINES_HIDDEN OFF
    OUTPUT_NAME ${ARG_NAME} SOVERSION ${ARG_SOVERSION} LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/softgpu
    LINK_DEPENDS ${generated}/library.map)
  target_link_libraries(${target} PRIVATE softgpu_native ${ARG_LIBS} base cuda_headers)
  target_link_options(${target} PRIVATE -Wl,--version-script=${generated}/library.map -Wl,-Bsymbolic -Wl,-z,now
    -Wl,-z,relro -static-libstdc++ -static-libgcc ${ARG_LINK_OPTIONS})
endfunction()
