// Overwrites parts of exported device memory, as the holder of an image does that does not have them. The
// descriptors are inherited; lines on stdin: "extent FD SIZE", then "spoil OFFSET SIZE" for parts of the
// extent named last.
#include <cuda.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

void Check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "%s: %d\n", call, static_cast<int>(result));
  std::exit(1);
}

CUdeviceptr Map(int fd, size_t size) {
  CUmemGenericAllocationHandle handle{};
  Check(cuMemImportFromShareableHandle(&handle, reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
        "cuMemImportFromShareableHandle");
  CUdeviceptr address = 0;
  Check(cuMemAddressReserve(&address, size, 0, 0, 0), "cuMemAddressReserve");
  Check(cuMemMap(address, size, 0, handle, 0), "cuMemMap");
  CUmemAccessDesc access{};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  Check(cuMemSetAccess(address, size, &access, 1), "cuMemSetAccess");
  return address;
}

}  // namespace

int main() {
  Check(cuInit(0), "cuInit");
  CUcontext context = nullptr;
  Check(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
  Check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  CUdeviceptr extent = 0;
  char what[16];
  unsigned long long first = 0, second = 0;
  while (std::scanf("%15s %llu %llu", what, &first, &second) == 3) {
    if (what[0] == 'e')
      extent = Map(static_cast<int>(first), second);
    else
      Check(cuMemsetD8_v2(extent + first, 0xa5, second), "cuMemsetD8");
  }
  Check(cuCtxSynchronize(), "cuCtxSynchronize");
  return 0;
}
