// Virtual memory that the program makes itself, as PyTorch's expandable segments are.
#include <vector>

#include "matrix.h"

namespace {

using matrix::LaunchMix;
using matrix::Say;
using matrix::SayHash;

CUmemAllocationProp Properties() {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  return properties;
}

size_t Granularity() {
  const CUmemAllocationProp properties = Properties();
  size_t granularity = 0;
  CHECK(cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  return granularity;
}

void Access(CUdeviceptr address, size_t bytes) {
  CUmemAccessDesc access{};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CHECK(cuMemSetAccess(address, bytes, &access, 1));
}

unsigned* Pointer(CUdeviceptr address) { return reinterpret_cast<unsigned*>(address); }

// ---- A segment that grows and shrinks within a reserved range.

size_t piece;
CUdeviceptr range;
std::vector<CUmemGenericAllocationHandle> handles;

void Grow() {
  const CUmemAllocationProp properties = Properties();
  CUmemGenericAllocationHandle handle = 0;
  CHECK(cuMemCreate(&handle, piece, &properties, 0));
  const CUdeviceptr at = range + handles.size() * piece;
  CHECK(cuMemMap(at, piece, 0, handle, 0));
  Access(at, piece);
  CHECK(cuMemsetD32(at, 5 + static_cast<unsigned>(handles.size()), piece / 4));
  handles.push_back(handle);
}

void Shrink() {
  const CUdeviceptr at = range + (handles.size() - 1) * piece;
  CHECK(cuMemUnmap(at, piece));
  CHECK(cuMemRelease(handles.back()));
  handles.pop_back();
}

void MakeSegment() {
  CHECK(cudaFree(nullptr));
  piece = Granularity();
  CHECK(cuMemAddressReserve(&range, 16 * piece, 0, 0, 0));
  Grow();
  Grow();
}

void StepSegment(unsigned number) {
  for (size_t i = 0; i < handles.size(); ++i) {
    LaunchMix(Pointer(range + i * piece), 1000, number);
    SayHash("piece", Pointer(range + i * piece), 8192);
  }
  CUmemLocation device{CU_MEM_LOCATION_TYPE_DEVICE, 0};
  unsigned long long flags = 0;
  CHECK(cuMemGetAccess(&flags, &device, range));
  CUmemGenericAllocationHandle retained = 0;
  CHECK(cuMemRetainAllocationHandle(&retained, Pointer(range)));
  Say("pieces %zu access %llu same %d", handles.size(), flags, retained == handles[0]);
  CHECK(cuMemRelease(retained));
  if (number % 3 == 0) {
    Shrink();
  } else {
    Grow();
  }
}

void EndSegment() {
  while (!handles.empty()) Shrink();
  CHECK(cuMemAddressFree(range, 16 * piece));
}
MATRIX_CASE(segment, "program-vmm", "kPhysical kAddressRange", MakeSegment, StepSegment, EndSegment);

// ---- One piece of physical memory under two addresses, whose handle is released while it is mapped.

CUdeviceptr views[2];

void MakeAlias() {
  CHECK(cudaFree(nullptr));
  piece = Granularity();
  const CUmemAllocationProp properties = Properties();
  CUmemGenericAllocationHandle handle = 0;
  CHECK(cuMemCreate(&handle, piece, &properties, 0));
  for (CUdeviceptr& view : views) {
    CHECK(cuMemAddressReserve(&view, piece, 0, 0, 0));
    CHECK(cuMemMap(view, piece, 0, handle, 0));
    Access(view, piece);
  }
  CHECK(cuMemRelease(handle));
  CHECK(cuMemsetD32(views[0], 1, piece / 4));
}

void StepAlias(unsigned number) {
  LaunchMix(Pointer(views[number % 2]), 2000, number);
  CHECK(cudaDeviceSynchronize());
  LaunchMix(Pointer(views[(number + 1) % 2]), 1000, number);
  SayHash("first", Pointer(views[0]), 8000);
  SayHash("second", Pointer(views[1]), 8000);
}

void EndAlias() {
  for (CUdeviceptr view : views) {
    CHECK(cuMemUnmap(view, piece));
    CHECK(cuMemAddressFree(view, piece));
  }
}
MATRIX_CASE(alias, "vmm-alias", "kPhysical kAddressRange", MakeAlias, StepAlias, EndAlias);

}  // namespace
