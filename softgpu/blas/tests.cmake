# Tests of both libraries on a real daemon. They link the libraries as a program does.
add_library(softgpu_blas_testing STATIC blas_testing.cc types.cc ../driver/memory_testing.cc ../device/test_daemon.cc)
target_include_directories(softgpu_blas_testing PUBLIC ${CMAKE_SOURCE_DIR})
target_compile_definitions(softgpu_blas_testing PRIVATE SOFTGPUD_PATH="$<TARGET_FILE:softgpud>")
target_link_libraries(softgpu_blas_testing PUBLIC softgpu_cublas softgpu_cublaslt softgpu_cuda softgpu_node
  softgpu_client cuda_headers GTest::gtest ${CMAKE_DL_LIBS})
add_dependencies(softgpu_blas_testing softgpud)
foreach(name gemm gemm_batch handle level1 level2 level3)
  stasis_test(softgpu_blas_${name}_test SOURCES ${name}_test.cc LIBS softgpu_blas_testing)
endforeach()
