// Branches, calls, barriers and warp-wide operations.
#include <algorithm>

#include "softgpu/ptx/exec/lower.h"
#include "softgpu/ptx/exec/ops.h"

namespace softgpu::exec {

using ptx::Operand;
using ptx::Space;
using stasis::Errorf;
using stasis::Result;
using stasis::Status;
using stasis::StatusCode;

namespace {

struct BuiltinName {
  const char* name;
  Builtin builtin;
};

constexpr BuiltinName kBuiltins[] = {
    {"vprintf", Builtin::kVprintf},
    {"malloc", Builtin::kMalloc},
    {"free", Builtin::kFree},
    {"__assertfail", Builtin::kAssertFail},
    {"cudaGraphSetConditional", Builtin::kSetConditional},
};

Builtin FindBuiltin(const std::string& name) {
  for (const BuiltinName& b : kBuiltins) {
    if (name == b.name) return b.builtin;
  }
  return Builtin::kNone;
}

}  // namespace

Status FunctionLowering::LowerBranch(const Instruction& i) {
  for (const std::string& word : i.words) {
    if (word != "uni") return Unknown(i);
  }
  if (i.operands.size() != 1 || i.operands[0].kind != Kind::kLabel) return Unknown(i);
  auto label = source_.labels.find(i.operands[0].name);
  if (label == source_.labels.end()) return Bad(i, "unknown label");
  Draft& d = Emit(nullptr);
  d.target = label->second;
  d.flow = Draft::Flow::kGoto;
  if (i.guard != ptx::kNoReg) {
    if (BytesOf(i.guard) != 0) return Bad(i, "the guard is no predicate");
    d.flow = Draft::Flow::kBranch;
    d.inst.y = i.guard_negated;
    UsePred(d, Field::kP, i.guard);
  }
  return Status();
}

Status FunctionLowering::LowerBranchTable(const Instruction& i) {
  if (i.operands.size() != 2 || i.operands[1].kind != Kind::kLabel || !i.Has("idx")) return Unknown(i);
  auto list = source_.target_lists.find(i.operands[1].name);
  if (list == source_.target_lists.end()) return Bad(i, "unknown branch targets");
  ASSIGN_OR_RETURN(Ref index, Source(i.operands[0], Type::kU32));
  Draft& d = Emit(&OpBranchTable);
  d.flow = Draft::Flow::kTable;
  Use(d, Field::kA, index);
  for (const std::string& name : list->second) {
    auto label = source_.labels.find(name);
    if (label == source_.labels.end()) return Bad(i, "unknown label");
    d.targets.push_back(label->second);
  }
  return Status();
}

// Arguments or results as they are written in the call. Registers are put into refs, for allocation.
Status FunctionLowering::CallSlots(const Instruction& i, const std::vector<Operand>& operands, Draft* d,
                                   bool results, const std::vector<CallSlot>* shape,
                                   std::vector<CallSlot>* slots) {
  for (size_t n = 0; n < operands.size(); ++n) {
    const Operand& o = operands[n];
    CallSlot s;
    auto local = locals_.find(o.name);
    if (o.kind == Kind::kSymbol && local != locals_.end()) {
      s.offset = local->second.offset;
      s.size = static_cast<uint32_t>(local->second.size);
      slots->push_back(s);
      continue;
    }
    s.is_register = true;
    s.ref = static_cast<uint32_t>(d->refs.size());
    if (o.kind == Kind::kReg && BytesOf(o.reg) != 0) {
      s.size = BytesOf(o.reg);
      if (results) {
        Def(*d, Field::kRefs, o.reg, s.ref);
      } else {
        Use(*d, Field::kRefs, RefOf(o.reg), s.ref);
      }
    } else if (!results && o.kind == Kind::kInt) {
      s.size = shape && n < shape->size() ? std::clamp<uint32_t>((*shape)[n].size, 2, 8) : 4;
      Use(*d, Field::kRefs, context_->Constant(o.bits, s.size), s.ref);
    } else {
      return Bad(i, "argument of the wrong kind");
    }
    slots->push_back(s);
  }
  return Status();
}

Status FunctionLowering::LowerCall(const Instruction& i) {
  static const std::vector<Operand> kEmpty;
  size_t at = 0;
  const std::vector<Operand>*results = &kEmpty, *args = &kEmpty;
  if (at < i.operands.size() && i.operands[at].kind == Kind::kList) results = &i.operands[at++].elements;
  if (at >= i.operands.size()) return Unknown(i);
  const Operand& callee = i.operands[at++];
  if (at < i.operands.size() && i.operands[at].kind == Kind::kList) args = &i.operands[at++].elements;
  CallSite* site = context_->NewCall();
  Draft draft;
  const std::vector<CallSlot>* shape = nullptr;
  if (callee.kind == Kind::kReg) {
    function_->calls_indirect = true;
    ASSIGN_OR_RETURN(Ref address, SourceBytes(callee, 8));
    draft.inst.fn = &OpCallIndirect;
    Use(draft, Field::kA, address);
  } else {
    int index = context_->FindFunction(callee.name);
    if (index >= 0) {
      Function* f = context_->FunctionAtIndex(index);
      if (f->is_entry) return Bad(i, "call of a kernel");
      site->callee = f;
      shape = &f->params;
      function_->callees.push_back(static_cast<uint32_t>(index));
      draft.inst.fn = &OpCall;
    } else {
      site->builtin = FindBuiltin(callee.name);
      if (site->builtin == Builtin::kNone) {
        return Errorf(StatusCode::kInvalidArgument, "line %u: unresolved extern symbol '%s'", i.line,
                      callee.name.c_str());
      }
      function_->calls_malloc |= site->builtin == Builtin::kMalloc;
      draft.inst.fn = &OpBuiltin;
    }
  }
  draft.inst.line = line_;
  draft.inst.p = draft.inst.q = kNoPredicate;
  draft.inst.call = site;
  RETURN_IF_ERROR(CallSlots(i, *args, &draft, false, shape, &site->args));
  RETURN_IF_ERROR(CallSlots(i, *results, &draft, true, nullptr, &site->results));
  drafts_.push_back(std::move(draft));
  return Status();
}

// Everything that is neither memory nor arithmetic.
Status FunctionLowering::LowerSync(const Instruction& i, bool* known) {
  const std::string& op = i.opcode;
  *known = true;
  if (op == "ret" || op == "exit" || op == "trap" || op == "brkpt") {
    Handler fn = op == "exit" || (op == "ret" && kernel_) ? &OpExit : op == "ret" ? &OpReturn : &OpTrap;
    Emit(fn).flow = Draft::Flow::kEnd;
    return Status();
  }
  if (op == "bar" && i.Has("warp")) {
    if (i.operands.size() != 1) return Unknown(i);
    ASSIGN_OR_RETURN(Ref members, Source(i.operands[0], Type::kU32));
    Use(Emit(&OpWarpSync), Field::kB, members);
    return Status();
  }
  if (op == "bar" || op == "barrier") return LowerBarrier(i);
  if (op == "shfl") return LowerShuffle(i);
  if (op == "vote") return LowerVote(i);
  if (op == "match") return LowerMatch(i);
  if (op == "redux") return LowerRedux(i);
  if (op == "activemask") {
    if (i.operands.size() != 1) return Unknown(i);
    ASSIGN_OR_RETURN(VReg dest, Dest(i.operands[0], 4));
    Def(Emit(&OpActiveMask), Field::kD, dest);
    return Status();
  }
  if (op == "elect") {
    if (!i.second_dest || i.operands.size() != 3) return Unknown(i);
    ASSIGN_OR_RETURN(Ref members, Source(i.operands[2], Type::kU32));
    ASSIGN_OR_RETURN(VReg dest, Dest(i.operands[0], 4));
    ASSIGN_OR_RETURN(VReg p, PredicateOperand(i.operands[1]));
    Draft& d = Emit(&OpElect);
    Use(d, Field::kB, members);
    Def(d, Field::kD, dest);
    DefPred(d, Field::kP, p);
    return Status();
  }
  if (op == "membar" || op == "fence") {
    if (i.Has("proxy") || i.Has("mbarrier_init")) return Unknown(i);
    Emit(&OpFence);
    return Status();
  }
  if (op == "nanosleep") {
    if (i.operands.size() != 1) return Unknown(i);
    ASSIGN_OR_RETURN(Ref time, Source(i.operands[0], Type::kU32));
    Use(Emit(&OpNanosleep), Field::kA, time);
    return Status();
  }
  if (op == "prefetch" || op == "prefetchu" || op == "applypriority" || op == "discard" || op == "pmevent" ||
      op == "griddepcontrol" || op == "setmaxnreg") {
    Emit(&OpNop);
    return Status();
  }
  *known = false;
  return Status();
}

Status FunctionLowering::LowerShuffle(const Instruction& i) {
  bool sync = i.Has("sync");
  size_t first = i.second_dest ? 2 : 1;
  if (i.operands.size() != first + (sync ? 4 : 3)) return Unknown(i);
  uint8_t mode;
  if (i.Has("up")) {
    mode = kShuffleUp;
  } else if (i.Has("down")) {
    mode = kShuffleDown;
  } else if (i.Has("bfly")) {
    mode = kShuffleBfly;
  } else if (i.Has("idx")) {
    mode = kShuffleIdx;
  } else {
    return Unknown(i);
  }
  Ref rows[4] = {0, 0, 0, 0};
  for (size_t n = 0; n < (sync ? 4u : 3u); ++n) {
    ASSIGN_OR_RETURN(rows[n], Source(i.operands[first + n], n == 0 ? Type::kB32 : Type::kU32));
  }
  ASSIGN_OR_RETURN(VReg dest, Dest(i.operands[0], 4));
  VReg p = kNoVReg;
  if (i.second_dest) {
    ASSIGN_OR_RETURN(p, PredicateOperand(i.operands[1]));
  }
  Draft& d = Emit(sync ? &OpShuffle : &OpShuffleActive);
  d.inst.x = mode;
  Use(d, Field::kA, rows[0]);
  Use(d, Field::kB, rows[1]);
  Use(d, Field::kC, rows[2]);
  if (sync) Use(d, Field::kRefs, rows[3], 0);
  Def(d, Field::kD, dest);
  if (p != kNoVReg) DefPred(d, Field::kP, p);
  return FinishDest(i.operands[0], dest, false);
}

Status FunctionLowering::LowerVote(const Instruction& i) {
  bool sync = i.Has("sync");
  if (i.operands.size() != (sync ? 3u : 2u)) return Unknown(i);
  uint8_t mode;
  if (i.Has("all")) {
    mode = kVoteAll;
  } else if (i.Has("any")) {
    mode = kVoteAny;
  } else if (i.Has("uni")) {
    mode = kVoteUni;
  } else if (i.Has("ballot")) {
    mode = kVoteBallot;
  } else {
    return Unknown(i);
  }
  Ref members = 0;
  if (sync) {
    ASSIGN_OR_RETURN(members, Source(i.operands[2], Type::kU32));
  }
  ASSIGN_OR_RETURN(VReg source, PredicateOperand(i.operands[1]));
  VReg dest;
  if (mode == kVoteBallot) {
    ASSIGN_OR_RETURN(dest, Dest(i.operands[0], 4));
  } else {
    ASSIGN_OR_RETURN(dest, PredicateOperand(i.operands[0]));
  }
  Draft& d = Emit(sync ? &OpVote : &OpVoteActive);
  d.inst.x = mode;
  d.inst.y = i.operands[1].negated;
  if (sync) Use(d, Field::kB, members);
  UsePred(d, Field::kQ, source);
  d.inst.d = kNoPredicate;
  if (mode == kVoteBallot) {
    Def(d, Field::kD, dest);
    return FinishDest(i.operands[0], dest, false);
  }
  DefPred(d, Field::kP, dest);
  return Status();
}

Status FunctionLowering::LowerMatch(const Instruction& i) {
  size_t first = i.second_dest ? 2 : 1;
  bool all = i.Has("all");
  if (i.operands.size() != first + 2 || i.types.size() != 1 || all == i.Has("any")) return Unknown(i);
  ASSIGN_OR_RETURN(Ref value, Source(i.operands[first], i.types[0]));
  ASSIGN_OR_RETURN(Ref members, Source(i.operands[first + 1], Type::kU32));
  ASSIGN_OR_RETURN(VReg dest, Dest(i.operands[0], 4));
  VReg p = kNoVReg;
  if (i.second_dest) {
    ASSIGN_OR_RETURN(p, PredicateOperand(i.operands[1]));
  }
  Draft& d = Emit(&OpMatch);
  d.inst.x = all;
  d.inst.y = static_cast<uint8_t>(LaneBytes(i.types[0]));
  if (d.inst.y != 4 && d.inst.y != 8) return Unknown(i);
  Use(d, Field::kA, value);
  Use(d, Field::kB, members);
  Def(d, Field::kD, dest);
  if (p != kNoVReg) DefPred(d, Field::kP, p);
  return Status();
}

Status FunctionLowering::LowerRedux(const Instruction& i) {
  if (i.operands.size() != 3 || i.types.size() != 1) return Unknown(i);
  Type type = i.types[0];
  bool is_signed = type == Type::kS32;
  if (!is_signed && type != Type::kU32 && type != Type::kB32) return Unknown(i);
  ReduxOp op;
  if (i.Has("and")) {
    op = ReduxOp::kAnd;
  } else if (i.Has("or")) {
    op = ReduxOp::kOr;
  } else if (i.Has("xor")) {
    op = ReduxOp::kXor;
  } else if (i.Has("add")) {
    op = ReduxOp::kAdd;
  } else if (i.Has("min")) {
    op = is_signed ? ReduxOp::kMinS : ReduxOp::kMinU;
  } else if (i.Has("max")) {
    op = is_signed ? ReduxOp::kMaxS : ReduxOp::kMaxU;
  } else {
    return Unknown(i);
  }
  ASSIGN_OR_RETURN(Ref value, Source(i.operands[1], type));
  ASSIGN_OR_RETURN(Ref members, Source(i.operands[2], Type::kU32));
  ASSIGN_OR_RETURN(VReg dest, Dest(i.operands[0], 4));
  Draft& d = Emit(&OpRedux);
  d.inst.x = static_cast<uint8_t>(op);
  Use(d, Field::kA, value);
  Use(d, Field::kB, members);
  Def(d, Field::kD, dest);
  return Status();
}

// bar and barrier{.cta}: .sync a{, b}, .arrive a, b, .red.popc d, a{, b}, {!}c and .red.and/or p, a{, b},
// {!}c.
Status FunctionLowering::LowerBarrier(const Instruction& i) {
  if (i.Has("cluster") || i.operands.empty()) return Unknown(i);
  bool arrive = i.Has("arrive"), reduce = i.Has("red"), sync = i.Has("sync");
  if (arrive + reduce + sync != 1) return Unknown(i);
  size_t at = reduce ? 1 : 0, end = i.operands.size() - (reduce ? 1 : 0);
  if (at >= end || end - at > 2) return Unknown(i);
  ASSIGN_OR_RETURN(Ref id, Source(i.operands[at], Type::kU32));
  bool counted = end - at == 2;
  Ref count = id;
  if (counted) {
    ASSIGN_OR_RETURN(count, Source(i.operands[at + 1], Type::kU32));
  }
  VReg source = kNoVReg, dest = kNoVReg;
  bool popc = i.Has("popc");
  if (reduce) {
    if (!popc && i.Has("and") == i.Has("or")) return Unknown(i);
    ASSIGN_OR_RETURN(source, PredicateOperand(i.operands.back()));
    if (popc) {
      ASSIGN_OR_RETURN(dest, Dest(i.operands[0], 4));
    } else {
      ASSIGN_OR_RETURN(dest, PredicateOperand(i.operands[0]));
    }
  }
  Draft& d = Emit(arrive ? &OpBarrierArrive : reduce ? &OpBarrierReduce : &OpBarrierSync);
  Use(d, Field::kA, id);
  Use(d, Field::kB, count);
  d.inst.x = counted;
  if (!reduce) return Status();
  d.inst.y = popc ? kReducePopc : i.Has("and") ? kReduceAnd : kReduceOr;
  d.inst.z = i.operands.back().negated;
  UsePred(d, Field::kQ, source);
  if (!popc) {
    DefPred(d, Field::kP, dest);
    return Status();
  }
  Def(d, Field::kD, dest);
  return FinishDest(i.operands[0], dest, false);
}

}  // namespace softgpu::exec
