// Operands: registers, constants, special registers, symbols and addresses.
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

struct SpecialName {
  const char* name;
  Special special;
  unsigned bytes;
};

// Grids are single clusters of 1x1x1 blocks for the cluster registers: %cluster_ctaid is 0, %clusterid is
// %ctaid.
constexpr SpecialName kSpecialNames[] = {
    {"tid.x", Special::kTidX, 4},
    {"tid.y", Special::kTidY, 4},
    {"tid.z", Special::kTidZ, 4},
    {"tid.w", Special::kZero, 4},
    {"ntid.x", Special::kNtidX, 4},
    {"ntid.y", Special::kNtidY, 4},
    {"ntid.z", Special::kNtidZ, 4},
    {"ntid.w", Special::kOne, 4},
    {"ctaid.x", Special::kCtaidX, 4},
    {"ctaid.y", Special::kCtaidY, 4},
    {"ctaid.z", Special::kCtaidZ, 4},
    {"ctaid.w", Special::kZero, 4},
    {"nctaid.x", Special::kNctaidX, 4},
    {"nctaid.y", Special::kNctaidY, 4},
    {"nctaid.z", Special::kNctaidZ, 4},
    {"nctaid.w", Special::kOne, 4},
    {"laneid", Special::kLaneid, 4},
    {"warpid", Special::kWarpid, 4},
    {"nwarpid", Special::kNwarpid, 4},
    {"smid", Special::kSmid, 4},
    {"nsmid", Special::kNsmid, 4},
    {"gridid", Special::kGridid, 8},
    {"lanemask_eq", Special::kLanemaskEq, 4},
    {"lanemask_le", Special::kLanemaskLe, 4},
    {"lanemask_lt", Special::kLanemaskLt, 4},
    {"lanemask_ge", Special::kLanemaskGe, 4},
    {"lanemask_gt", Special::kLanemaskGt, 4},
    {"dynamic_smem_size", Special::kDynamicSmem, 4},
    {"total_smem_size", Special::kTotalSmem, 4},
    {"aggr_smem_size", Special::kAggrSmem, 4},
    {"reserved_smem_offset_begin", Special::kZero, 4},
    {"reserved_smem_offset_end", Special::kZero, 4},
    {"reserved_smem_offset_cap", Special::kZero, 4},
    {"envreg1", Special::kEnvreg1, 4},
    {"envreg2", Special::kEnvreg2, 4},
    {"clusterid.x", Special::kCtaidX, 4},
    {"clusterid.y", Special::kCtaidY, 4},
    {"clusterid.z", Special::kCtaidZ, 4},
    {"nclusterid.x", Special::kNctaidX, 4},
    {"nclusterid.y", Special::kNctaidY, 4},
    {"nclusterid.z", Special::kNctaidZ, 4},
    {"cluster_ctaid.x", Special::kZero, 4},
    {"cluster_ctaid.y", Special::kZero, 4},
    {"cluster_ctaid.z", Special::kZero, 4},
    {"cluster_nctaid.x", Special::kOne, 4},
    {"cluster_nctaid.y", Special::kOne, 4},
    {"cluster_nctaid.z", Special::kOne, 4},
    {"cluster_ctarank", Special::kZero, 4},
    {"cluster_nctarank", Special::kOne, 4},
    {"current_graph_exec", Special::kZero, 8},
};

struct ClockName {
  const char* name;
  uint8_t kind;  // see OpClock
  unsigned bytes;
};

constexpr ClockName kClockNames[] = {
    {"clock", 0, 4},       {"clock_hi", 1, 4},       {"clock64", 0, 8},
    {"globaltimer", 2, 8}, {"globaltimer_lo", 3, 4}, {"globaltimer_hi", 4, 4},
};

}  // namespace

Status FunctionLowering::Bad(const Instruction& i, const char* what) const {
  return Errorf(StatusCode::kUnsupported, "line %u: %s in '%s'", i.line, what, i.Mnemonic().c_str());
}

