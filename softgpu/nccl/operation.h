// What is launched: operations of one rank, as they travel to the kernel that carries them out.
#ifndef SOFTGPU_NCCL_OPERATION_H_
#define SOFTGPU_NCCL_OPERATION_H_

#include <nccl.h>

#include <cstdint>

#include "softgpu/native/native.h"
#include "softgpu/nccl/reduce.h"

namespace softgpu::nccl {

enum class Kind : uint8_t {
  kBroadcast,
  kReduce,
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kAlltoAll,
  kGather,
  kScatter,
  kSend,
  kReceive,
};
const char* KindName(Kind kind);

struct Operation {
  Kind kind = Kind::kSend;
  uint8_t type = ncclInt8;
  Reduction reduction = Reduction::kNone;
  // `scalar` is the device address of the factor, read when the operation runs.
  bool scalar_on_device = false;
  int32_t peer = 0;  // the root of a collective
  // Elements, counted as the call counts them.
  uint64_t count = 0;
  uint64_t send = 0;
  uint64_t receive = 0;
  uint64_t scalar = 0;
};

// The arguments of a launch. More operations than fit here are kept with the communicator, as list number
// `list`. The communicator is named, not pointed to: a graph may be launched after its end.
struct LaunchedOperations {
  static constexpr uint32_t kInline = 24;
  uint64_t communicator = 0;
  uint64_t list = 0;
  uint32_t count = 0;
  uint32_t captured = 0;
  Operation operations[kInline];
};
static_assert(sizeof(LaunchedOperations) <= native::kMaxArguments);

// The kernel.
void RunOperations(const LaunchedOperations& launched, native::Device& device);

}  // namespace softgpu::nccl

#endif  // SOFTGPU_NCCL_OPERATION_H_
