# The executor: lowers parsed modules and runs them.
add_library(softgpu_ptx_exec STATIC
  exec/access_map.cc
  exec/allocate.cc
  exec/format.cc
  exec/grid.cc
  exec/layout.cc
  exec/loader.cc
  exec/lower.cc
  exec/lower_control.cc
  exec/lower_matrix.cc
  exec/lower_memory.cc
  exec/lower_move.cc
  exec/lower_operand.cc
  exec/ops_atomic.cc
  exec/lower_texture.cc
  exec/ops_barrier.cc
  exec/ops_basic.cc
  exec/ops_builtin.cc
  exec/ops_control.cc
  exec/ops_matrix.cc
  exec/ops_memory.cc
  exec/ops_sync.cc
  exec/ops_texture.cc
  exec/program.cc
  exec/warp.cc)
target_link_libraries(softgpu_ptx_exec PUBLIC softgpu_ptx_front softgpu_ptx_alu base Threads::Threads)
# Loops over lanes are what this code is about.
set_source_files_properties(exec/ops_basic.cc exec/ops_memory.cc exec/ops_control.cc exec/warp.cc
  PROPERTIES COMPILE_OPTIONS "$<$<CONFIG:Release,RelWithDebInfo>:-O3>")

add_library(softgpu_ptx_exec_testing STATIC exec/exec_testing.cc)
target_link_libraries(softgpu_ptx_exec_testing PUBLIC softgpu_ptx_exec PRIVATE GTest::gtest)

foreach(name exec_test exec_control_test exec_warp_test exec_memory_test exec_atomic_test exec_builtin_test exec_grid_test
             exec_texture_test exec_matrix_test exec_random_test)
  stasis_test(${name} SOURCES exec/${name}.cc LIBS softgpu_ptx_exec_testing LABELS softgpu)
endforeach()

stasis_test(exec_nvcc_test SOURCES exec/exec_nvcc_test.cc LIBS softgpu_ptx_exec_testing LABELS softgpu)
add_dependencies(exec_nvcc_test softgpu_ptx_testdata)
target_compile_definitions(exec_nvcc_test PRIVATE SOFTGPU_PTX_TESTDATA="${SOFTGPU_PTX_TESTDATA}")

find_package(benchmark QUIET)
if(benchmark_FOUND AND NOT (STASIS_ASAN OR STASIS_TSAN OR STASIS_FUZZ))
  add_executable(exec_bench exec/exec_bench.cc)
  target_link_libraries(exec_bench PRIVATE softgpu_ptx_exec benchmark::benchmark)
endif()
