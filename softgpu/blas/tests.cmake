# Tests of both libraries on a real daemon. They link the libraries as a program does.
add_library(softgpu_blas_testing STATIC blas_testing.cc types.cc ../driver/memory_testing.cc ../device/test_daemon.cc)
target_include_directories(softgpu_blas_testing PUBLIC ${CMAKE_SOURCE_DIR})
target_compile_definitions(softgpu_blas_testing PRIVATE SOFTGPUD_PATH="$<TARGET_FILE:softgpud>")
target_link_libraries(softgpu_blas_testing PUBLIC softgpu_cublas softgpu_cublaslt softgpu_cuda softgpu_node
  softgpu_client cuda_headers GTest::gtest ${CMAKE_DL_LIBS})
add_dependencies(softgpu_blas_testing softgpud)
foreach(name gemm gemm_batch handle level1 level2 level3 lt)
  stasis_test(softgpu_blas_${name}_test SOURCES ${name}_test.cc LIBS softgpu_blas_testing)
  # C programs may pass any number for an enumerator, and tests do.
  target_compile_options(softgpu_blas_${name}_test PRIVATE -fno-sanitize=enum)
endforeach()

stasis_add_test(softgpu_blas_exports_test 60
  ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_SOURCE_DIR}/exports_test.py)
set_tests_properties(softgpu_blas_exports_test PROPERTIES LABELS unit ENVIRONMENT
  "CUBLAS_LIBRARY=$<TARGET_FILE:softgpu_cublas>;CUBLAS_EXPORTS=${CMAKE_CURRENT_SOURCE_DIR}/exports.list;CUBLASLT_LIBRARY=$<TARGET_FILE:softgpu_cublaslt>;CUBLASLT_EXPORTS=${CMAKE_CURRENT_SOURCE_DIR}/lt_exports.list;CUDA_INCLUDE=${STASIS_CUDA_INCLUDE}")
