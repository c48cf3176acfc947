// Pinned and registered memory of the host, with all flags.
#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "memory_answers.h"

namespace answers {
namespace {

constexpr size_t kBytes = 9 * 4096;

struct HostBlock {
  Named memory;
  bool read_only;
};

std::vector<HostBlock> blocks;

void Remember(const char* name, void* pointer, size_t size, bool read_only) {
  blocks.push_back({{name, reinterpret_cast<CUdeviceptr>(pointer), size}, read_only});
}

void AddPinned(unsigned flags) {
  void* pointer = nullptr;
  Say("pinned " + std::to_string(flags), CU(cuMemHostAlloc)(&pointer, kBytes - 100, flags));
  Remember("pinned", pointer, kBytes - 100, false);
}

// `inset`: how far from the pages' borders it begins and ends.
void AddRegistered(unsigned flags, size_t inset, bool protect) {
  void* const pages = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  unsigned* const cells = static_cast<unsigned*>(pages);
  for (size_t i = 0; i < kBytes / sizeof *cells; ++i) cells[i] = static_cast<unsigned>(i) * 17 + flags;
  if (protect) mprotect(pages, kBytes, PROT_READ);
  void* const begin = static_cast<char*>(pages) + inset;
  const CUresult result = CU(cuMemHostRegister)(begin, kBytes - 2 * inset, flags);
  Say("registered " + std::to_string(flags), result);
  if (result == CUDA_SUCCESS)
    Remember("registered", begin, kBytes - 2 * inset, (flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0);
}

void Make() {
  for (int device : {1, 0}) {
    cudaSetDevice(device);
    cudaFree(nullptr);
    for (unsigned flags = 0; flags < 8; ++flags) AddPinned(flags);
    const unsigned both = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
    for (unsigned flags :
         {0u, unsigned{CU_MEMHOSTREGISTER_PORTABLE}, unsigned{CU_MEMHOSTREGISTER_DEVICEMAP}, both}) {
      AddRegistered(flags, 0, false);
      AddRegistered(flags | CU_MEMHOSTREGISTER_READ_ONLY, 256, true);
    }
    AddRegistered(both, 512, false);
    AddRegistered(CU_MEMHOSTREGISTER_READ_ONLY, 0, false);
    AddRegistered(0, 0, true);
    AddRegistered(16, 0, false);
  }
  for (const HostBlock& block : blocks)
    if (!block.read_only) FillCells(block.memory.base, block.memory.size / 4, 3);
  std::printf("filled: %s\n", cudaGetErrorName(cudaDeviceSynchronize()));
  const unsigned on = 1;
  for (size_t i = 0; i < blocks.size(); i += 3)
    Say("sync memops",
        CU(cuPointerSetAttribute)(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, blocks[i].memory.base + 1));
}

void SayFlags(const Named& memory, size_t offset) {
  void* const pointer = reinterpret_cast<void*>(memory.base + offset);
  unsigned flags = 99;
  CUdeviceptr device = 0;
  Say("flags", CU(cuMemHostGetFlags)(&flags, pointer));
  Say("device", CU(cuMemHostGetDevicePointer)(&device, pointer, 0));
  std::printf("flags %u, the same address %d\n", flags, device == memory.base + offset);
  Say("device by flags", CU(cuMemHostGetDevicePointer)(&device, pointer, 1));
}

void SayErrors(const Named& memory) {
  void* const pointer = reinterpret_cast<void*>(memory.base);
  void* const inside = reinterpret_cast<void*>(memory.base + 4096);
  Say("twice", CU(cuMemHostRegister)(pointer, memory.size, 0));
  Say("overlapping", CU(cuMemHostRegister)(inside, 4096, 0));
  Say("inside", CU(cuMemHostUnregister)(inside));
  Say("inside", CU(cuMemFreeHost)(inside));
  const bool pinned = memory.name[0] == 'p';
  Say("the other way", pinned ? CU(cuMemHostUnregister)(pointer) : CU(cuMemFreeHost)(pointer));
}

void SayBlock(const HostBlock& block, unsigned seed) {
  const Named& memory = block.memory;
  SayFlags(memory, 0);
  SayFlags(memory, memory.size - 1);
  SayAttributes(memory, 0);
  SayAttributes(memory, memory.size - 1);
  SayErrors(memory);
  for (int device : {1, 0}) {
    cudaSetDevice(device);
    std::printf("device %d sees %u\n", device, SumOf(memory.base, memory.size));
    if (block.read_only) continue;
    FillCells(memory.base, memory.size / 4, seed);
    std::printf("filled: %s", cudaGetErrorName(cudaDeviceSynchronize()));
    std::printf(" %u\n", reinterpret_cast<unsigned*>(memory.base)[1000]);
  }
}

}  // namespace

int Host() {
  Make();
  for (unsigned round = 0; round < 2; ++round) {
    for (const HostBlock& block : blocks) SayBlock(block, round);
    if (round == 0) WaitForLine();
  }
  for (const HostBlock& block : blocks) {
    void* const pointer = reinterpret_cast<void*>(block.memory.base);
    const bool pinned = block.memory.name[0] == 'p';
    Say("end", pinned ? CU(cuMemFreeHost)(pointer) : CU(cuMemHostUnregister)(pointer));
    unsigned flags = 0;
    Say("gone", CU(cuMemHostGetFlags)(&flags, pointer));
  }
  return 0;
}

}  // namespace answers