Status FunctionLowering::Unknown(const Instruction& i) const {
  return Errorf(StatusCode::kUnsupported, "line %u: unknown opcode '%s'", i.line, i.Mnemonic().c_str());
}

VReg FunctionLowering::NewTemp(unsigned lane_bytes) {
  vreg_bytes_.push_back(static_cast<uint8_t>(lane_bytes));
  return static_cast<VReg>(vreg_bytes_.size() - 1);
}

VReg FunctionLowering::Carry() {
  if (carry_ == kNoVReg) carry_ = NewTemp(0);
  return carry_;
}

Ref FunctionLowering::RefOf(VReg v) const {
  auto it = alias_.find(v);
  return it == alias_.end() ? VirtualRef(v) : it->second;
}

Draft& FunctionLowering::Emit(Handler fn) {
  Draft& d = drafts_.emplace_back();
  d.inst.fn = fn;
  d.inst.line = line_;
  d.inst.p = d.inst.q = kNoPredicate;
  return d;
}

void FunctionLowering::Use(Draft& d, Field field, Ref ref, unsigned element) {
  if ((ref & 3) == kFrameBase) {
    d.touches.push_back({ref >> 6, static_cast<uint8_t>(static_cast<unsigned>(field) + element), false});
  }
  switch (field) {
    case Field::kD:
      d.inst.d = ref;
      break;
    case Field::kA:
      d.inst.a = ref;
      break;
    case Field::kB:
      d.inst.b = ref;
      break;
    case Field::kC:
      d.inst.c = ref;
      break;
    case Field::kRefs:
      if (d.refs.size() <= element) d.refs.resize(element + 1, kNoPredicate);
      d.refs[element] = ref;
      break;
    default:
      break;
  }
}

void FunctionLowering::Def(Draft& d, Field field, VReg v, unsigned element) {
  d.touches.push_back({v, static_cast<uint8_t>(static_cast<unsigned>(field) + element), true});
  if (field == Field::kRefs && d.refs.size() <= element) d.refs.resize(element + 1, kNoPredicate);
}

void FunctionLowering::UsePred(Draft& d, Field field, VReg v) {
  d.touches.push_back({v, static_cast<uint8_t>(field), false});
}

void FunctionLowering::DefPred(Draft& d, Field field, VReg v) {
  d.touches.push_back({v, static_cast<uint8_t>(field), true});
}

Result<Ref> FunctionLowering::Resized(Ref ref, unsigned from, unsigned to, bool sign) {
  if (from == to) return ref;
  Handler fn = ResizeHandler(from, to, sign);
  if (!fn) return Errorf(StatusCode::kUnsupported, "line %u: operand of the wrong width", line_);
  VReg temp = NewTemp(to);
  Draft& d = Emit(fn);
  d.pure = true;
  Use(d, Field::kA, ref);
  Def(d, Field::kD, temp);
  return VirtualRef(temp);
}

Result<Ref> FunctionLowering::Source(const Operand& o, Type type) {
  unsigned bytes = LaneBytes(type);
  if (o.kind == Kind::kInt || o.kind == Kind::kF32 || o.kind == Kind::kF64) {
    return context_->Constant(EncodeImmediate(o, type), bytes);
  }
  return SourceBytes(o, bytes);
}

Result<Ref> FunctionLowering::SourceBytes(const Operand& o, unsigned lane_bytes) {
  switch (o.kind) {
    case Kind::kReg: {
      if (!o.name.empty()) break;
      unsigned from = BytesOf(o.reg);
      if (from == 0 || from < lane_bytes) break;
      return Resized(RefOf(o.reg), from, lane_bytes, false);
    }
    case Kind::kInt:
    case Kind::kF32:
    case Kind::kF64:
      return context_->Constant(o.bits, lane_bytes);
    case Kind::kSpecial:
      return SpecialRow(o.name, lane_bytes);
    case Kind::kSymbol:
      return SymbolRow(o, lane_bytes);
    default:
      break;
  }
  return Errorf(StatusCode::kUnsupported, "line %u: operand of the wrong kind or width", line_);
}

