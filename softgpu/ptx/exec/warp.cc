#include "softgpu/ptx/exec/warp.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>

namespace softgpu::exec {
namespace {

constexpr int64_t kSlice = 8192;         // instructions before a warp gives way
constexpr int64_t kRotateAfter = 65536;  // instructions before a group gives way to others of its warp
constexpr uint32_t kMaxDepth = 2048;
constexpr uint64_t kMaxFrameBytes = 128 << 20;  // registers of all activations of a warp

void FreeFrame(Frame* f) {
  std::free(f->rows);
  delete f;
}

uint32_t AlignUp(uint32_t value, uint32_t align) { return (value + align - 1) & ~(align - 1); }

}  // namespace

uint64_t NowNanoseconds() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

uint64_t GridState::Clock() const {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(NowNanoseconds()) * config_.clock_khz /
                               1000000);
}

Warp::~Warp() {
  // Activations still in use after a fault or a cancelled launch hang on the groups; each is freed once.
  std::vector<Frame*> used;
  auto add = [&](Frame* f) {
    for (; f != nullptr; f = f->parent) {
      if (std::find(used.begin(), used.end(), f) != used.end()) break;
      used.push_back(f);
    }
  };
  for (const Group& g : groups) add(g.frame);
  if (mask != 0) add(frame);
  for (Frame* f : used) FreeFrame(f);
  for (Frame* f : spare_frames) FreeFrame(f);
  std::free(specials);
}

Frame* Warp::TakeFrame(uint32_t bytes) {
  for (size_t i = spare_frames.size(); i-- > 0;) {
    if (spare_frames[i]->capacity < bytes) continue;
    Frame* f = spare_frames[i];
    spare_frames[i] = spare_frames.back();
    spare_frames.pop_back();
    return f;
  }
  if (frame_bytes + bytes > kMaxFrameBytes) {
    for (Frame* f : spare_frames) {
      frame_bytes -= f->capacity;
      FreeFrame(f);
    }
    spare_frames.clear();
    if (frame_bytes + bytes > kMaxFrameBytes) return nullptr;
  }
  auto* f = new Frame;
  f->capacity = AlignUp(std::max(bytes, 64u), 64);
  f->rows = static_cast<std::byte*>(std::aligned_alloc(64, f->capacity));
  STASIS_CHECK(f->rows != nullptr);
  std::memset(f->rows, 0, f->capacity);
  frame_bytes += f->capacity;
  return f;
}

void Warp::Start(const Kernel& kernel, uint32_t lanes) {
  const Function& f = *kernel.function;
  Frame* first = TakeFrame(f.frame_bytes);
  first->function = &f;
  first->parent = nullptr;
  first->call = nullptr;
  first->live = lanes;
  first->depth = 0;
  first->local_base = 0;
  first->local_top = AlignUp(f.local_bytes, 16);
  groups.clear();
  alive = mask = lanes;
  EnterFrame(first);
  pc = f.entry;
  stop = kStopPc;
  spent = 0;
  wake = 0;
  picks = 0;
  std::fill(std::begin(barrier_mask), std::end(barrier_mask), 0);
}

Frame* Warp::PushFrame(const Function& function, const Inst* call, uint32_t lanes) {
  uint64_t top = uint64_t{frame->local_top} + AlignUp(function.local_bytes, 16);
  if (frame->depth + 1 >= kMaxDepth || top > local_bytes) return nullptr;
  Frame* f = TakeFrame(function.frame_bytes);
  if (!f) return nullptr;
  f->function = &function;
  f->parent = frame;
  f->call = call;
  f->live = lanes;
  f->depth = frame->depth + 1;
  f->local_base = frame->local_top;
  f->local_top = static_cast<uint32_t>(top);
  return f;
}

void Warp::ReleaseFrames(Frame* from, uint32_t lanes) {
  while (from != nullptr) {
    Frame* parent = from->parent;
    from->live &= ~lanes;
    if (from->live == 0) spare_frames.push_back(from);
    from = parent;
  }
}

void Warp::File(const Inst* at, GroupState state, uint8_t barrier) {
  groups.push_back({at, frame, mask, state, barrier, picks});
  mask = 0;
}

void Warp::ExitLanes(uint32_t lanes) {
  mask &= ~lanes;
  alive &= ~lanes;
  ReleaseFrames(frame, lanes);
  // Those that wait in a warp-wide operation look again: they may have waited for these lanes.
  for (Group& g : groups) {
    if (g.state == GroupState::kSync) g.state = GroupState::kReady;
  }
  block->OnExit(static_cast<uint32_t>(std::popcount(lanes)));
}

