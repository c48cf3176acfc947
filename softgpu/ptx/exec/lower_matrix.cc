// wmma, mma.sync and ldmatrix.
#include <cstdio>

#include "softgpu/ptx/exec/lower.h"
#include "softgpu/ptx/exec/matrix.h"

namespace softgpu::exec {

using ptx::Operand;
using stasis::Status;

namespace {

bool ParseShape(const ptx::Instruction& i, unsigned* m, unsigned* n, unsigned* k) {
  for (const std::string& word : i.words) {
    if (std::sscanf(word.c_str(), "m%un%uk%u", m, n, k) == 3) return *m <= 64 && *n <= 64 && *k <= 64;
  }
  return false;
}

bool IsInput(ptx::Type t) {
  using ptx::Type;
  return t == Type::kF16 || t == Type::kBF16 || t == Type::kTF32 || t == Type::kS8 || t == Type::kU8;
}

bool IsAccumulator(ptx::Type t, ptx::Type input) {
  using ptx::Type;
  bool integer = input == Type::kS8 || input == Type::kU8;
  return integer ? t == Type::kS32 : t == Type::kF32 || (t == Type::kF16 && input == Type::kF16);
}

unsigned ElementsPerRegister(ptx::Type t) { return 4 / ptx::SizeOf(t); }

bool FillsWarp(const Fragment& f) {
  return f.rows * f.columns >= kWarpSize && f.rows * f.columns % kWarpSize == 0 && f.registers != 0;
}

}  // namespace

// Adds the registers of one fragment to the draft's refs.
Status FunctionLowering::FragmentRegisters(const Instruction& i, const Operand& o, bool defines, Draft* d,
                                           Fragment* fragment) {
  std::vector<Operand> elements = o.kind == Kind::kVector ? o.elements : std::vector<Operand>{o};
  for (const Operand& e : elements) {
    if (e.kind != Kind::kReg || BytesOf(e.reg) != 4) return Bad(i, "fragments are in 32-bit registers");
    unsigned at = static_cast<unsigned>(d->refs.size());
    if (defines) {
      // Parts of the registers are kept while others are written.
      Use(*d, Field::kRefs, RefOf(e.reg), at);
      Def(*d, Field::kRefs, e.reg, at);
    } else {
      Use(*d, Field::kRefs, RefOf(e.reg), at);
    }
  }
  fragment->registers = static_cast<unsigned>(elements.size());
  return Status();
}

Status FunctionLowering::LowerMultiply(const Instruction& i, bool opaque) {
  unsigned m, n, k;
  if (!ParseShape(i, &m, &n, &k) || i.operands.size() != 4 || i.Has("sp")) return Unknown(i);
  MmaOp op;
  if (i.types.size() == 2 && opaque) {
    op.d.type = i.types[0];
    op.a.type = op.b.type = Type::kF16;
    op.c.type = i.types[1];
  } else if (i.types.size() == 4) {
    op.d.type = i.types[0];
    op.a.type = i.types[1];
    op.b.type = i.types[2];
    op.c.type = i.types[3];
  } else {
    return Unknown(i);
  }
  bool same_kind = ptx::SizeOf(op.a.type) == ptx::SizeOf(op.b.type);
  if (!IsInput(op.a.type) || !IsInput(op.b.type) || !same_kind) return Unknown(i);
  if (!IsAccumulator(op.c.type, op.a.type) || !IsAccumulator(op.d.type, op.a.type)) return Unknown(i);
  op.a.rows = op.c.rows = op.d.rows = m;
  op.a.columns = op.b.rows = k;
  op.b.columns = op.c.columns = op.d.columns = n;
  op.saturate = i.Has("satfinite");
  if (!opaque) {
    if (m != 16 || n != 8 || !i.Has("row") || !i.Has("col")) return Unknown(i);
    op.a.layout = Fragment::Layout::kManualA;
    op.b.layout = Fragment::Layout::kManualB;
    op.c.layout = op.d.layout = Fragment::Layout::kManualC;
  }
  Draft draft;
  draft.inst.fn = &OpMatrixMultiply;
  draft.inst.line = line_;
  draft.inst.p = draft.inst.q = kNoPredicate;
  Fragment* fragments[] = {&op.d, &op.a, &op.b, &op.c};
  for (size_t f = 0; f < 4; ++f) {
    RETURN_IF_ERROR(FragmentRegisters(i, i.operands[f], f == 0, &draft, fragments[f]));
    if (!FillsWarp(*fragments[f])) return Unknown(i);
    unsigned held = fragments[f]->rows * fragments[f]->columns / kWarpSize;
    unsigned room = fragments[f]->registers * ElementsPerRegister(fragments[f]->type);
    if (opaque ? room < held : room != held) return Bad(i, "wrong number of registers");
  }
  MmaOp* stored = context_->NewMatrix();
  *stored = op;
  draft.inst.mma = stored;
  drafts_.push_back(std::move(draft));
  return Status();
}

Status FunctionLowering::LowerWmma(const Instruction& i) {
  if (i.Has("mma")) return LowerMultiply(i, true);
  bool store = i.Has("store");
  unsigned m, n, k;
  if ((!store && !i.Has("load")) || !ParseShape(i, &m, &n, &k) || i.types.size() != 1) return Unknown(i);
  if (i.operands.size() < 2 || i.operands.size() > 3) return Unknown(i);
  MmaOp op;
  op.d.type = i.types[0];
  op.d.rows = i.Has("b") ? k : m;
  op.d.columns = i.Has("a") ? k : n;
  op.row_major = i.Has("row");
  if (!IsInput(op.d.type) && op.d.type != Type::kF32 && op.d.type != Type::kS32) return Unknown(i);
  ptx::Space space = i.Has("global")                           ? ptx::Space::kGlobal
                     : i.Has("shared") || i.Has("shared::cta") ? ptx::Space::kShared
                                                               : ptx::Space::kNone;
  Ref stride;
  if (i.operands.size() == 3) {
    ASSIGN_OR_RETURN(stride, Source(i.operands[2], Type::kU32));
  } else {
    stride = context_->Constant(op.row_major ? op.d.columns : op.d.rows, 4);
  }
  ASSIGN_OR_RETURN(Address address, AddressOf(i.operands[store ? 0 : 1], space));
  op.space = address.space;
  Draft draft;
  draft.inst.fn = store ? &OpMatrixStore : &OpMatrixLoad;
  draft.inst.line = line_;
  draft.inst.p = draft.inst.q = kNoPredicate;
  ApplyAddress(draft, address);
  Use(draft, Field::kC, stride);
  RETURN_IF_ERROR(FragmentRegisters(i, i.operands[store ? 1 : 0], !store, &draft, &op.d));
  unsigned held = op.d.rows * op.d.columns / kWarpSize;
  if (!FillsWarp(op.d) || op.d.registers * ElementsPerRegister(op.d.type) < held) {
    return Bad(i, "wrong number of registers");
  }
  MmaOp* stored = context_->NewMatrix();
  *stored = op;
  draft.inst.mma = stored;
  drafts_.push_back(std::move(draft));
  return Status();
}

// ldmatrix.sync.aligned.m8n8.x1/x2/x4{.trans}.shared.b16
Status FunctionLowering::LowerLoadMatrix(const Instruction& i) {
  if (i.operands.size() != 2 || !i.Has("m8n8") || !i.Has("b16")) return Unknown(i);
  MmaOp op;
  op.count = i.Has("x4") ? 4 : i.Has("x2") ? 2 : 1;
  op.transpose = i.Has("trans");
  bool shared = i.Has("shared") || i.Has("shared::cta");
  ASSIGN_OR_RETURN(Address address,
                   AddressOf(i.operands[1], shared ? ptx::Space::kShared : ptx::Space::kNone));
  op.space = address.space;
  Draft draft;
  draft.inst.fn = &OpLoadMatrix8x8;
  draft.inst.line = line_;
  draft.inst.p = draft.inst.q = kNoPredicate;
  ApplyAddress(draft, address);
  RETURN_IF_ERROR(FragmentRegisters(i, i.operands[0], true, &draft, &op.d));
  if (op.d.registers != op.count) return Bad(i, "wrong number of registers");
  MmaOp* stored = context_->NewMatrix();
  *stored = op;
  draft.inst.mma = stored;
  drafts_.push_back(std::move(draft));
  return Status();
}

}  // namespace softgpu::exec
