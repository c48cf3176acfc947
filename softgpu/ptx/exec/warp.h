// Blocks and warps in execution.
//
// A warp is a list of groups: lanes that are at the same instruction of the same activation. One group runs
// at a time. Which one: the deepest call first, then the lowest address, because code is laid out so that
// what follows a branch or a loop lies behind it; groups that meet are merged. A group that runs long while
// others wait is rotated, so that lanes may wait for each other (independent thread scheduling).
//
// A block belongs to one worker thread from its first to its last instruction; nothing here is thread-safe.
#ifndef SOFTGPU_PTX_EXEC_WARP_H_
#define SOFTGPU_PTX_EXEC_WARP_H_

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "softgpu/ptx/exec/access_map.h"
#include "softgpu/ptx/exec/code.h"
#include "softgpu/ptx/exec/grid.h"

namespace softgpu::exec {

class GridState;
struct Block;

// What a handler returns when the running group cannot simply go on.
inline const Inst* const kStopPc = reinterpret_cast<const Inst*>(UINTPTR_MAX);

enum class Stop : uint8_t {
  kNone,        // reached the address of another group
  kSlice,       // the quantum is used up; the group goes on at w.pc
  kSleep,       // as kSlice, and not before w.wake
  kReschedule,  // the running group has been filed or has ended: choose another
  kFault,
};

// One activation of a function by some lanes.
struct Frame {
  const Function* function = nullptr;
  Frame* parent = nullptr;
  const Inst* call = nullptr;  // the call instruction in the parent
  std::byte* rows = nullptr;   // owned, `capacity` bytes
  uint32_t capacity = 0;
  uint32_t live = 0;  // lanes whose stack holds this activation
  uint32_t depth = 0;
  uint32_t local_base = 0, local_top = 0;  // in each lane's local memory
};

enum class GroupState : uint8_t { kReady, kSync, kBarrier };

struct Group {
  const Inst* pc;
  Frame* frame;
  uint32_t mask;
  GroupState state;
  uint8_t barrier;    // id, for kBarrier
  uint64_t last_run;  // when it last ran, in the warp's count of picks
};

struct Warp {
  // What handlers use most.
  std::byte* base[4] = {nullptr, nullptr, nullptr, nullptr};  // by RefBase
  uint32_t mask = 0;                                          // lanes of the running group
  uint32_t alive = 0;                                         // lanes that have not exited
  const Inst* stop = kStopPc;  // the running group stops at or behind this address
  int64_t budget = 0;          // work left in this quantum, in instructions
  Frame* frame = nullptr;
  uint8_t* shared = nullptr;
  uint32_t shared_bytes = 0;
  uint8_t* local = nullptr;   // of lane 0
  uint64_t local_stride = 0;  // bytes from one lane's local memory to the next
  uint32_t local_bytes = 0;   // usable bytes a lane
  const AccessMap* access = nullptr;
  Stop reason = Stop::kNone;
  const Inst* pc = nullptr;  // where the running group goes on
  Block* block = nullptr;
  GridState* grid = nullptr;

  std::vector<Group> groups;  // all but the running one
  std::vector<Frame*> spare_frames;
  uint64_t frame_bytes = 0;  // of all activations that exist, in use or spare
  uint64_t picks = 0;
  int64_t spent = 0;               // work of the running group since it was chosen, when others were ready
  uint64_t wake = 0;               // steady clock ns; 0 = not asleep
  uint32_t index = 0;              // in the block
  uint32_t barrier_mask[16] = {};  // lanes that have arrived in the current phase
  std::byte* specials = nullptr;   // owned

  Warp() = default;
  Warp(const Warp&) = delete;
  Warp& operator=(const Warp&) = delete;
  ~Warp();

  std::byte* Row(Ref ref) const { return base[ref & 3] + (ref & ~3u); }
  uint32_t& Pred(uint32_t offset) const { return *reinterpret_cast<uint32_t*>(base[0] + offset); }
  // The lanes of `pred` (all when absent), with the negation of `flip`.
  uint32_t PredOr(uint32_t offset, bool flip) const {
    if (offset == kNoPredicate) return kAllLanes;
    return flip ? ~Pred(offset) : Pred(offset);
  }
  bool running() const { return mask != 0; }
  uint8_t* LocalOf(unsigned lane) const { return local + lane * local_stride; }

