# The memory half of the driver; paths are relative to softgpu/driver.
set(SOFTGPU_DRIVER_MEMORY_SOURCES
  array.cc
  array_entry.cc
  checkpoint.cc
  checkpoint_entry.cc
  ipc.cc
  ipc_entry.cc
  memory_actions.cc
  memory_context.cc
  memory_copy.cc
  memory_copy_batch.cc
  memory_copy_entry.cc
  memory_host.cc
  memory_image.cc
  memory_managed.cc
  memory_managed_entry.cc
  memory_parts.cc
  memory_physical.cc
  memory_plain.cc
  memory_plain_entry.cc
  memory_pointer_entry.cc
  memory_query.cc
  memory_set_entry.cc
  memory_space.cc
  memory_suballoc.cc
  memory_vmm.cc
  memory_vmm_entry.cc
  pool.cc
  pool_entry.cc
  shared_event.cc
  texture.cc
  texture_entry.cc)

# Each test starts daemons of its own; processes that take part are the test's own program, started again.
foreach(test memory_core memory_api memory_copy pool memory_process checkpoint)
  if(EXISTS ${CMAKE_CURRENT_LIST_DIR}/${test}_test.cc)
    stasis_test(softgpu_${test}_test
      SOURCES ${test}_test.cc memory_testing.cc ../device/test_daemon.cc
      LIBS softgpu_driver_core softgpu_node softgpu_client)
    target_compile_definitions(softgpu_${test}_test PRIVATE
      SOFTGPUD_PATH="$<TARGET_FILE:softgpud>"
      SOFTGPU_SMI_PATH="$<TARGET_FILE:softgpu-smi>")
    add_dependencies(softgpu_${test}_test softgpud)
  endif()
endforeach()
