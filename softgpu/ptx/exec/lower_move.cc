// mov, predicate logic, address space conversion and alloca.
#include "softgpu/ptx/exec/lower.h"
#include "softgpu/ptx/exec/ops.h"

namespace softgpu::exec {

using ptx::Operand;
using stasis::Status;

Status FunctionLowering::LowerMov(const Instruction& i) {
  if (i.operands.size() != 2 || i.types.size() != 1) return Unknown(i);
  if (i.types[0] == Type::kPred) return LowerPredicateLogic(i);
  const Operand& to = i.operands[0];
  const Operand& from = i.operands[1];
  unsigned whole = ptx::SizeOf(i.types[0]);
  if (from.kind == Kind::kVector) {
    unsigned part = whole / static_cast<unsigned>(from.elements.size());
    if (part == 0 || part * from.elements.size() != whole) return Bad(i, "wrong number of parts");
    std::vector<Ref> parts;
    for (const Operand& e : from.elements) {
      ASSIGN_OR_RETURN(Ref ref, SourceBytes(e, part < 2 ? 2 : part));
      parts.push_back(ref);
    }
    ASSIGN_OR_RETURN(VReg dest, Dest(to, whole < 2 ? 2 : whole));
    Draft& d = Emit(&OpPack);
    for (unsigned e = 0; e < parts.size(); ++e) Use(d, Field::kRefs, parts[e], e);
    d.inst.x = static_cast<uint8_t>(part);
    d.inst.y = static_cast<uint8_t>(whole);
    Def(d, Field::kD, dest);
    return FinishDest(to, dest, false);
  }
  if (to.kind == Kind::kVector) {
    unsigned part = whole / static_cast<unsigned>(to.elements.size());
    if (part == 0 || part * to.elements.size() != whole) return Bad(i, "wrong number of parts");
    ASSIGN_OR_RETURN(Ref source, Source(from, i.types[0]));
    std::vector<VReg> parts;
    for (const Operand& e : to.elements) {
      ASSIGN_OR_RETURN(VReg v, Dest(e, part < 2 ? 2 : part));
      parts.push_back(v);
    }
    Draft& d = Emit(&OpUnpack);
    Use(d, Field::kA, source);
    for (unsigned e = 0; e < parts.size(); ++e) Def(d, Field::kRefs, parts[e], e);
    d.inst.x = static_cast<uint8_t>(part);
    d.inst.y = static_cast<uint8_t>(whole);
    for (unsigned e = 0; e < parts.size(); ++e) RETURN_IF_ERROR(FinishDest(to.elements[e], parts[e], false));
    return Status();
  }
  if (to.kind == Kind::kReg && alias_.count(to.reg) != 0) return Status();
  unsigned bytes = LaneBytes(i.types[0]);
  ASSIGN_OR_RETURN(Ref source, Source(from, i.types[0]));
  ASSIGN_OR_RETURN(VReg dest, Dest(to, bytes));
  Draft& d = Emit(CopyHandler(bytes));
  Use(d, Field::kA, source);
  Def(d, Field::kD, dest);
  return FinishDest(to, dest, false);
}

Status FunctionLowering::LowerPredicateLogic(const Instruction& i) {
  uint8_t op = i.opcode == "mov"   ? kPredMov
               : i.opcode == "not" ? kPredNot
               : i.opcode == "and" ? kPredAnd
               : i.opcode == "or"  ? kPredOr
                                   : kPredXor;
  size_t sources = op >= kPredAnd ? 2 : 1;
  if (i.operands.size() != 1 + sources) return Unknown(i);
  ASSIGN_OR_RETURN(VReg a, PredicateOperand(i.operands[1]));
  VReg b = a;
  if (sources == 2) {
    ASSIGN_OR_RETURN(b, PredicateOperand(i.operands[2]));
  }
  ASSIGN_OR_RETURN(VReg p, PredicateOperand(i.operands[0]));
  Draft& d = Emit(&OpPredicate);
  d.inst.x = op;
  d.inst.y = static_cast<uint8_t>((i.operands[1].negated ? 1 : 0) | (i.operands.back().negated ? 2 : 0));
  UsePred(d, Field::kQ, a);
  UsePred(d, Field::kD, b);
  DefPred(d, Field::kP, p);
  return Status();
}

// cvta{.to}.space.size: generic addresses carry their window in the top byte.
Status FunctionLowering::LowerCvta(const Instruction& i) {
  if (i.operands.size() != 2 || i.types.size() != 1) return Unknown(i);
  bool to = false;
  uint64_t tag = 0;
  for (const std::string& word : i.words) {
    if (word == "to") {
      to = true;
    } else if (word == "shared" || word == "shared::cta") {
      tag = kSharedTag;
    } else if (word == "local") {
      tag = kLocalTag;
    } else if (word == "param" || word == "param::entry") {
      tag = kernel_ ? kParamTag : kLocalTag;
    } else if (word != "global" && word != "const" && word != "u64") {
      return Unknown(i);
    }
  }
  if (i.operands[0].kind == Kind::kReg && alias_.count(i.operands[0].reg) != 0) return Status();
  ASSIGN_OR_RETURN(Ref source, Source(i.operands[1], Type::kU64));
  ASSIGN_OR_RETURN(VReg dest, Dest(i.operands[0], 8));
  Draft& d = Emit(tag == 0 ? CopyHandler(8) : to ? &OpMask64 : &OpOr64);
  d.inst.imm = static_cast<int64_t>(to ? kOffsetMask : tag);
  Use(d, Field::kA, source);
  Def(d, Field::kD, dest);
  return Status();
}

Status FunctionLowering::LowerIsSpace(const Instruction& i) {
  if (i.operands.size() != 2 || i.words.size() != 1) return Unknown(i);
  const std::string& word = i.words[0];
  uint64_t tag;
  if (word == "global") {
    tag = 0;
  } else if (word == "shared" || word == "shared::cta" || word == "shared::cluster") {
    tag = kSharedTag;
  } else if (word == "local") {
    tag = kLocalTag;
  } else if (word == "param" || word == "param::entry") {
    tag = kParamTag;
  } else if (word == "const") {
    // Constant variables lie in global memory here; no generic address is in a window of their own.
    tag = ~kOffsetMask;
  } else {
    return Unknown(i);
  }
  ASSIGN_OR_RETURN(Ref source, Source(i.operands[1], Type::kU64));
  ASSIGN_OR_RETURN(VReg p, PredicateOperand(i.operands[0]));
  Draft& d = Emit(&OpIsSpace);
  d.inst.imm = static_cast<int64_t>(tag);
  Use(d, Field::kA, source);
  DefPred(d, Field::kP, p);
  return Status();
}

Status FunctionLowering::LowerAlloca(const Instruction& i) {
  if (i.operands.size() < 2 || i.types.size() != 1) return Unknown(i);
  unsigned bytes = LaneBytes(i.types[0]);
  if (bytes != 4 && bytes != 8) return Unknown(i);
  ASSIGN_OR_RETURN(Ref size, Source(i.operands[1], i.types[0]));
  ASSIGN_OR_RETURN(VReg dest, Dest(i.operands[0], bytes));
  Draft& d = Emit(&OpAlloca);
  d.inst.x = static_cast<uint8_t>(bytes);
  d.inst.y = static_cast<uint8_t>(bytes);
  uint64_t align = i.operands.size() > 2 && i.operands[2].kind == Kind::kInt ? i.operands[2].bits : 8;
  if (align == 0 || (align & (align - 1)) != 0 || align > 4096) return Bad(i, "wrong alignment");
  d.inst.imm = static_cast<int64_t>(align);
  Use(d, Field::kA, size);
  Def(d, Field::kD, dest);
  function_->uses_alloca = true;
  return Status();
}

}  // namespace softgpu::exec
