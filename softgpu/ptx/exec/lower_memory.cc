// Loads, stores, atomics and asynchronous copies.
#include <algorithm>

#include "softgpu/ptx/exec/atomics.h"
#include "softgpu/ptx/exec/lower.h"
#include "softgpu/ptx/exec/memory.h"
#include "softgpu/ptx/exec/ops.h"

namespace softgpu::exec {

using ptx::Operand;
using ptx::Space;
using stasis::Status;
using stasis::StatusCode;

namespace {

bool IsSigned(ptx::Type type) {
  using ptx::Type;
  return type == Type::kS8 || type == Type::kS16 || type == Type::kS32 || type == Type::kS64;
}

bool OneOf(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Words that tell caches what to do; they change no result.
bool IsCacheWord(std::string_view word) {
  return OneOf(word, {"ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "unified"}) ||
         word.compare(0, 4, "L1::") == 0 || word.compare(0, 4, "L2::") == 0 ||
         word.compare(0, 7, "level::") == 0;
}

bool IsScope(std::string_view word) { return OneOf(word, {"cta", "cluster", "gpu", "sys"}); }

Space SpaceOf(std::string_view word) {
  if (word == "global") return Space::kGlobal;
  if (word == "const") return Space::kConst;
  if (word == "shared" || word == "shared::cta") return Space::kShared;
  if (word == "local") return Space::kLocal;
  if (word == "param" || word == "param::entry" || word == "param::func") return Space::kParam;
  return Space::kNone;
}

// The elements of a vector operand, or the operand itself.
std::vector<const Operand*> Elements(const Operand& o) {
  std::vector<const Operand*> result;
  if (o.kind == Operand::Kind::kVector) {
    for (const Operand& e : o.elements) result.push_back(&e);
  } else {
    result.push_back(&o);
  }
  return result;
}

}  // namespace

Status FunctionLowering::ParseMemoryWords(const Instruction& i, MemoryWords* words) const {
  for (const std::string& word : i.words) {
    Space space = SpaceOf(word);
    Type type = ptx::TypeFromName(word);
    if (space != Space::kNone) {
      words->space = space;
    } else if (type != Type::kNone) {
      words->type = type;
    } else if (OneOf(word, {"v2", "v4", "v8"})) {
      words->vector = static_cast<unsigned>(word[1] - '0');
    } else if (OneOf(word, {"volatile", "relaxed", "acquire", "release", "acq_rel", "mmio", "sc"})) {
      words->strong = true;
    } else if (OneOf(word, {"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"})) {
      words->operation = word;
    } else if (!IsCacheWord(word) && !IsScope(word) && word != "weak" && word != "noftz") {
      return Unknown(i);
    }
  }
  if (words->type == Type::kNone || ptx::SizeOf(words->type) == 0) return Unknown(i);
  if (words->vector * ptx::SizeOf(words->type) > 32) return Unknown(i);
  return Status();
}

bool FunctionLowering::TryParamRow(const Operand& address, const MemoryWords& words, unsigned lane_bytes,
                                   Ref* ref) {
  auto param = kernel_params_.find(address.name);
  unsigned bytes = ptx::SizeOf(words.type);
  if (!kernel_ || param == kernel_params_.end() || address.reg != ptx::kNoReg) return false;
  uint64_t offset = param->second.offset + address.bits;
  if (offset > kernel_->info.param_bytes || bytes > kernel_->info.param_bytes - offset) return false;
  if (bytes > 8 || bytes > lane_bytes || lane_bytes > 8) return false;
  bool sign = IsSigned(words.type);
  for (const ParamRow& row : kernel_->param_rows) {
    if (row.offset == offset && row.bytes == bytes && row.lane_bytes == lane_bytes && row.sign == sign) {
      *ref = row.row | kParamBase;
      return true;
    }
  }
  uint32_t at = kernel_->param_row_bytes;
  kernel_->param_rows.push_back({static_cast<uint32_t>(offset), bytes, lane_bytes, sign, at});
  kernel_->param_row_bytes += lane_bytes * kWarpSize;
  *ref = at | kParamBase;
  return true;
}

Status FunctionLowering::LowerLoad(const Instruction& i) {
  MemoryWords words;
  RETURN_IF_ERROR(ParseMemoryWords(i, &words));
  if (i.operands.size() < 2 || !words.operation.empty()) return Unknown(i);
  std::vector<const Operand*> dests = Elements(i.operands[0]);
  if (dests.size() != words.vector) return Bad(i, "wrong number of registers");
  unsigned size = ptx::SizeOf(words.type);
  const Operand& source = i.operands[1];
  std::vector<unsigned> widths;
  for (const Operand* o : dests) {
    bool discard = o->kind == Kind::kDiscard;
    if (!discard && (o->kind != Kind::kReg || BytesOf(o->reg) == 0))
      return Bad(i, "the result must be a register");
    widths.push_back(discard ? std::max(size, 2u) : BytesOf(o->reg));
  }
  // Kernel parameters are the same for all threads: they lie ready as rows.
  Ref row;
  if (TryParamRow(source, words, widths[0], &row)) {
    for (size_t e = 0; e < dests.size(); ++e) {
      Operand element = source;
      element.bits += e * size;
      if (!TryParamRow(element, words, widths[e], &row)) return Bad(i, "access beyond the parameters");
      if (dests[e]->kind == Kind::kDiscard || alias_.count(dests[e]->reg) != 0) continue;
      Draft& d = Emit(CopyHandler(widths[e]));
      Use(d, Field::kA, row);
      Def(d, Field::kD, dests[e]->reg);
    }
    return Status();
  }
  ASSIGN_OR_RETURN(Address address, AddressOf(source, words.space));
  bool whole = words.strong && words.vector > 1 && words.vector * size <= 16;
  unsigned lane_bytes = widths[0];
  for (unsigned width : widths) lane_bytes = std::max(lane_bytes, width);
  Draft& d = Emit(LoadHandler(address.space, whole));
  ApplyAddress(d, address);
  d.inst.load = LoadElement(size, lane_bytes, IsSigned(words.type), words.strong && !whole);
  if (!d.inst.load) return Bad(i, "the result register is too narrow");
  d.inst.x = static_cast<uint8_t>(size);
  d.inst.z = words.strong;
  d.inst.count = static_cast<uint8_t>(words.vector);
  std::vector<VReg> vregs;
  for (const Operand* o : dests) {
    bool direct = o->kind == Kind::kReg && BytesOf(o->reg) == lane_bytes;
    vregs.push_back(direct ? VReg{o->reg} : NewTemp(lane_bytes));
  }
  if (dests.size() == 1) {
    Def(d, Field::kD, vregs[0]);
  } else {
    for (unsigned e = 0; e < dests.size(); ++e) Def(d, Field::kRefs, vregs[e], e);
  }
  for (size_t e = 0; e < dests.size(); ++e) RETURN_IF_ERROR(FinishDest(*dests[e], vregs[e], false));
  return Status();
}

Status FunctionLowering::LowerStore(const Instruction& i) {
  MemoryWords words;
  RETURN_IF_ERROR(ParseMemoryWords(i, &words));
  if (i.operands.size() < 2 || !words.operation.empty() || words.space == Space::kConst) return Unknown(i);
  std::vector<const Operand*> sources = Elements(i.operands[1]);
  if (sources.size() != words.vector) return Bad(i, "wrong number of registers");
  unsigned size = ptx::SizeOf(words.type), lane_bytes = std::max(size, 2u);
  for (const Operand* o : sources) {
    if (o->kind == Kind::kReg) lane_bytes = std::max(lane_bytes, BytesOf(o->reg));
  }
  std::vector<Ref> rows;
  for (const Operand* o : sources) {
    if (o->kind == Kind::kReg) {
      if (BytesOf(o->reg) < size && BytesOf(o->reg) < 2) return Bad(i, "the source register is too narrow");
      ASSIGN_OR_RETURN(Ref ref, Resized(RefOf(o->reg), BytesOf(o->reg), lane_bytes, false));
      rows.push_back(ref);
    } else if (o->kind == Kind::kInt || o->kind == Kind::kF32 || o->kind == Kind::kF64) {
      rows.push_back(context_->Constant(EncodeImmediate(*o, words.type), lane_bytes));
    } else {
      ASSIGN_OR_RETURN(Ref ref, SourceBytes(*o, lane_bytes));
      rows.push_back(ref);
    }
  }
  ASSIGN_OR_RETURN(Address address, AddressOf(i.operands[0], words.space));
  if (address.space == MemSpace::kKernelParam) return Bad(i, "store to a kernel parameter");
  bool whole = words.strong && words.vector > 1 && words.vector * size <= 16;
  Draft& d = Emit(StoreHandler(address.space, whole));
  ApplyAddress(d, address);
  d.inst.store = StoreElement(size, lane_bytes, words.strong && !whole);
  if (!d.inst.store) return Bad(i, "the source register has the wrong width");
  d.inst.x = static_cast<uint8_t>(size);
  d.inst.z = words.strong;
  d.inst.count = static_cast<uint8_t>(words.vector);
  if (rows.size() == 1) {
    Use(d, Field::kD, rows[0]);
  } else {
    for (unsigned e = 0; e < rows.size(); ++e) Use(d, Field::kRefs, rows[e], e);
  }
  return Status();
}

Status FunctionLowering::LowerAtomic(const Instruction& i, bool reduction) {
  MemoryWords words;
  RETURN_IF_ERROR(ParseMemoryWords(i, &words));
  size_t first = reduction ? 0 : 1;
  bool cas = words.operation == "cas";
  size_t sources = cas ? 2 : 1;
  if (words.vector != 1 || words.operation.empty() || i.operands.size() < first + 1 + sources)
    return Unknown(i);
  if (words.space != Space::kNone && words.space != Space::kGlobal && words.space != Space::kShared) {
    return Unknown(i);
  }
  stasis::Result<AtomicOp> found = FindAtomic(words.operation, words.type);
  if (!found.ok()) return Unknown(i);
  AtomicOp* op = context_->NewAtomic();
  *op = *found;
  ASSIGN_OR_RETURN(Ref b, Source(i.operands[first + 1], words.type));
  Ref c = b;
  if (cas) {
    ASSIGN_OR_RETURN(c, Source(i.operands[first + 2], words.type));
  }
  ASSIGN_OR_RETURN(Address address, AddressOf(i.operands[first], words.space));
  op->space = address.space;
  VReg dest = kNoVReg;
  if (!reduction) {
    ASSIGN_OR_RETURN(dest, Dest(i.operands[0], LaneBytes(words.type)));
  }
  Draft& d = Emit(&OpAtomic);
  d.inst.atomic = op;
  ApplyAddress(d, address);
  Use(d, Field::kB, b);
  Use(d, Field::kC, c);
  d.inst.d = kNoPredicate;
  if (reduction) return Status();
  Def(d, Field::kD, dest);
  return FinishDest(i.operands[0], dest, IsSigned(words.type));
}

// cp.async copies at once: the wait instructions have nothing left to wait for.
Status FunctionLowering::LowerCpAsync(const Instruction& i) {
  if (i.Has("commit_group") || i.Has("wait_group") || i.Has("wait_all")) return Status();
  bool known = i.operands.size() >= 3 && (i.Has("ca") || i.Has("cg")) && i.Has("global") &&
               (i.Has("shared") || i.Has("shared::cta"));
  if (!known || i.operands[2].kind != Kind::kInt) return Unknown(i);
  uint64_t bytes = i.operands[2].bits;
  if (bytes != 4 && bytes != 8 && bytes != 16) return Bad(i, "wrong size");
  Ref size = 0;
  bool sized = i.operands.size() >= 4 && i.operands[3].kind != Kind::kDiscard;
  if (sized) {
    if (i.operands[3].kind == Kind::kReg && BytesOf(i.operands[3].reg) == 0) return Unknown(i);
    if (!(i.operands[3].kind == Kind::kReg && BytesOf(i.operands[3].reg) == 8)) {
      ASSIGN_OR_RETURN(size, Source(i.operands[3], Type::kU32));
    } else {
      sized = false;  // a cache policy
    }
  }
  ASSIGN_OR_RETURN(Address to, AddressOf(i.operands[0], Space::kShared));
  ASSIGN_OR_RETURN(Address from, AddressOf(i.operands[1], Space::kGlobal));
  auto to_row = [](const Address& a) { return a.mode == AddressMode::k32 || a.mode == AddressMode::k64; };
  // Two addresses do not fit into one instruction: the second travels in refs.
  Draft& d = Emit(&OpCopyAsync);
  ApplyAddress(d, from);
  d.inst.x = static_cast<uint8_t>(bytes);
  d.inst.z = static_cast<uint8_t>(to.mode);
  d.inst.number = static_cast<uint64_t>(to.imm);
  if (to_row(to)) Use(d, Field::kB, to.row);
  if (sized) {
    Use(d, Field::kRefs, size, 0);
    d.inst.count = 1;
  }
  return Status();
}

}  // namespace softgpu::exec