Result<Ref> FunctionLowering::SpecialRow(const std::string& name, unsigned lane_bytes) {
  for (const SpecialName& s : kSpecialNames) {
    if (name != s.name) continue;
    function_->specials |= uint64_t{1} << static_cast<unsigned>(s.special);
    if (s.special == Special::kEnvreg1 || s.special == Special::kEnvreg2) function_->uses_grid_sync = true;
    return Resized(SpecialRef(s.special), s.bytes, lane_bytes, false);
  }
  for (const ClockName& c : kClockNames) {
    if (name != c.name) continue;
    VReg temp = NewTemp(c.bytes);
    Draft& d = Emit(&OpClock);
    d.pure = true;
    d.inst.x = c.kind;
    d.inst.y = static_cast<uint8_t>(c.bytes);
    Def(d, Field::kD, temp);
    return Resized(VirtualRef(temp), c.bytes, lane_bytes, false);
  }
  // Performance counters and the remaining environment registers read as zero, and nothing is reserved in
  // shared memory.
  for (std::string_view family : {"pm", "envreg", "reserved_smem_offset"}) {
    if (name.compare(0, family.size(), family) == 0) return context_->Constant(0, lane_bytes);
  }
  return Errorf(StatusCode::kUnsupported, "line %u: unknown special register '%%%s'", line_, name.c_str());
}

Result<Ref> FunctionLowering::SymbolRow(const Operand& o, unsigned lane_bytes) {
  if (lane_bytes < 4) return Errorf(StatusCode::kUnsupported, "line %u: address in a narrow register", line_);
  auto relative = [&](Handler fn, uint64_t offset) -> Ref {
    VReg temp = NewTemp(lane_bytes);
    Draft& d = Emit(fn);
    d.pure = true;
    d.inst.x = static_cast<uint8_t>(lane_bytes);
    d.inst.imm = static_cast<int64_t>(offset);
    Def(d, Field::kD, temp);
    return VirtualRef(temp);
  };
  auto local = locals_.find(o.name);
  if (local != locals_.end()) {
    uint64_t offset = local->second.offset + o.bits;
    return kernel_ ? context_->Constant(offset, lane_bytes) : relative(&OpLocalAddress, offset);
  }
  auto param = kernel_params_.find(o.name);
  if (param != kernel_params_.end()) return context_->Constant(param->second.offset + o.bits, lane_bytes);
  uint64_t offset;
  bool dynamic;
  if (context_->FindShared(o.name, &offset, &dynamic)) {
    return dynamic ? relative(&OpDynamicShared, offset + o.bits)
                   : context_->Constant(offset + o.bits, lane_bytes);
  }
  if (const VariablePlace* place = context_->FindVariable(o.name)) {
    BoundValue value = place->address;
    value.value += o.bits;
    return context_->BoundConstant(value, lane_bytes);
  }
  int index = context_->FindFunction(o.name);
  if (index >= 0) {
    return context_->Constant((kFunctionTag | static_cast<uint64_t>(index + 1)) + o.bits, lane_bytes);
  }
  return Errorf(StatusCode::kInvalidArgument, "line %u: unresolved extern symbol '%s'", line_,
                o.name.c_str());
}

Result<VReg> FunctionLowering::Dest(const Operand& o, unsigned lane_bytes) {
  if (o.kind == Kind::kDiscard) return NewTemp(lane_bytes);
  if (o.kind != Kind::kReg || !o.name.empty()) {
    return Errorf(StatusCode::kUnsupported, "line %u: the result must be a register", line_);
  }
  unsigned bytes = BytesOf(o.reg);
  if (bytes == lane_bytes) return VReg{o.reg};
  if (bytes < lane_bytes) {
    return Errorf(StatusCode::kUnsupported, "line %u: the result register is too narrow", line_);
  }
  return NewTemp(lane_bytes);
}

