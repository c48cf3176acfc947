# Texts and images that the real compiler makes of testdata/*.cu, for the tests of the front end.
set(SOFTGPU_PTX_TESTDATA ${CMAKE_CURRENT_BINARY_DIR}/testdata)
file(MAKE_DIRECTORY ${SOFTGPU_PTX_TESTDATA})
set(SOFTGPU_PTX_TESTDATA_FILES)

# softgpu_ptx_data(OUTPUT SOURCE option...): one run of nvcc.
function(softgpu_ptx_data output source)
  set(path ${SOFTGPU_PTX_TESTDATA}/${output})
  add_custom_command(OUTPUT ${path}
    COMMAND ${STASIS_NVCC} -std=c++17 -Wno-deprecated-gpu-targets ${ARGN} -o ${path}
            ${CMAKE_CURRENT_SOURCE_DIR}/testdata/${source}
    DEPENDS testdata/${source} COMMENT "nvcc ${output}" VERBATIM)
  set(SOFTGPU_PTX_TESTDATA_FILES ${SOFTGPU_PTX_TESTDATA_FILES} ${path} PARENT_SCOPE)
endfunction()

softgpu_ptx_data(language_75.ptx language.cu -ptx -arch=compute_75)
softgpu_ptx_data(language_debug_80.ptx language.cu -ptx -arch=compute_80 -G)
softgpu_ptx_data(language_lineinfo_90a.ptx language.cu -ptx -arch=compute_90a -lineinfo)
softgpu_ptx_data(language_rdc_121.ptx language.cu -ptx -arch=compute_121 -rdc=true -use_fast_math)
softgpu_ptx_data(language_rdc_debug_75.ptx language.cu -ptx -arch=compute_75 -rdc=true -G)
softgpu_ptx_data(groups_75.ptx groups.cu -ptx -arch=compute_75)
softgpu_ptx_data(groups_100f.ptx groups.cu -ptx -arch=compute_100f -lineinfo)
softgpu_ptx_data(groups_debug_90.ptx groups.cu -ptx -arch=compute_90 -G)
softgpu_ptx_data(sort_75.ptx sort.cu -ptx -arch=compute_75)
softgpu_ptx_data(unit_a_75.ptx unit_a.cu -ptx -arch=compute_75 -rdc=true)
softgpu_ptx_data(unit_b_75.ptx unit_b.cu -ptx -arch=compute_75 -rdc=true)

softgpu_ptx_data(tiny_75.ptx tiny.cu -ptx -arch=compute_75)
softgpu_ptx_data(tiny_90a.ptx tiny.cu -ptx -arch=compute_90a)
softgpu_ptx_data(tiny_120.ptx tiny.cu -ptx -arch=compute_120)
softgpu_ptx_data(tiny_default.fatbin tiny.cu -fatbin)
softgpu_ptx_data(tiny_speed.fatbin tiny.cu -fatbin --compress-mode=speed)
softgpu_ptx_data(tiny_size.fatbin tiny.cu -fatbin --compress-mode=size)
softgpu_ptx_data(tiny_none.fatbin tiny.cu -fatbin --compress-mode=none)
softgpu_ptx_data(tiny_debug.fatbin tiny.cu -fatbin -G)
softgpu_ptx_data(tiny_lineinfo.fatbin tiny.cu -fatbin -lineinfo)
softgpu_ptx_data(tiny_90a.fatbin tiny.cu -fatbin -arch=sm_90a)
softgpu_ptx_data(tiny_100f.fatbin tiny.cu -fatbin -arch=sm_100f)
softgpu_ptx_data(tiny_all.fatbin tiny.cu -fatbin -arch=all-major)
softgpu_ptx_data(tiny_two.fatbin tiny.cu -fatbin -gencode arch=compute_75,code=[compute_75,sm_75]
                 -gencode arch=compute_90,code=compute_90)
softgpu_ptx_data(tiny_machine.fatbin tiny.cu -fatbin -gencode arch=compute_75,code=sm_75)
softgpu_ptx_data(tiny_75.cubin tiny.cu -cubin -arch=sm_75)
softgpu_ptx_data(language_75.fatbin language.cu -fatbin -arch=sm_75)

add_custom_target(softgpu_ptx_testdata DEPENDS ${SOFTGPU_PTX_TESTDATA_FILES})
