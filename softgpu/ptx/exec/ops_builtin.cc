// Functions that PTX calls and the device runtime provides: vprintf, malloc, free, __assertfail,
// cudaGraphSetConditional.
#include <cstring>

#include "softgpu/ptx/exec/format.h"
#include "softgpu/ptx/exec/memory.h"
#include "softgpu/ptx/exec/ops.h"

namespace softgpu::exec {
namespace {

constexpr size_t kMaxString = 1 << 20;

// One lane's view of the call's arguments and result.
class LaneCall {
 public:
  LaneCall(const Warp& w, const Inst* i, unsigned lane) : w_(w), site_(*i->call), lane_(lane) {}

  uint64_t Argument(size_t n) const {
    if (n >= site_.args.size()) return 0;
    uint64_t value = 0;
    std::memcpy(&value, Place(site_.args[n]), std::min<size_t>(site_.args[n].size, sizeof value));
    return value;
  }
  void Return(uint64_t value) const {
    if (site_.results.empty()) return;
    std::memcpy(Place(site_.results[0]), &value, std::min<size_t>(site_.results[0].size, sizeof value));
  }

 private:
  uint8_t* Place(const CallSlot& s) const {
    if (!s.is_register) return w_.LocalOf(lane_) + w_.frame->local_base + s.offset;
    return reinterpret_cast<uint8_t*>(w_.Row(s.ref)) + size_t{lane_} * s.size;
  }

  const Warp& w_;
  const CallSite& site_;
  unsigned lane_;
};

class GuestArguments final : public FormatArguments {
 public:
  GuestArguments(const Warp& w, unsigned lane, uint64_t buffer) : w_(w), lane_(lane), buffer_(buffer) {}

  bool Read(uint64_t offset, unsigned bytes, uint64_t* value) override {
    const uint8_t* p = Translate(w_, lane_, MemSpace::kGeneric, buffer_ + offset, bytes, false);
    if (!p) return false;
    *value = 0;
    std::memcpy(value, p, bytes);
    return true;
  }
  bool ReadString(uint64_t address, std::string* text) override {
    return ReadGuestString(w_, lane_, address, kMaxString, text);
  }

 private:
  const Warp& w_;
  unsigned lane_;
  uint64_t buffer_;
};

// False when the lane's arguments lie in memory that it may not read.
bool Vprintf(Warp& w, const LaneCall& call, unsigned lane) {
  if (call.Argument(0) == 0) {
    call.Return(static_cast<uint64_t>(-1));
    return true;
  }
  std::string format, text;
  if (!ReadGuestString(w, lane, call.Argument(0), kMaxString, &format)) return false;
  GuestArguments arguments(w, lane, call.Argument(1));
  unsigned count = 0;
  if (!FormatText(format, &arguments, &text, &count)) return false;
  w.grid->config().services->Print(text);
  // "The number of arguments parsed": CUDA C++ Programming Guide, formatted output.
  call.Return(count);
  return true;
}

void PrintAssertion(Warp& w, const LaneCall& call, unsigned lane) {
  std::string message, file, function;
  if (!ReadGuestString(w, lane, call.Argument(0), kMaxString, &message)) message = "?";
  if (!ReadGuestString(w, lane, call.Argument(1), kMaxString, &file)) file = "?";
  if (!ReadGuestString(w, lane, call.Argument(3), kMaxString, &function)) function = "?";
  Dim3 b = w.block->index, t = w.ThreadIndex(lane);
  char place[160];
  std::snprintf(place, sizeof place, ": block: [%u,%u,%u], thread: [%u,%u,%u] Assertion `", b.x, b.y, b.z,
                t.x, t.y, t.z);
  w.grid->config().services->Print(file + ":" + std::to_string(static_cast<uint32_t>(call.Argument(2))) +
                                   ": " + function + place + message + "` failed.\n");
}

}  // namespace

const Inst* OpBuiltin(Warp& w, const Inst* i) {
  DeviceServices* services = w.grid->config().services;
  for (uint32_t m = w.mask; m != 0; m &= m - 1) {
    unsigned lane = static_cast<unsigned>(std::countr_zero(m));
    LaneCall call(w, i, lane);
    switch (i->call->builtin) {
      case Builtin::kVprintf:
        if (!Vprintf(w, call, lane)) {
          return w.Fault(FaultKind::kIllegalAddress, i, lane, "printf reads memory that is not accessible");
        }
        break;
      case Builtin::kMalloc:
        call.Return(services->Malloc(call.Argument(0)));
        break;
      case Builtin::kFree:
        if (call.Argument(0) != 0) services->Free(call.Argument(0));
        break;
      case Builtin::kAssertFail:
        PrintAssertion(w, call, lane);
        break;
      case Builtin::kSetConditional:
        if (!services->SetCondition(call.Argument(0), static_cast<uint32_t>(call.Argument(1)))) {
          return w.Fault(FaultKind::kIllegalAddress, i, lane,
                         "cudaGraphSetConditional of a handle that is none of this context");
        }
        break;
      case Builtin::kNone:
        break;
    }
  }
  if (i->call->builtin == Builtin::kAssertFail) {
    return w.Fault(FaultKind::kAssert, i, static_cast<unsigned>(std::countr_zero(w.mask)),
                   "device-side assert");
  }
  return i + 1;
}

}  // namespace softgpu::exec
