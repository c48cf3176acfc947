# The memory half of the driver; paths are relative to softgpu/driver.
set(SOFTGPU_DRIVER_MEMORY_SOURCES
  array.cc
  memory_context.cc
  memory_copy.cc
  memory_host.cc
  memory_image.cc
  memory_managed.cc
  memory_physical.cc
  memory_plain.cc
  memory_query.cc
  memory_space.cc
  memory_suballoc.cc
  memory_vmm.cc
  pool.cc
  texture.cc)
