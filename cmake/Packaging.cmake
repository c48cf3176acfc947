# Debian packages, by scripts/package.sh: stasis; stasis-runtime-VERSION (what is mapped into tasks: that of an older version can
# stay beside it, for the tasks and images that began with it); stasis-softgpu (the software device); and stasis-criu (the CRIU
# that scripts/setup.sh has built, for machines whose own is too old). Nothing is installed but what is named here.
include(GNUInstallDirs)
set(private lib/stasis)
set(runtime ${private}/${PROJECT_VERSION})
set(documents share/doc/stasis)

install(TARGETS stasis stasisd stasis-schedd COMPONENT stasis DESTINATION bin)
install(PROGRAMS scripts/slurm/stasis-step COMPONENT stasis DESTINATION bin)
install(TARGETS stasis-ghost stasis-sim COMPONENT stasis DESTINATION ${private})
install(TARGETS stasis-init COMPONENT runtime DESTINATION ${runtime})
install(TARGETS stasis_shim COMPONENT runtime LIBRARY DESTINATION ${runtime})
install(FILES $<TARGET_FILE_DIR:stasis_shim>/libcuda.so COMPONENT runtime DESTINATION ${runtime})  # a link to it
install(FILES scripts/package/copyright COMPONENT runtime DESTINATION share/doc/stasis-runtime-${PROJECT_VERSION})
if(TARGET stasis_spank)
  install(TARGETS stasis_spank COMPONENT stasis LIBRARY DESTINATION ${private})
endif()
install(FILES scripts/systemd/stasisd.service scripts/systemd/stasis-schedd.service
  COMPONENT stasis DESTINATION lib/systemd/system)
install(PROGRAMS scripts/slurm/stasis-agents.sbatch COMPONENT stasis DESTINATION share/stasis/slurm)
install(FILES include/stasis/memory.h COMPONENT stasis DESTINATION include/stasis)
install(FILES stubs/torch/allocator_notes.h stubs/torch/stasis_torch.cc stubs/torch/stasis_torch.py
  COMPONENT stasis DESTINATION share/stasis/torch)
install(DIRECTORY proto/stasis COMPONENT stasis DESTINATION share/stasis/proto FILES_MATCHING PATTERN *.proto)
install(DIRECTORY deploy/ COMPONENT stasis DESTINATION share/stasis/deploy FILES_MATCHING PATTERN *.yaml)

# Documents: by hand, and made (docs/CMakeLists.txt).
install(FILES README.md COMPONENT stasis DESTINATION ${documents})
install(DIRECTORY docs/ COMPONENT stasis DESTINATION ${documents}/docs FILES_MATCHING PATTERN *.md)
install(FILES ${CMAKE_BINARY_DIR}/docs/cli-reference.md ${CMAKE_BINARY_DIR}/docs/rpc-reference.md
  COMPONENT stasis DESTINATION ${documents}/docs)
install(FILES scripts/package/copyright COMPONENT stasis DESTINATION ${documents})
install(DIRECTORY ${CMAKE_BINARY_DIR}/docs/man-packed/ COMPONENT stasis DESTINATION share/man
  PATTERN softgpu* EXCLUDE)
install(FILES ${CMAKE_BINARY_DIR}/docs/completion/stasis COMPONENT stasis DESTINATION share/bash-completion/completions)
install(FILES ${CMAKE_BINARY_DIR}/docs/completion/_stasis COMPONENT stasis DESTINATION share/zsh/vendor-completions)
install(FILES ${CMAKE_BINARY_DIR}/docs/completion/stasis.fish COMPONENT stasis DESTINATION share/fish/vendor_completions.d)

install(TARGETS softgpud softgpu-smi COMPONENT softgpu DESTINATION ${private})
install(TARGETS softgpu_cuda softgpu_cudart softgpu_cublas softgpu_cublaslt softgpu_cudnn softgpu_nccl
  COMPONENT softgpu LIBRARY DESTINATION ${private}/softgpu)
set_target_properties(softgpu_cublas PROPERTIES INSTALL_RPATH $ORIGIN)
install(DIRECTORY ${CMAKE_BINARY_DIR}/docs/man-packed/ COMPONENT softgpu DESTINATION share/man FILES_MATCHING PATTERN softgpu*)
install(FILES scripts/package/copyright.softgpu RENAME copyright COMPONENT softgpu DESTINATION share/doc/stasis-softgpu)

set(CPACK_COMPONENTS_ALL stasis runtime softgpu)
if(STASIS_CRIU MATCHES "/stasis/criu/bin/criu$")
  list(APPEND CPACK_COMPONENTS_ALL criu)
  install(PROGRAMS ${STASIS_CRIU} COMPONENT criu DESTINATION ${private})
  install(FILES scripts/package/copyright.criu RENAME copyright COMPONENT criu DESTINATION share/doc/stasis-criu)
endif()

# What is installed is built by this target, and not by installing.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)
add_custom_target(package_files)
add_dependencies(package_files stasis stasisd stasis-schedd stasis-init stasis-ghost stasis-sim stasis_shim docs
  softgpud softgpu-smi softgpu_cuda softgpu_cudart softgpu_cublas softgpu_cublaslt softgpu_cudnn softgpu_nccl)
if(TARGET stasis_spank)
  add_dependencies(package_files stasis_spank)
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME stasis)
set(CPACK_PACKAGE_VENDOR Stasis)
set(CPACK_PACKAGE_CONTACT "Stasis <root@localhost>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/packages)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS OFF)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_BINARY_DIR}/lib/softgpu)
set(CPACK_DEBIAN_PACKAGE_SECTION admin)

set(CPACK_DEBIAN_STASIS_PACKAGE_NAME stasis)
set(CPACK_COMPONENT_STASIS_DESCRIPTION "Pause, checkpoint, restore and migrate unmodified CUDA programs
 The command, the agent of a node and the scheduler of a cluster. The package stasis-softgpu has a software device.")
set(CPACK_DEBIAN_STASIS_PACKAGE_DEPENDS stasis-runtime-${PROJECT_VERSION})
set(CPACK_DEBIAN_STASIS_PACKAGE_RECOMMENDS "stasis-criu | criu (>= 4.1)")
set(CPACK_DEBIAN_STASIS_PACKAGE_SUGGESTS stasis-softgpu)
set(CPACK_DEBIAN_STASIS_PACKAGE_CONTROL_EXTRA ${CMAKE_SOURCE_DIR}/scripts/package/postinst
  ${CMAKE_SOURCE_DIR}/scripts/package/prerm ${CMAKE_SOURCE_DIR}/scripts/package/postrm)

set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME stasis-runtime-${PROJECT_VERSION})
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "Interposer of Stasis ${PROJECT_VERSION}
 What is in a task: the interposer and its first process. Tasks and images of this version need it.")

set(CPACK_DEBIAN_SOFTGPU_PACKAGE_NAME stasis-softgpu)
set(CPACK_COMPONENT_SOFTGPU_DESCRIPTION "Software CUDA device for Stasis
 A driver, a runtime and stand-ins for cuBLAS, cuDNN and NCCL that run PTX on the processor: for trials and tests.")
set(CPACK_DEBIAN_SOFTGPU_PACKAGE_DEPENDS "stasis (= ${PROJECT_VERSION})")

set(CPACK_DEBIAN_CRIU_PACKAGE_NAME stasis-criu)
set(CPACK_COMPONENT_CRIU_DESCRIPTION "CRIU for Stasis
 Checkpoint and restore in userspace, newer than that of Debian 12. For Stasis alone: it is in no PATH.")
include(CPack)
