# The arithmetic of the executor, compiled for several levels of the x86-64 instruction set; the CPU's best is chosen at
# run time. Conversions gain nothing from level 4. Under sanitizers only the baseline is built: what they look for does
# not depend on the level, and instrumented vector code takes minutes to compile.
set(alu_level2 exec/alu_integer.cc exec/alu_float.cc exec/alu_convert.cc)
set(alu_level3 ${alu_level2})
set(alu_level4 exec/alu_integer.cc exec/alu_float.cc)
if(STASIS_ASAN OR STASIS_TSAN OR STASIS_FUZZ)
  set(alu_levels 2)
  set(alu_optimize "")
else()
  set(alu_levels 2 3 4)
  set(alu_optimize -O3)
endif()

set(alu_variant_objects)
foreach(level ${alu_levels})
  add_library(softgpu_ptx_alu_v${level} OBJECT ${alu_level${level}})
  target_include_directories(softgpu_ptx_alu_v${level} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_definitions(softgpu_ptx_alu_v${level} PRIVATE SOFTGPU_ISA=isa_v${level})
  # Rounding modes change around the loops, so nothing may be folded or moved on the assumption of the default one;
  # no code looks at the FPU's exception flags.
  target_compile_options(softgpu_ptx_alu_v${level} PRIVATE -march=x86-64-v${level} ${alu_optimize} -frounding-math
    -fno-trapping-math $<$<CXX_COMPILER_ID:GNU>:-mprefer-vector-width=512>)
  list(APPEND alu_variant_objects $<TARGET_OBJECTS:softgpu_ptx_alu_v${level}>)
endforeach()
add_library(softgpu_ptx_alu STATIC exec/alu_find.cc ${alu_variant_objects})
list(LENGTH alu_levels alu_level_count)
target_compile_definitions(softgpu_ptx_alu PRIVATE SOFTGPU_ALU_LEVELS=${alu_level_count})
target_link_libraries(softgpu_ptx_alu PUBLIC softgpu_ptx_front base)
