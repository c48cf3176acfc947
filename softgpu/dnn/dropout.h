// Dropout, whose random numbers come from states that the program keeps in device memory.
#ifndef SOFTGPU_DNN_DROPOUT_H_
#define SOFTGPU_DNN_DROPOUT_H_

#include "softgpu/dnn/values.h"

namespace softgpu::dnn {

// What lies in the program's states buffer. Each call goes on where the one before stopped, so that a copy of
// the states is all it takes to go on elsewhere.
struct DropoutStates {
  static constexpr size_t kLanes = 4096;
  uint64_t lane[kLanes];
};

// The states that belong to a seed.
void SeedStates(uint64_t seed, DropoutStates* states);

// One bit an element, in whole words of 64.
size_t ReserveBytes(const Shape& x);

// Draws which elements stay, element i from lane i % kLanes, and writes one bit for each.
void DrawMask(float dropout, size_t count, DropoutStates* states, uint8_t* reserve);

// y = x / (1 - dropout) where the bit says so, else 0.
void ApplyMask(float dropout, const Source& x, const uint8_t* reserve, const Target& y, Arena* arena);

}  // namespace softgpu::dnn

#endif  // SOFTGPU_DNN_DROPOUT_H_
