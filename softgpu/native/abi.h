// What softgpu's driver and the native kernel agree on. The kernel is an entry of a PTX module, marked with
// the pragma, whose parameter block is a body's address and the bytes of its arguments.
#ifndef SOFTGPU_NATIVE_ABI_H_
#define SOFTGPU_NATIVE_ABI_H_

#include "softgpu/native/native.h"

namespace softgpu::native {

inline constexpr char kPragma[] = "softgpu.native";
inline constexpr size_t kParameterBytes = sizeof(Body) + kMaxArguments;

struct Parameters {
  Body body;
  unsigned char arguments[kMaxArguments];
};
static_assert(sizeof(Parameters) == kParameterBytes);

}  // namespace softgpu::native

#endif  // SOFTGPU_NATIVE_ABI_H_