void Warp::SetStop() {
  stop = kStopPc;
  for (const Group& g : groups) {
    if (g.state != GroupState::kReady || g.frame->depth != frame->depth) continue;
    if (g.pc > pc && g.pc < stop) stop = g.pc;
  }
}

bool Warp::Pick(bool oldest) {
  size_t best = groups.size();
  for (size_t i = 0; i < groups.size(); ++i) {
    const Group& g = groups[i];
    if (g.state != GroupState::kReady) continue;
    if (best == groups.size()) {
      best = i;
      continue;
    }
    const Group& b = groups[best];
    if (oldest) {
      if (g.last_run < b.last_run) best = i;
    } else if (g.frame->depth != b.frame->depth ? g.frame->depth > b.frame->depth : g.pc < b.pc) {
      best = i;
    }
  }
  if (best == groups.size()) return false;
  ++picks;
  Group chosen = groups[best];
  groups[best] = groups.back();
  groups.pop_back();
  for (size_t i = 0; i < groups.size();) {
    if (groups[i].state == GroupState::kReady && groups[i].pc == chosen.pc &&
        groups[i].frame == chosen.frame) {
      chosen.mask |= groups[i].mask;
      groups[i] = groups.back();
      groups.pop_back();
    } else {
      ++i;
    }
  }
  mask = chosen.mask;
  EnterFrame(chosen.frame);
  pc = chosen.pc;
  SetStop();
  return true;
}

const Inst* Warp::Reschedule(const Inst* next) {
  File(next, GroupState::kReady);
  reason = Stop::kReschedule;
  return kStopPc;
}

Dim3 Warp::ThreadIndex(unsigned lane) const {
  const Dim3& size = grid->config().block;
  uint32_t linear = index * kWarpSize + lane;
  return {linear % size.x, linear / size.x % size.y, linear / (size.x * size.y)};
}

const Inst* Warp::Fault(FaultKind kind, const Inst* i, unsigned lane, const std::string& what) {
  Dim3 t = ThreadIndex(lane);
  char text[256];
  std::snprintf(text, sizeof text, "block (%u,%u,%u), thread (%u,%u,%u), PTX line %u", block->index.x,
                block->index.y, block->index.z, t.x, t.y, t.z, i->line);
  const std::string& kernel = InfoOf(*grid->config().kernel).name;
  grid->SetFault({kind, "kernel '" + kernel + "', " + text + ": " + what});
  pc = i;
  reason = Stop::kFault;
  return kStopPc;
}

WarpOutcome RunWarp(Warp& w) {
  if (w.wake != 0) {
    if (NowNanoseconds() < w.wake) return WarpOutcome::kAsleep;
    w.wake = 0;
  }
  w.budget = kSlice;
  if (w.running()) w.SetStop();
  for (;;) {
    if (!w.running() && !w.Pick(false)) {
      return w.alive == 0 ? WarpOutcome::kDone : WarpOutcome::kBlocked;
    }
    const Inst* pc = w.pc;
    do {
      pc = pc->fn(w, pc);
    } while (pc < w.stop);
    if (pc != kStopPc) {
      w.File(pc, GroupState::kReady);
      continue;
    }
    switch (w.reason) {
      case Stop::kNone:
      case Stop::kReschedule:
        break;
      case Stop::kFault:
        return WarpOutcome::kFaulted;
      case Stop::kSlice:
      case Stop::kSleep: {
        bool others = std::any_of(w.groups.begin(), w.groups.end(),
                                  [](const Group& g) { return g.state == GroupState::kReady; });
        w.spent = others ? w.spent + kSlice - w.budget : 0;
        bool asleep = w.reason == Stop::kSleep;
        if (others && (w.spent >= kRotateAfter || asleep)) {
          w.spent = 0;
          w.File(w.pc, GroupState::kReady);
          w.Pick(true);
          if (asleep) w.wake = 0;
        }
        return w.wake != 0 ? WarpOutcome::kAsleep : WarpOutcome::kRan;
      }
    }
  }
}

Block::~Block() {
  warps.clear();
  std::free(shared);
  if (local) munmap(local, local_mapped);
}

void Block::OnExit(uint32_t threads) {
  threads_alive -= threads;
  for (unsigned id = 0; id < 16; ++id) {
    Barrier& b = barriers[id];
    if (b.arrived != 0 && b.expected == 0 && Complete(b)) Release(id);
  }
}

}  // namespace softgpu::exec
