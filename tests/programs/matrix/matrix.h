// The object matrix: one small program, a case, for each kind of object, and for pairs that interact. A case makes its
// objects once and uses all of them in every step; what a step prints depends on the steps before it and nothing else, so
// that a test can disturb the program at any moment and compare.
#ifndef MATRIX_H_
#define MATRIX_H_

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstddef>

namespace matrix {

struct Case {
  const char* name;
  // Rows of base/object_kinds.inc that it holds an object of, by identifier, separated by blanks.
  const char* kinds;
  void (*make)();
  void (*step)(unsigned number);  // from 1
  void (*end)();                  // gives everything back; may be null
  // Of a case that is refused although its kinds are restored: "BY TEXT", the text one that the refusal has. BY is a strategy,
  // both, or driver: the driver's own refusal, under driver-checkpoint.
  const char* refused;
  // "processes": of several processes, which stand still together or not at all.
  const char* ways;
};

// Cases add themselves before main().
struct Registrar {
  explicit Registrar(const Case& added);
};

#define MATRIX_CASE(identifier, ...) static const matrix::Registrar identifier##_registrar(matrix::Case{__VA_ARGS__})

void Check(cudaError_t error, const char* call, int line);
void Check(CUresult result, const char* call, int line);
#define CHECK(call) matrix::Check((call), #call, __LINE__)

// Adds to what the step prints.
void Say(const char* format, ...) __attribute__((format(printf, 1, 2)));
// The hash of memory that the device, or the host, can read. Waits for all work of the device.
void SayHash(const char* what, const void* memory, size_t bytes);

// cells[i] = cells[i] * a + seed + i; no cell is touched by two threads.
__global__ void Mix(unsigned* cells, unsigned count, unsigned seed);
void LaunchMix(unsigned* cells, unsigned count, unsigned seed, cudaStream_t stream = nullptr);

// Device memory of `count` cells with a pattern.
unsigned* Cells(unsigned count, unsigned seed);

// This program's path. Started with `--child FD` it runs the function that a ChildRegistrar has named.
const char* Program();
struct ChildRegistrar {
  explicit ChildRegistrar(int (*child)(int fd));
};

}  // namespace matrix

#endif  // MATRIX_H_
