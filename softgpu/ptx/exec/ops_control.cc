// Branches, calls and the end of threads.
#include <algorithm>
#include <cstring>

#include "softgpu/ptx/exec/memory.h"
#include "softgpu/ptx/exec/ops.h"
#include "softgpu/ptx/exec/program_state.h"

namespace softgpu::exec {
namespace {

// Moves one argument or result between an outer and an inner activation, for `lanes`.
void MoveSlot(Warp& w, const Frame& from_frame, const CallSlot& from, const Frame& to_frame,
              const CallSlot& to, uint32_t lanes) {
  if (from.skipped || to.skipped) return;
  uint32_t bytes = std::min(from.size, to.size);
  auto place = [&](const Frame& f, const CallSlot& s, unsigned lane) -> uint8_t* {
    if (!s.is_register) return w.LocalOf(lane) + f.local_base + s.offset;
    std::byte* base = (s.ref & 3) == kFrameBase ? f.rows : w.base[s.ref & 3];
    return reinterpret_cast<uint8_t*>(base + (s.ref & ~3u)) + size_t{lane} * s.size;
  };
  ForEachLane(lanes,
              [&](unsigned l) { std::memcpy(place(to_frame, to, l), place(from_frame, from, l), bytes); });
}

// Puts `lanes` of the running group into a new activation of `callee`. Null when the stack is exhausted.
Frame* EnterCall(Warp& w, const Inst* i, const Function& callee, uint32_t lanes) {
  Frame* inner = w.PushFrame(callee, i, lanes);
  if (!inner) return nullptr;
  size_t count = std::min(i->call->args.size(), callee.params.size());
  for (size_t n = 0; n < count; ++n) {
    MoveSlot(w, *w.frame, i->call->args[n], *inner, callee.params[n], lanes);
  }
  return inner;
}

const Inst* StackOverflow(Warp& w, const Inst* i) {
  return w.Fault(FaultKind::kStackOverflow, i, static_cast<unsigned>(std::countr_zero(w.mask)),
                 "stack overflow in a call");
}

// Goes on in the frame just entered; the place to stop depends on the depth.
const Inst* GoOn(Warp& w, const Inst* next) {
  if (w.groups.empty()) {
    w.stop = kStopPc;
    return next;
  }
  return w.Reschedule(next);
}

bool SameShape(const CallSite& site, const Function& f) {
  auto fits = [](const std::vector<CallSlot>& a, const std::vector<CallSlot>& b) {
    if (a.size() != b.size()) return false;
    for (size_t n = 0; n < a.size(); ++n) {
      if (a[n].size != b[n].size) return false;
    }
    return true;
  };
  return fits(site.args, f.params) && fits(site.results, f.results);
}

}  // namespace

const Inst* OpBranch(Warp&, const Inst* i) { return i->target; }

const Inst* OpBranchBack(Warp& w, const Inst* i) {
  if ((w.budget -= i->imm) < 0) return w.Slice(i->target);
  return i->target;
}

const Inst* OpBranchIf(Warp& w, const Inst* i) {
  uint32_t taken = w.mask & (i->y ? ~w.Pred(i->p) : w.Pred(i->p));
  if (taken == 0) return i + 1;
  if (taken == w.mask) {
    w.budget -= i->imm;
    if (w.budget < 0 && i->imm != 0) return w.Slice(i->target);
    return i->target;
  }
  uint32_t rest = w.mask & ~taken;
  w.budget -= i->imm;
  const Inst* low = i->target < i + 1 ? i->target : i + 1;
  const Inst* high = i->target < i + 1 ? i + 1 : i->target;
  uint32_t low_mask = low == i->target ? taken : rest;
  w.mask = low == i->target ? rest : taken;
  w.File(high, GroupState::kReady);
  w.mask = low_mask;
  if (high < w.stop) w.stop = high;
  if (w.budget < 0 && i->imm != 0) return w.Slice(low);
  return low;
}

const Inst* OpBranchTable(Warp& w, const Inst* i) {
  const auto* index = reinterpret_cast<const uint32_t*>(w.Row(i->a));
  const std::vector<const Inst*>& targets = i->table->targets;
  w.budget -= i->imm;
  uint32_t todo = w.mask;
  while (todo != 0) {
    uint32_t choice = index[std::countr_zero(todo)], same = 0;
    ForEachLane(todo, [&](unsigned l) { same |= uint32_t{index[l] == choice} << l; });
    if (choice >= targets.size()) {
      return w.Fault(FaultKind::kInvalidPc, i, static_cast<unsigned>(std::countr_zero(same)),
                     "branch index beyond its table");
    }
    todo &= ~same;
    w.mask = same;
    w.File(targets[choice], GroupState::kReady);
  }
  w.reason = Stop::kReschedule;
  return kStopPc;
}

const Inst* OpPoll(Warp& w, const Inst* i) {
  if ((w.budget -= i->imm) < 0) return w.Slice(i + 1);
  return i + 1;
}

const Inst* OpExit(Warp& w, const Inst*) {
  w.ExitLanes(w.mask);
  w.reason = Stop::kReschedule;
  return kStopPc;
}

const Inst* OpTrap(Warp& w, const Inst* i) {
  return w.Fault(FaultKind::kTrap, i, static_cast<unsigned>(std::countr_zero(w.mask)), "trap instruction");
}

const Inst* OpIllegal(Warp& w, const Inst* i) {
  return w.Fault(FaultKind::kIllegalInstruction, i, static_cast<unsigned>(std::countr_zero(w.mask)),
                 "illegal instruction");
}

const Inst* OpCall(Warp& w, const Inst* i) {
  const Function& callee = *i->call->callee;
  if (w.budget < 0) return w.Slice(i);
  w.budget -= callee.instructions;
  Frame* inner = EnterCall(w, i, callee, w.mask);
  if (!inner) return StackOverflow(w, i);
  w.EnterFrame(inner);
  return GoOn(w, callee.entry);
}

const Inst* OpCallIndirect(Warp& w, const Inst* i) {
  const auto* address = reinterpret_cast<const uint64_t*>(w.Row(i->a));
  const ProgramState& program = ProgramOf(*w.grid->config().program);
  Frame* outer = w.frame;
  uint32_t todo = w.mask;
  w.budget -= 1;
  while (todo != 0) {
    unsigned lane = static_cast<unsigned>(std::countr_zero(todo));
    uint64_t target = address[lane];
    uint32_t same = 0;
    ForEachLane(todo, [&](unsigned l) { same |= uint32_t{address[l] == target} << l; });
    const Function* callee = program.FunctionAt(target);
    if (!callee || !SameShape(*i->call, *callee)) {
      char text[80];
      std::snprintf(text, sizeof text, "call through an invalid function pointer 0x%llx",
                    static_cast<unsigned long long>(target));
      return w.Fault(FaultKind::kInvalidPc, i, lane, text);
    }
    Frame* inner = EnterCall(w, i, *callee, same);
    if (!inner) return StackOverflow(w, i);
    w.budget -= callee->instructions;
    todo &= ~same;
    w.mask = same;
    w.EnterFrame(inner);
    w.File(callee->entry, GroupState::kReady);
    w.EnterFrame(outer);
  }
  w.reason = Stop::kReschedule;
  return kStopPc;
}

const Inst* OpReturn(Warp& w, const Inst* i) {
  Frame* inner = w.frame;
  Frame* outer = inner->parent;
  if (!outer) return OpExit(w, i);
  const CallSite& site = *inner->call->call;
  size_t count = std::min(site.results.size(), inner->function->results.size());
  for (size_t n = 0; n < count; ++n) {
    MoveSlot(w, *inner, inner->function->results[n], *outer, site.results[n], w.mask);
  }
  const Inst* next = inner->call + 1;
  inner->live &= ~w.mask;
  if (inner->live == 0) w.spare_frames.push_back(inner);
  w.EnterFrame(outer);
  if (w.budget < 0 && w.groups.empty()) {
    w.stop = kStopPc;
    return w.Slice(next);
  }
  return GoOn(w, next);
}

}  // namespace softgpu::exec