Status FunctionLowering::FinishDest(const Operand& o, VReg v, bool sign) {
  if (o.kind != Kind::kReg || v == o.reg) return Status();
  Handler fn = ResizeHandler(BytesOf(v), BytesOf(o.reg), sign);
  if (!fn) return Errorf(StatusCode::kUnsupported, "line %u: the result register has the wrong width", line_);
  Draft& d = Emit(fn);
  Use(d, Field::kA, VirtualRef(v));
  Def(d, Field::kD, o.reg);
  return Status();
}

Result<VReg> FunctionLowering::PredicateOperand(const Operand& o) {
  if (o.kind == Kind::kReg && o.name.empty() && BytesOf(o.reg) == 0) return VReg{o.reg};
  if (o.kind == Kind::kDiscard) return NewTemp(0);
  if (o.kind == Kind::kInt) {
    VReg temp = NewTemp(0);
    Draft& d = Emit(&OpPredicateConst);
    d.pure = true;
    d.inst.imm = o.bits != 0;
    DefPred(d, Field::kP, temp);
    return temp;
  }
  return Errorf(StatusCode::kUnsupported, "line %u: expected a predicate", line_);
}

Result<FunctionLowering::Address> FunctionLowering::AddressOf(const Operand& o, Space space) {
  Address a;
  a.imm = static_cast<int64_t>(o.bits);
  if (o.kind != Kind::kAddress)
    return Errorf(StatusCode::kUnsupported, "line %u: expected an address", line_);
  switch (space) {
    case Space::kGlobal:
    case Space::kConst:
      a.space = MemSpace::kGlobal;
      break;
    case Space::kShared:
      a.space = MemSpace::kShared;
      break;
    case Space::kLocal:
      a.space = MemSpace::kLocal;
      break;
    case Space::kParam:
      a.space = kernel_ ? MemSpace::kKernelParam : MemSpace::kLocal;
      break;
    default:
      a.space = MemSpace::kGeneric;
  }
  if (o.reg != ptx::kNoReg) {
    unsigned bytes = BytesOf(o.reg);
    if (bytes != 4 && bytes != 8) {
      return Errorf(StatusCode::kUnsupported, "line %u: address register of the wrong width", line_);
    }
    a.mode = bytes == 8 ? AddressMode::k64 : AddressMode::k32;
    a.row = RefOf(o.reg);
    return a;
  }
  if (o.name.empty()) return a;
  auto local = locals_.find(o.name);
  if (local != locals_.end()) {
    a.space = MemSpace::kLocal;
    a.mode = kernel_ ? AddressMode::kNone : AddressMode::kFrame;
    a.imm += local->second.offset;
    return a;
  }
  auto param = kernel_params_.find(o.name);
  if (param != kernel_params_.end()) {
    a.space = MemSpace::kKernelParam;
    a.kernel_param = true;
    a.imm += param->second.offset;
    return a;
  }
  uint64_t offset;
  bool dynamic;
  if (context_->FindShared(o.name, &offset, &dynamic)) {
    a.space = MemSpace::kShared;
    if (!dynamic) {
      a.imm += static_cast<int64_t>(offset);
      return a;
    }
  } else if (context_->FindVariable(o.name)) {
    a.space = MemSpace::kGlobal;
  }
  Operand symbol = o;
  symbol.kind = Kind::kSymbol;
  ASSIGN_OR_RETURN(a.row, SymbolRow(symbol, 8));
  a.mode = AddressMode::k64;
  a.imm = 0;
  return a;
}

void FunctionLowering::ApplyAddress(Draft& d, const Address& address) {
  d.inst.y = static_cast<uint8_t>(address.mode);
  d.inst.imm = address.imm;
  if (address.mode == AddressMode::k32 || address.mode == AddressMode::k64) Use(d, Field::kA, address.row);
}

}  // namespace softgpu::exec
