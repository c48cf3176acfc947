# Tests of the runtime. They run above a recording driver of their own.
set(FAKE_DRIVER_DIR ${CMAKE_BINARY_DIR}/tests/runtime/fake)
add_library(softgpu_fake_forwards_per_thread OBJECT testing/fake_forwards.cc)
target_compile_definitions(softgpu_fake_forwards_per_thread PRIVATE CUDA_API_PER_THREAD_DEFAULT_STREAM)
add_library(softgpu_fake_cuda SHARED testing/fake_driver.cc testing/fake_forwards.cc
  $<TARGET_OBJECTS:softgpu_fake_forwards_per_thread>)
foreach(target IN ITEMS softgpu_fake_forwards_per_thread softgpu_fake_cuda)
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR} ${RUNTIME_GENERATED})
  target_link_libraries(${target} PRIVATE cuda_headers)
  add_dependencies(${target} softgpu_cudart)  # which generates the lists
endforeach()
set_target_properties(softgpu_fake_cuda PROPERTIES
  OUTPUT_NAME cuda SOVERSION 1 LIBRARY_OUTPUT_DIRECTORY ${FAKE_DRIVER_DIR})

# Linked with the fake, so that opening libcuda.so.1 finds it by its SONAME.
add_library(softgpu_forwards_per_thread_test OBJECT forwards_test.cc)
target_compile_definitions(softgpu_forwards_per_thread_test PRIVATE CUDA_API_PER_THREAD_DEFAULT_STREAM)
target_include_directories(softgpu_forwards_per_thread_test PRIVATE ${CMAKE_SOURCE_DIR} ${RUNTIME_GENERATED})
target_link_libraries(softgpu_forwards_per_thread_test PRIVATE cuda_headers GTest::gtest)
add_dependencies(softgpu_forwards_per_thread_test softgpu_cudart)
stasis_test(softgpu_cudart_test
  SOURCES context_test.cc errors_test.cc forwards_test.cc launch_test.cc memory_test.cc registry_test.cc
          $<TARGET_OBJECTS:softgpu_forwards_per_thread_test>
  LIBS softgpu_cudart softgpu_fake_cuda cuda_headers ${CMAKE_DL_LIBS})
# One test calls all functions through one type, which the machine's calling convention allows and C++ does not.
foreach(target IN ITEMS softgpu_cudart_test softgpu_forwards_per_thread_test)
  target_compile_options(${target} PRIVATE -fno-sanitize=enum $<$<CXX_COMPILER_ID:Clang>:-fno-sanitize=function>)
endforeach()
target_include_directories(softgpu_cudart_test PRIVATE ${CMAKE_SOURCE_DIR} ${RUNTIME_GENERATED})

stasis_test(softgpu_cudart_once_test SOURCES once_test.cc LIBS cuda_headers)
target_include_directories(softgpu_cudart_once_test PRIVATE ${CMAKE_SOURCE_DIR})

file(WRITE ${CMAKE_BINARY_DIR}/tests/runtime/no_driver/libcuda.so.1 "")
stasis_test(softgpu_cudart_no_driver_test SOURCES no_driver_test.cc LIBS softgpu_cudart cuda_headers ${CMAKE_DL_LIBS})
set_tests_properties(softgpu_cudart_no_driver_test PROPERTIES
  ENVIRONMENT "LD_LIBRARY_PATH=${CMAKE_BINARY_DIR}/tests/runtime/no_driver")

stasis_add_test(softgpu_cudart_exports_test 60
  ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_SOURCE_DIR}/exports_test.py)
set_tests_properties(softgpu_cudart_exports_test PROPERTIES LABELS unit ENVIRONMENT
  "CUDART_LIBRARY=$<TARGET_FILE:softgpu_cudart>;CUDART_EXPORTS=${CMAKE_CURRENT_SOURCE_DIR}/exports.list;DRIVER_EXPORTS=${CMAKE_CURRENT_SOURCE_DIR}/../driver/exports.list;CUDA_INCLUDE=${STASIS_CUDA_INCLUDE}")

# A sanitized library does not load into a program that nvcc built without the sanitizer.
if(NOT (STASIS_ASAN OR STASIS_TSAN OR STASIS_FUZZ))
  set(programs_dir ${CMAKE_BINARY_DIR}/tests/runtime/programs)
  stasis_cuda_program(cudart_order SOURCES programs/order.cu OUTPUT ${programs_dir}/order)
  stasis_cuda_program(cudart_order_per_thread SOURCES programs/order.cu OPTIONS --default-stream per-thread
    OUTPUT ${programs_dir}/order_per_thread)
  stasis_cuda_program(cudart_linked SOURCES programs/part_one.cu programs/part_two.cu OPTIONS -rdc=true
    OUTPUT ${programs_dir}/linked)
  stasis_add_test(softgpu_cudart_programs_test 120
    ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_SOURCE_DIR}/programs_test.py)
  set_tests_properties(softgpu_cudart_programs_test PROPERTIES LABELS unit ENVIRONMENT
    "CUDART_PROGRAMS=${programs_dir};CUDART_LIBRARY_DIR=$<TARGET_FILE_DIR:softgpu_cudart>;FAKE_DRIVER_DIR=${FAKE_DRIVER_DIR}")

  # The same library above softgpu's own driver, with real results.
  if(TARGET softgpu_cuda AND TARGET softgpud)
    foreach(name IN ITEMS memory streams graphs errors)
      stasis_cuda_program(cudart_tour_${name} SOURCES programs/tour_${name}.cu OPTIONS -arch=compute_75
        DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/programs/check.h OUTPUT ${programs_dir}/tour_${name})
      stasis_add_test(softgpu_cudart_tour_${name} 120
        ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/harness/run_on_softgpu.py -- ${programs_dir}/tour_${name})
      set_tests_properties(softgpu_cudart_tour_${name} PROPERTIES LABELS softgpu
        ENVIRONMENT "STASIS_BUILD_DIR=${CMAKE_BINARY_DIR}")
    endforeach()
  endif()
endif()
