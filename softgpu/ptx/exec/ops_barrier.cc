// Block-wide barriers, counted by thread.
#include <algorithm>

#include "softgpu/ptx/exec/memory.h"
#include "softgpu/ptx/exec/ops.h"

namespace softgpu::exec {
namespace {

uint32_t FirstOf(const Warp& w, Ref ref) {
  return reinterpret_cast<const uint32_t*>(w.Row(ref))[std::countr_zero(w.mask)];
}

// Lanes may name different barriers: those that name another than the first come again later.
void KeepSameBarrier(Warp& w, const Inst* i) {
  const auto* ids = reinterpret_cast<const uint32_t*>(w.Row(i->a));
  uint32_t id = FirstOf(w, i->a), same = 0;
  ForEachLane(w.mask, [&](unsigned l) { same |= uint32_t{ids[l] == id} << l; });
  if (same == w.mask) return;
  uint32_t others = w.mask & ~same;
  w.mask = others;
  w.File(i, GroupState::kReady);
  w.mask = same;
}

const Inst* Arrive(Warp& w, const Inst* i, bool wait) {
  KeepSameBarrier(w, i);
  uint32_t id = FirstOf(w, i->a);
  uint32_t count = i->x & 1 ? FirstOf(w, i->b) : 0;
  unsigned lane = static_cast<unsigned>(std::countr_zero(w.mask));
  if (id > 15 || count > 1024 + kWarpSize) {
    return w.Fault(FaultKind::kIllegalInstruction, i, lane, "barrier number or thread count out of range");
  }
  Barrier& b = w.block->barriers[id];
  if (b.arrived == 0) b.expected = count;
  b.arrived += static_cast<uint32_t>(std::popcount(w.mask));
  uint32_t& seen = w.barrier_mask[id];
  seen |= w.mask;
  // With an explicit count a warp counts as whole, also where lanes have exited or never were.
  if (b.expected != 0 && (seen | ~w.alive) == kAllLanes) {
    b.arrived += static_cast<uint32_t>(std::popcount(~seen));
    seen = kAllLanes;
  }
  if (wait) {
    b.waiting += static_cast<uint32_t>(std::popcount(w.mask));
    w.File(i, GroupState::kBarrier, static_cast<uint8_t>(id));
  } else {
    w.File(i + 1, GroupState::kReady);
  }
  if (w.block->Complete(b)) w.block->Release(id);
  w.reason = Stop::kReschedule;
  return kStopPc;
}

uint32_t Reduced(const Barrier& b, uint8_t kind) {
  switch (kind) {
    case kReducePopc:
      return b.count;
    case kReduceAnd:
      return b.count == b.voters;
    default:
      return b.count != 0;
  }
}

void DeliverReduction(const Warp& w, const Group& g, const Barrier& b) {
  const Inst* i = g.pc;
  uint32_t value = Reduced(b, i->y);
  if (i->y == kReducePopc) {
    std::byte* base = (i->d & 3) == kFrameBase ? g.frame->rows : w.base[i->d & 3];
    auto* row = reinterpret_cast<uint32_t*>(base + (i->d & ~3u));
    ForEachLane(g.mask, [&](unsigned l) { row[l] = value; });
  } else {
    auto* at = reinterpret_cast<uint32_t*>(g.frame->rows + i->p);
    *at = (*at & ~g.mask) | (value ? g.mask : 0);
  }
}

}  // namespace

void Block::Release(unsigned id) {
  Barrier& b = barriers[id];
  for (const std::unique_ptr<Warp>& w : warps) {
    if (w->barrier_mask[id] == 0) continue;
    w->barrier_mask[id] = 0;
    for (Group& g : w->groups) {
      if (g.state != GroupState::kBarrier || g.barrier != id) continue;
      if (g.pc->fn == &OpBarrierReduce) DeliverReduction(*w, g, b);
      g.pc += 1;
      g.state = GroupState::kReady;
    }
  }
  b = Barrier{};
}

const Inst* OpBarrierSync(Warp& w, const Inst* i) { return Arrive(w, i, true); }

const Inst* OpBarrierArrive(Warp& w, const Inst* i) { return Arrive(w, i, false); }

const Inst* OpBarrierReduce(Warp& w, const Inst* i) {
  uint32_t id = FirstOf(w, i->a);
  if (id <= 15) {
    Barrier& b = w.block->barriers[id];
    KeepSameBarrier(w, i);
    b.count += static_cast<uint32_t>(std::popcount(w.mask & w.PredOr(i->q, i->z)));
    b.voters += static_cast<uint32_t>(std::popcount(w.mask));
  }
  return Arrive(w, i, true);
}

}  // namespace softgpu::exec
