# The arithmetic of the executor, compiled for three levels of the x86-64 instruction set; the CPU's best is chosen at
# run time.
set(alu_variant_objects)
foreach(level 2 3 4)
  add_library(softgpu_ptx_alu_v${level} OBJECT exec/alu_integer.cc exec/alu_float.cc exec/alu_convert.cc)
  target_include_directories(softgpu_ptx_alu_v${level} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_definitions(softgpu_ptx_alu_v${level} PRIVATE SOFTGPU_ISA=isa_v${level})
  # Rounding modes change around the loops, so nothing may be folded or moved on the assumption of the default one;
  # no code looks at the FPU's exception flags.
  target_compile_options(softgpu_ptx_alu_v${level} PRIVATE -march=x86-64-v${level} -O3 -frounding-math -fno-trapping-math
    $<$<CXX_COMPILER_ID:GNU>:-mprefer-vector-width=512>)
  list(APPEND alu_variant_objects $<TARGET_OBJECTS:softgpu_ptx_alu_v${level}>)
endforeach()
add_library(softgpu_ptx_alu STATIC exec/alu_find.cc ${alu_variant_objects})
target_link_libraries(softgpu_ptx_alu PUBLIC softgpu_ptx_front base)
