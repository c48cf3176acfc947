# The arithmetic of the executor. What programs spend their time in is compiled for several levels of the x86-64
# instruction set, and the CPU's best is chosen at run time; the rest is compiled for the baseline, level 2, only. Under
# sanitizers there is just the baseline: what they look for does not depend on the level.
set(alu_hot exec/alu_integer.cc exec/alu_float.cc exec/alu_half.cc exec/alu_convert.cc)
set(alu_rest exec/alu_bits.cc exec/alu_small.cc exec/alu_compare.cc exec/alu_convert_rest.cc)
if(STASIS_ASAN OR STASIS_TSAN OR STASIS_FUZZ)
  set(alu_levels 2)
  set(alu_optimize "")
else()
  set(alu_levels 2 3 4)
  set(alu_optimize -O3 $<$<CXX_COMPILER_ID:GNU>:-mprefer-vector-width=512>)
endif()

# No code looks at the FPU's exception flags or at errno. There is no -frounding-math, though loops run in other modes: it
# would keep compilers from using vector instructions, and what it protects against cannot happen here (see InMode()).
function(alu_objects name level)
  add_library(${name} OBJECT ${ARGN})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_definitions(${name} PRIVATE SOFTGPU_ISA=isa_v${level})
  target_compile_options(${name} PRIVATE -march=x86-64-v${level} -fno-trapping-math -fno-math-errno)
endfunction()

alu_objects(softgpu_ptx_alu_rest 2 ${alu_rest})
set(alu_objects_all $<TARGET_OBJECTS:softgpu_ptx_alu_rest>)
foreach(level ${alu_levels})
  alu_objects(softgpu_ptx_alu_v${level} ${level} ${alu_hot})
  target_compile_options(softgpu_ptx_alu_v${level} PRIVATE ${alu_optimize})
  list(APPEND alu_objects_all $<TARGET_OBJECTS:softgpu_ptx_alu_v${level}>)
endforeach()
add_library(softgpu_ptx_alu STATIC exec/alu_find.cc ${alu_objects_all})
list(LENGTH alu_levels alu_level_count)
target_compile_definitions(softgpu_ptx_alu PRIVATE SOFTGPU_ALU_LEVELS=${alu_level_count})
target_link_libraries(softgpu_ptx_alu PUBLIC softgpu_ptx_front base)

add_library(softgpu_ptx_alu_testing STATIC exec/alu_testing.cc)
target_link_libraries(softgpu_ptx_alu_testing PUBLIC softgpu_ptx_alu PRIVATE GTest::gtest)
target_compile_definitions(softgpu_ptx_alu_testing PRIVATE
  SOFTGPU_ALU_MNEMONICS="${CMAKE_CURRENT_SOURCE_DIR}/exec/alu_mnemonics.txt")
# Functions of their arguments, called by one thread: there is nothing in them for ThreadSanitizer.
if(NOT STASIS_TSAN)
  foreach(name alu_variant_test alu_integer_test alu_bits_test alu_float_test alu_small_test alu_convert_test alu_approx_test)
    stasis_test(${name} SOURCES exec/${name}.cc LIBS softgpu_ptx_alu_testing LABELS softgpu)
    if(STASIS_ASAN OR STASIS_FUZZ)
      target_compile_options(${name} PRIVATE -O1)  # they compute the expected results
    endif()
  endforeach()
endif()

find_package(benchmark QUIET)
if(benchmark_FOUND AND NOT (STASIS_ASAN OR STASIS_TSAN OR STASIS_FUZZ))
  add_executable(alu_bench exec/alu_bench.cc)
  target_link_libraries(alu_bench PRIVATE softgpu_ptx_alu_testing benchmark::benchmark GTest::gtest)
endif()
