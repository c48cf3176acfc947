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
