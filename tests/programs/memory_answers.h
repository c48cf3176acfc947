// What the parts of memory_answers share.
#ifndef MEMORY_ANSWERS_H_
#define MEMORY_ANSWERS_H_

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <string>

namespace answers {

constexpr size_t kMiB = 1 << 20;

// A function of the driver, which the program ends without.
void* Symbol(const char* name);
#define TEXT_OF(name) #name
#define TEXT(name) TEXT_OF(name)
#define CU(name) reinterpret_cast<decltype(&name)>(answers::Symbol(TEXT(name)))

void Say(const std::string& what, CUresult result);

struct Named {
  const char* name;
  CUdeviceptr base;
  size_t size;
};
// All that the driver says of the byte at `offset`.
void SayAttributes(const Named& memory, size_t offset);

// By a kernel on the current device, which is not waited for.
void FillCells(CUdeviceptr at, size_t count, unsigned seed);
// By a kernel on the current device.
unsigned SumOf(CUdeviceptr at, size_t bytes);

void WaitForLine();

// The modes that have a source of their own.
int Pools();
int Host();

}  // namespace answers

#endif  // MEMORY_ANSWERS_H_