  // Begins `kernel` with the given lanes.
  void Start(const Kernel& kernel, uint32_t lanes);
  // The running group becomes one of the waiting ones.
  void File(const Inst* at, GroupState state, uint8_t barrier = 0);
  // Ends lanes of the running group.
  void ExitLanes(uint32_t lanes);
  // Chooses the next running group; false when none is ready.
  bool Pick(bool oldest);
  // Frees the activations that no lane is in any more, from `frame` up.
  void ReleaseFrames(Frame* from, uint32_t lanes);
  // Null when the stack is too deep.
  Frame* PushFrame(const Function& function, const Inst* call, uint32_t lanes);
  // Makes `frame` the running group's.
  void EnterFrame(Frame* to) {
    frame = to;
    base[kFrameBase] = to->rows;
  }
  // For handlers: go on at `next` after the list of groups changed.
  const Inst* Reschedule(const Inst* next);
  const Inst* Slice(const Inst* next) {
    pc = next;
    reason = Stop::kSlice;
    return kStopPc;
  }
  // Records a fault of `lane` at *i and returns kStopPc.
  const Inst* Fault(FaultKind kind, const Inst* i, unsigned lane, const std::string& what);
  // Thread index of a lane.
  Dim3 ThreadIndex(unsigned lane) const;
  // Finds where the running group (at pc) may meet another one.
  void SetStop();

 private:
  // Null when the activations of this warp would take too much memory.
  Frame* TakeFrame(uint32_t bytes);
};

struct Barrier {
  uint32_t arrived = 0;   // threads
  uint32_t expected = 0;  // 0 = all threads of the block
  uint32_t waiting = 0;   // threads that wait (not those that only arrived)
  uint32_t count = 0;     // threads whose predicate was true
  uint32_t voters = 0;
};

// Storage and state of a resident block; reused for the next block when it is done.
struct Block {
  GridState* grid = nullptr;
  Dim3 index;
  uint64_t linear = 0;
  unsigned worker = 0;
  uint8_t* shared = nullptr;  // owned
  uint32_t shared_bytes = 0;
  uint8_t* local = nullptr;  // owned mapping
  uint64_t local_mapped = 0;
  uint64_t local_stride = 0;
  uint32_t threads_alive = 0;
  uint32_t dynamic_base = 0;  // shared offset of extern arrays
  Barrier barriers[16];
  std::vector<std::unique_ptr<Warp>> warps;
  size_t next_warp = 0;

  Block() = default;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block();

  // Arrival of the running group of `w` at barrier `id`; see ops_barrier.cc.
  bool Complete(const Barrier& barrier) const {
    return barrier.arrived >= (barrier.expected ? barrier.expected : threads_alive);
  }
  // Lets the threads that wait at `id` go on and starts the next phase.
  void Release(unsigned id);
  // Threads have exited: barriers that wait for all others may be complete now.
  void OnExit(uint32_t threads);
};

enum class WarpOutcome : uint8_t {
  kRan,      // can go on
  kAsleep,   // can go on later
  kBlocked,  // waits for other warps
  kDone,
  kFaulted,
};

// Runs a warp for one quantum.
WarpOutcome RunWarp(Warp& w);

// State of a launch that running code sees.
class GridState {
 public:
  const LaunchConfig& config() const { return config_; }
  virtual void SetFault(Fault fault) = 0;
  uint64_t Clock() const;  // cycles at the device's clock

 protected:
  explicit GridState(LaunchConfig config) : config_(std::move(config)) {}
  virtual ~GridState() = default;
  LaunchConfig config_;
};

// Steady clock, nanoseconds.
uint64_t NowNanoseconds();

// Calls visit(lane) for each set bit, from the lowest.
template <typename Visit>
inline void ForEachLane(uint32_t mask, Visit visit) {
  for (; mask != 0; mask &= mask - 1) visit(static_cast<unsigned>(std::countr_zero(mask)));
}

}  // namespace softgpu::exec

#endif  // SOFTGPU_PTX_EXEC_WARP_H_
