#include "softgpu/ptx/exec/lower.h"

#include <algorithm>

#include "softgpu/ptx/exec/allocate.h"
#include "softgpu/ptx/exec/layout.h"
#include "softgpu/ptx/exec/ops.h"

namespace softgpu::exec {

using ptx::Operand;
using ptx::Space;
using stasis::Errorf;
using stasis::Result;
using stasis::Status;
using stasis::StatusCode;

namespace {

// CUDA C++ Programming Guide, technical specifications: local memory a thread.
constexpr uint64_t kMaxLocalBytes = 512 * 1024;
// A warp's registers in one activation; far above what compilers make.
constexpr uint32_t kMaxFrameBytes = 16 << 20;

bool Is(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool SignedResult(ptx::Type type) {
  using ptx::Type;
  return type == Type::kS8 || type == Type::kS16 || type == Type::kS32 || type == Type::kS64;
}

uint32_t AlignUp(uint64_t value, uint64_t align) {
  return static_cast<uint32_t>((value + align - 1) / align * align);
}

}  // namespace

FunctionLowering::FunctionLowering(const ptx::Function& source, Function* function, Kernel* kernel,
                                   LoweringContext* context)
    : source_(source), function_(function), kernel_(kernel), context_(context) {
  for (const ptx::Register& r : source.registers) {
    vreg_bytes_.push_back(r.type == Type::kPred ? 0 : static_cast<uint8_t>(LaneBytes(r.type)));
  }
}

Result<LoweredFunction> FunctionLowering::Run() {
  RETURN_IF_ERROR(PlaceLocals());
  FindAliases();
  RETURN_IF_ERROR(LowerAll());
  ResolveTargets();
  for (Draft& d : drafts_)
    d.inst.count = std::max<uint8_t>(d.inst.count, static_cast<uint8_t>(d.refs.size()));
  LayOut(&drafts_);
  LoweredFunction lowered;
  lowered.drafts = std::move(drafts_);
  std::vector<uint32_t> places = AllocateRows(vreg_bytes_, &lowered);
  if (lowered.frame_bytes > kMaxFrameBytes) {
    return Errorf(StatusCode::kUnsupported, "line %u: '%s' needs too many registers", source_.line,
                  source_.name.c_str());
  }
  for (std::vector<CallSlot>* slots : {&function_->params, &function_->results}) {
    for (CallSlot& s : *slots) {
      if (!s.is_register) continue;
      uint32_t place = places[s.ref];
      // A parameter that the body never looks at is not passed.
      s.ref = place == kNoPlace ? 0 : place;
      if (place == kNoPlace) s.skipped = true;
    }
  }
  return lowered;
}

// Gives .local and .param variables their places in the activation, and lists parameters and results for
// calls.
Status FunctionLowering::PlaceLocals() {
  uint64_t at = 0;
  auto place = [&](const ptx::Variable& v) {
    uint64_t align = std::max<uint32_t>(v.align, 1);
    at = (at + align - 1) / align * align;
    locals_[v.name] = {static_cast<uint32_t>(at), v.size};
    at += v.size;
    return at <= kMaxLocalBytes;
  };
  auto slot = [&](const ptx::Variable& v, std::vector<CallSlot>* slots) {
    CallSlot s;
    if (v.space == Space::kReg) {
      s.is_register = true;
      s.size = LaneBytes(v.type);
      for (uint32_t r = 0; r < source_.registers.size(); ++r) {
        if (source_.registers[r].name == v.name) s.ref = r;
      }
    } else {
      if (!place(v)) return false;
      s.offset = locals_[v.name].offset;
      s.size = static_cast<uint32_t>(v.size);
    }
    slots->push_back(s);
    return true;
  };
  bool fits = true;
  if (kernel_) {
    for (size_t n = 0; n < source_.params.size(); ++n)
      kernel_params_[source_.params[n].name] = kernel_->info.params[n];
  } else {
    for (const ptx::Variable& v : source_.params) fits &= slot(v, &function_->params);
    for (const ptx::Variable& v : source_.results) fits &= slot(v, &function_->results);
  }
  for (const ptx::Variable& v : source_.locals) {
    if (v.space == Space::kLocal || v.space == Space::kParam) fits &= place(v);
  }
  if (!fits) {
    return Errorf(StatusCode::kUnsupported, "line %u: too much local memory in '%s'", source_.line,
                  source_.name.c_str());
  }
  function_->local_bytes = AlignUp(at, 16);
  return Status();
}

// How often each register may be written, counted up to 2.
void FunctionLowering::CountDefinitions(std::vector<uint8_t>* definitions) const {
  auto count = [&](const Operand& o) {
    if (o.kind == Kind::kReg && (*definitions)[o.reg] < 2) ++(*definitions)[o.reg];
  };
  auto count_all = [&](const Operand& o) {
    count(o);
    for (const Operand& e : o.elements) count(e);
  };
  for (const Instruction& i : source_.instructions) {
    if (i.operands.empty()) continue;
    count_all(i.operands[0]);
    if (i.second_dest && i.operands.size() > 1) count_all(i.operands[1]);
  }
  for (const std::vector<ptx::Variable>* list : {&source_.params, &source_.results}) {
    for (const ptx::Variable& v : *list) {
      if (v.space != Space::kReg) continue;
      for (size_t r = 0; r < source_.registers.size(); ++r) {
        if (source_.registers[r].name == v.name) (*definitions)[r] = 2;
      }
    }
  }
}

// Registers written once, with a value that lies in a constant row anyway, need no row of their own.
void FunctionLowering::FindAliases() {
  std::vector<uint8_t> definitions(source_.registers.size(), 0);
  CountDefinitions(&definitions);
  for (const Instruction& i : source_.instructions) {
    if (i.guard != ptx::kNoReg || i.operands.size() != 2 || i.operands[0].kind != Kind::kReg) continue;
    VReg v = i.operands[0].reg;
    Ref ref;
    if (!i.operands[0].name.empty() || definitions[v] != 1 || vreg_bytes_[v] == 0) continue;
    if (AliasOf(i, &v, &ref)) alias_[v] = ref;
  }
}

bool FunctionLowering::AliasOf(const Instruction& i, VReg* v, Ref* ref) {
  const Operand& o = i.operands[1];
  unsigned bytes = BytesOf(*v);
  line_ = i.line;
  if (i.opcode == "ld") {
    MemoryWords words;
    if (!ParseMemoryWords(i, &words).ok() || words.space != Space::kParam || words.vector != 1) return false;
    return o.kind == Kind::kAddress && TryParamRow(o, words, bytes, ref);
  }
  if (i.opcode == "cvta" && i.Has("to") && i.Has("global") && o.kind == Kind::kReg) {
    auto known = alias_.find(o.reg);
    if (known == alias_.end() || BytesOf(o.reg) != bytes) return false;
    *ref = known->second;
    return true;
  }
  if (i.opcode != "mov" || i.types.size() != 1 || LaneBytes(i.types[0]) != bytes) return false;
  bool literal = o.kind == Kind::kInt || o.kind == Kind::kF32 || o.kind == Kind::kF64;
  bool row = o.kind == Kind::kSpecial || o.kind == Kind::kSymbol;
  if (!literal && !row) return false;
  size_t before = drafts_.size();
  Result<Ref> found = Source(o, i.types[0]);
  // Values that take an instruction to make are no aliases.
  bool made = drafts_.size() != before;
  drafts_.resize(before);
  if (!found.ok() || made) return false;
  *ref = *found;
  return true;
}

Status FunctionLowering::LowerAll() {
  for (uint32_t n = 0; n < source_.instructions.size(); ++n) {
    const Instruction& i = source_.instructions[n];
    first_draft_.push_back(static_cast<uint32_t>(drafts_.size()));
    line_ = i.line;
    RETURN_IF_ERROR(i.guard == ptx::kNoReg ? LowerOne(i) : LowerGuarded(i, n));
  }
  first_draft_.push_back(static_cast<uint32_t>(drafts_.size()));
  Emit(kernel_ ? &OpExit : &OpReturn).flow = Draft::Flow::kEnd;
  if (kernel_) return Status();
  // Results in registers are read by the caller when the function returns.
  for (Draft& d : drafts_) {
    if (d.inst.fn != &OpReturn) continue;
    for (const CallSlot& s : function_->results) {
      if (s.is_register) d.touches.push_back({s.ref, 0, false, true});
    }
  }
  return Status();
}

bool FunctionLowering::MayBeGuarded(const Instruction& i) const {
  return !Is(i.opcode, {"bra", "brx", "call", "ret", "exit", "trap", "bar", "barrier", "shfl", "vote",
                        "match", "redux", "elect", "nanosleep", "brkpt", "wmma", "mma", "ldmatrix"});
}

Status FunctionLowering::LowerGuarded(const Instruction& i, uint32_t index) {
  if (i.opcode == "bra") return LowerBranch(i);
  if (BytesOf(i.guard) != 0) return Bad(i, "the guard is no predicate");
  if (!MayBeGuarded(i)) {
    Draft& skip = Emit(nullptr);
    skip.flow = Draft::Flow::kBranch;
    skip.target = index + 1;
    skip.inst.y = i.guard_negated ? 0 : 1;
    UsePred(skip, Field::kP, i.guard);
    return LowerOne(i);
  }
  size_t begin = drafts_.size();
  RETURN_IF_ERROR(LowerOne(i));
  std::vector<Draft> plain(std::make_move_iterator(drafts_.begin() + static_cast<ptrdiff_t>(begin)),
                           std::make_move_iterator(drafts_.end()));
  drafts_.resize(begin);
  for (Draft& d : plain) {
    if (!d.pure) {
      Draft& guard = Emit(&OpGuard);
      guard.guarded_next = true;
      guard.inst.y = i.guard_negated;
      UsePred(guard, Field::kP, i.guard);
      d.guarded = true;
    }
    drafts_.push_back(std::move(d));
  }
  return Status();
}

void FunctionLowering::ResolveTargets() {
  for (Draft& d : drafts_) {
    if (d.flow == Draft::Flow::kGoto || d.flow == Draft::Flow::kBranch) d.target = first_draft_[d.target];
    for (uint32_t& t : d.targets) t = first_draft_[t];
  }
}

Status FunctionLowering::LowerOne(const Instruction& i) {
  const std::string& op = i.opcode;
  if (op == "ld" || op == "ldu") return LowerLoad(i);
  if (op == "st") return LowerStore(i);
  if (op == "mov") return LowerMov(i);
  if (op == "bra") return LowerBranch(i);
  if (op == "brx") return LowerBranchTable(i);
  if (op == "call") return LowerCall(i);
  if (op == "atom") return LowerAtomic(i, false);
  if (op == "red" && !i.Has("async")) return LowerAtomic(i, true);
  if (op == "cvta") return LowerCvta(i);
  if (op == "isspacep") return LowerIsSpace(i);
  if (op == "tex") return LowerTexture(i);
  if (op == "suld" || op == "sust") return LowerSurface(i, op == "sust");
  if (op == "wmma") return LowerWmma(i);
  if (op == "mma") return LowerMultiply(i, false);
  if (op == "ldmatrix") return LowerLoadMatrix(i);
  if (op == "alloca") return LowerAlloca(i);
  if (op == "cp" && i.Has("async") && !i.Has("bulk")) return LowerCpAsync(i);
  bool known = false;
  RETURN_IF_ERROR(LowerSync(i, &known));
  if (known) return Status();
  bool predicates = i.types.size() == 1 && i.types[0] == Type::kPred;
  if (predicates && Is(op, {"and", "or", "xor", "not"})) return LowerPredicateLogic(i);
  return LowerAlu(i);
}

Status FunctionLowering::LowerAlu(const Instruction& i) {
  Result<AluOp> op = FindAlu(i);
  if (!op.ok()) return Unknown(i);
  size_t wanted = 1u + op->sources + (i.second_dest ? 1 : 0);
  if (op->shape == AluOp::Shape::kSelect) ++wanted;
  if (i.operands.size() < wanted) return Bad(i, "too few operands");
  return LowerAluShape(i, *op);
}

Status FunctionLowering::LowerAluShape(const Instruction& i, const AluOp& op) {
  using Shape = AluOp::Shape;
  if (op.shape == Shape::kCompare || op.shape == Shape::kTest) return LowerCompare(i, op);
  Ref sources[4] = {0, 0, 0, 0};
  for (unsigned s = 0; s < op.sources; ++s) {
    ASSIGN_OR_RETURN(sources[s], Source(i.operands[1 + s], op.source_type[s]));
  }
  VReg pred = kNoVReg;
  if (op.shape == Shape::kSelect) {
    ASSIGN_OR_RETURN(pred, PredicateOperand(i.operands[1 + op.sources]));
  }
  ASSIGN_OR_RETURN(VReg dest, Dest(i.operands[0], LaneBytes(op.dest_type)));
  static constexpr Handler kLaneHandlers[] = {&OpLane0, &OpLane1, &OpLane2, &OpLane3, &OpLane4};
  Handler fn = op.shape == Shape::kSelect  ? &OpSelect
               : op.shape == Shape::kCarry ? &OpCarry
                                           : kLaneHandlers[op.sources];
  Draft& d = Emit(fn);
  static constexpr Field kFields[] = {Field::kA, Field::kB, Field::kC};
  for (unsigned s = 0; s < op.sources && s < 3; ++s) Use(d, kFields[s], sources[s]);
  if (op.shape == Shape::kLane4) Use(d, Field::kRefs, sources[3]);
  if (op.shape == Shape::kSelect) {
    d.inst.select = op.select;
    d.inst.y = i.operands[1 + op.sources].negated;
    UsePred(d, Field::kP, pred);
  } else if (op.shape == Shape::kCarry) {
    d.inst.carry = op.carry;
    VReg carry = Carry();
    UsePred(d, Field::kP, carry);
    DefPred(d, Field::kP, carry);
  } else if (op.shape == Shape::kLane4) {
    d.inst.lane4 = op.lane4;
  } else {
    d.inst.lane = op.lane;
  }
  Def(d, Field::kD, dest);
  return FinishDest(i.operands[0], dest, SignedResult(op.dest_type));
}

// setp.CmpOp{.BoolOp} p{|q}, a, b{, {!}c}, and testp.
Status FunctionLowering::LowerCompare(const Instruction& i, const AluOp& op) {
  size_t first = i.second_dest ? 2 : 1;
  ASSIGN_OR_RETURN(Ref a, Source(i.operands[first], op.source_type[0]));
  Ref b = a;
  bool test = op.shape == AluOp::Shape::kTest;
  if (!test) {
    ASSIGN_OR_RETURN(b, Source(i.operands[first + 1], op.source_type[1]));
  }
  uint8_t combine = i.Has("and") ? kAnd : i.Has("or") ? kOr : i.Has("xor") ? kXor : kNoCombine;
  VReg other = kNoVReg;
  if (combine != kNoCombine) {
    if (i.operands.size() < first + 3) return Bad(i, "too few operands");
    ASSIGN_OR_RETURN(other, PredicateOperand(i.operands[first + 2]));
  }
  ASSIGN_OR_RETURN(VReg p, PredicateOperand(i.operands[0]));
  VReg q = kNoVReg;
  if (i.second_dest) {
    ASSIGN_OR_RETURN(q, PredicateOperand(i.operands[1]));
  }
  Draft& d = Emit(test ? &OpTest : &OpCompare);
  if (test) {
    d.inst.test = op.test;
  } else {
    d.inst.compare = op.compare;
  }
  Use(d, Field::kA, a);
  Use(d, Field::kB, b);
  d.inst.x = combine;
  if (combine != kNoCombine) {
    d.inst.y = i.operands[first + 2].negated ? kNegateCombined : 0;
    UsePred(d, Field::kImm, other);
  }
  DefPred(d, Field::kP, p);
  if (q != kNoVReg) DefPred(d, Field::kQ, q);
  return Status();
}

}  // namespace softgpu::exec
