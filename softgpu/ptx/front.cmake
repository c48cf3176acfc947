# The front end ends up in a shared object that is loaded into strangers' processes: the decompressors go in statically,
# so that nothing of ours meets the program's own copies.
find_library(STASIS_ZSTD_STATIC libzstd.a REQUIRED)
find_library(STASIS_LZ4_STATIC liblz4.a REQUIRED)

add_library(softgpu_ptx_front STATIC
  container.cc
  image.cc
  lexer.cc
  literal.cc
  linker.cc
  module.cc
  parser.cc
  parser_body.cc
  parser_data.cc
  parser_init.cc
  rename.cc
  scope.cc
  special_registers.cc)
target_link_libraries(softgpu_ptx_front PUBLIC base PRIVATE ${STASIS_ZSTD_STATIC} ${STASIS_LZ4_STATIC})

include(${CMAKE_CURRENT_LIST_DIR}/testdata.cmake)

stasis_test(softgpu_ptx_parser_test
  SOURCES parser_test.cc parser_data_test.cc parser_error_test.cc linker_test.cc
  LIBS softgpu_ptx_front)
stasis_test(softgpu_ptx_nvcc_test
  SOURCES nvcc_ptx_test.cc image_test.cc
  LIBS softgpu_ptx_front)
add_dependencies(softgpu_ptx_nvcc_test softgpu_ptx_testdata)
target_compile_definitions(softgpu_ptx_nvcc_test PRIVATE SOFTGPU_PTX_TESTDATA="${SOFTGPU_PTX_TESTDATA}")

stasis_fuzzer(softgpu_ptx_parser_fuzz
  SOURCES parser_fuzz.cc
  LIBS softgpu_ptx_front
  CORPUS ${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/ptx_parser)
stasis_fuzzer(softgpu_ptx_image_fuzz
  SOURCES image_fuzz.cc
  LIBS softgpu_ptx_front
  CORPUS ${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/fatbin)
