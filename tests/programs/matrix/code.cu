// Device code: modules, libraries, kernels, functions and their attributes, variables, links.
#include <cstring>
#include <string>

#include "matrix.h"

namespace {

using matrix::Say;
using matrix::SayHash;

// A kernel that adds to a variable of its module, with a constant.
const char kCode[] = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .global .align 4 .u32 total = 11;
.visible .const .align 4 .u32 weight = 3;
.visible .entry count(.param .u64 out, .param .u32 amount)
{
  .reg .u32 %r<6>;
  .reg .u64 %d<3>;
  ld.param.u64 %d1, [out];
  cvta.to.global.u64 %d2, %d1;
  ld.param.u32 %r1, [amount];
  ld.const.u32 %r2, [weight];
  ld.global.u32 %r3, [total];
  mad.lo.u32 %r4, %r1, %r2, %r3;
  st.global.u32 [total], %r4;
  st.global.u32 [%d2], %r4;
  ret;
}
.visible .entry spare() { ret; }
)";

CUdeviceptr out;

void MakeOut() {
  CHECK(cudaFree(nullptr));
  CHECK(cuMemAlloc(&out, 64));
  CHECK(cuMemsetD32(out, 0, 16));
}

void Launch(CUfunction function, unsigned amount) {
  void* arguments[] = {&out, &amount};
  CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
  unsigned value = 0;
  CHECK(cuMemcpyDtoH(&value, out, sizeof value));
  Say("%u", value);
}

// ---- A module, one that comes and goes, and what is asked of both.

CUmodule module, passing;
CUfunction count;
CUdeviceptr total;

void MakeModule() {
  MakeOut();
  size_t bytes = 0;
  CHECK(cuModuleLoadData(&module, kCode));
  CHECK(cuModuleGetFunction(&count, module, "count"));
  CHECK(cuModuleGetGlobal(&total, &bytes, module, "total"));
}

void StepModule(unsigned number) {
  Launch(count, number);
  CUdeviceptr again = 0;
  size_t bytes = 0;
  CHECK(cuModuleGetGlobal(&again, &bytes, module, "total"));
  unsigned value = 0, functions = 0;
  CHECK(cuMemcpyDtoH(&value, total, sizeof value));
  CHECK(cuMemsetD32(total, value + 1, 1));
  CHECK(cuModuleGetFunctionCount(&functions, module));
  CUfunction every[2];
  CHECK(cuModuleEnumerateFunctions(every, 2, module));
  CUmodule owner = nullptr;
  CHECK(cuFuncGetModule(&owner, every[1]));
  Say("same %d %d %d of %u", again == total, every[0] == count || every[1] == count, owner == module, functions);
  if (passing != nullptr) {
    CUfunction other = nullptr;
    CHECK(cuModuleGetFunction(&other, passing, "count"));
    Launch(other, 100 + number);
    CHECK(cuModuleUnload(passing));
  }
  CHECK(cuModuleLoadDataEx(&passing, kCode, 0, nullptr, nullptr));
}

void EndModule() {
  CHECK(cuModuleUnload(passing));
  CHECK(cuModuleUnload(module));
  CHECK(cuMemFree(out));
}
MATRIX_CASE(modules, "module", "kModule kFunction kVariable", MakeModule, StepModule, EndModule);

// ---- Functions: attributes and configuration.

void MakeFunction() {
  MakeModule();
  CHECK(cuFuncSetAttribute(count, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60000));
  CHECK(cuFuncSetAttribute(count, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 40));
  CHECK(cuFuncSetCacheConfig(count, CU_FUNC_CACHE_PREFER_SHARED));
}

void StepFunction(unsigned number) {
  for (CUfunction_attribute attribute :
       {CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
        CU_FUNC_ATTRIBUTE_NUM_REGS, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK}) {
    int value = -1;
    CHECK(cuFuncGetAttribute(&value, attribute, count));
    Say("%d=%d", attribute, value);
  }
  const char* name = nullptr;
  CHECK(cuFuncGetName(&name, count));
  Say("%s", name);
  Launch(count, number);
  CHECK(cuFuncSetAttribute(count, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 50000 + 16 * static_cast<int>(number)));
}

void EndFunction() {
  CHECK(cuModuleUnload(module));
  CHECK(cuMemFree(out));
}
MATRIX_CASE(functions, "function-attributes", "kFunction kModule", MakeFunction, StepFunction, EndFunction);

// ---- A library, which belongs to no context, and its kernels.

CUlibrary library;
CUkernel kernel;

void MakeLibrary() {
  MakeOut();
  CHECK(cuLibraryLoadData(&library, kCode, nullptr, nullptr, 0, nullptr, nullptr, 0));
  CHECK(cuLibraryGetKernel(&kernel, library, "count"));
  CHECK(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 55000, kernel, 0));
}

void StepLibrary(unsigned number) {
  CUfunction function = nullptr;
  CUmodule inside = nullptr;
  CUkernel every[2] = {};
  CUlibrary owner = nullptr;
  CUdeviceptr variable = 0;
  size_t bytes = 0;
  int value = -1;
  Launch(reinterpret_cast<CUfunction>(kernel), number);
  CHECK(cuKernelGetFunction(&function, kernel));
  Launch(function, 10 * number);
  CHECK(cuLibraryGetModule(&inside, library));
  CHECK(cuModuleGetFunction(&function, inside, "count"));
  Launch(function, 100 * number);
  CHECK(cuLibraryEnumerateKernels(every, 2, library));
  CHECK(cuKernelGetLibrary(&owner, kernel));
  CHECK(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel, 0));
  CHECK(cuLibraryGetGlobal(&variable, &bytes, library, "total"));
  unsigned now = 0;
  CHECK(cuMemcpyDtoH(&now, variable, sizeof now));
  Say("same %d %d shared %d variable %u", every[0] == kernel || every[1] == kernel, owner == library, value, now);
}

void EndLibrary() {
  CHECK(cuLibraryUnload(library));
  CHECK(cuMemFree(out));
}
MATRIX_CASE(libraries, "library", "kLibrary kKernel kFunction kModule kVariable", MakeLibrary, StepLibrary, EndLibrary);

// ---- Variables of the program itself, by symbol, and their addresses.

__device__ unsigned in_device[300] = {1, 2, 3};
__constant__ unsigned in_constant[4] = {5, 6, 7, 8};
__device__ unsigned* pointer = in_device;

__global__ void UseVariables(unsigned number) {
  const unsigned i = threadIdx.x;
  pointer[i] = pointer[i] * 31 + in_constant[i & 3] + number;
}

unsigned* address;

void MakeVariables() {
  void* found = nullptr;
  CHECK(cudaGetSymbolAddress(&found, in_device));
  address = static_cast<unsigned*>(found);
}

void StepVariables(unsigned number) {
  UseVariables<<<1, 300>>>(number);
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  void* again = nullptr;
  CHECK(cudaGetSymbolAddress(&again, in_device));
  SayHash("device", address, sizeof in_device);
  Say("same %d", again == address);
  CHECK(cudaMemcpyToSymbol(in_constant, &number, sizeof number, (number & 3) * sizeof number));
}
MATRIX_CASE(variables, "variables", "kVariable", MakeVariables, StepVariables, nullptr);

// ---- Links: one completed and kept, one new in every step.

CUlinkState link;
void* image;

void Link(CUlinkState* state) {
  CHECK(cuLinkCreate(0, nullptr, nullptr, state));
  CHECK(cuLinkAddData(*state, CU_JIT_INPUT_PTX, const_cast<char*>(kCode), sizeof kCode, "code", 0, nullptr, nullptr));
}

void Complete(CUlinkState state, void** code) {
  size_t bytes = 0;
  CHECK(cuLinkComplete(state, code, &bytes));
  Say("bytes %d", bytes > 0);
}

void MakeLink() {
  MakeOut();
  Link(&link);
  Complete(link, &image);
}

void StepLink(unsigned number) {
  CHECK(cuModuleLoadData(&module, image));
  CHECK(cuModuleGetFunction(&count, module, "count"));
  Launch(count, number);
  CHECK(cuModuleUnload(module));
  CHECK(cuLinkDestroy(link));
  Link(&link);
  Complete(link, &image);
}

void EndLink() {
  CHECK(cuLinkDestroy(link));
  CHECK(cuMemFree(out));
}
MATRIX_CASE(links, "link", "kLink kModule", MakeLink, StepLink, EndLink);

// ---- A link that is not complete.

void MakeOpenLink() {
  MakeOut();
  Link(&link);
}

void StepOpenLink(unsigned number) {
  Complete(link, &image);
  CHECK(cuModuleLoadData(&module, image));
  CHECK(cuModuleGetFunction(&count, module, "count"));
  Launch(count, number);
  CHECK(cuModuleUnload(module));
  CHECK(cuLinkDestroy(link));
  Link(&link);
}
MATRIX_CASE(open_link, "link-incomplete", "kLink", MakeOpenLink, StepOpenLink, EndLink, "reconstruct cuLinkCreate");

}  // namespace
