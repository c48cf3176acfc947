// From an instruction's words to an AluKey, and from there to the best variant's function.
#include <array>
#include <cstring>
#include <string_view>
#include <utility>

#include "softgpu/ptx/exec/alu_key.h"

namespace softgpu::exec {
namespace {

using ptx::Instruction;
using ptx::Operand;
using ptx::Type;
using stasis::Errorf;
using stasis::Result;
using stasis::Status;
using stasis::StatusCode;

template <typename Value>
struct Word {
  std::string_view name;
  Value value;
};

constexpr Word<AluCode> kOpcodes[] = {
    {"add", AluCode::kAdd},     {"addc", AluCode::kAdd},
    {"sub", AluCode::kSub},     {"subc", AluCode::kSub},
    {"mul", AluCode::kMul},     {"mad", AluCode::kMad},
    {"madc", AluCode::kMad},    {"fma", AluCode::kFma},
    {"div", AluCode::kDiv},     {"rem", AluCode::kRem},
    {"min", AluCode::kMin},     {"max", AluCode::kMax},
    {"abs", AluCode::kAbs},     {"neg", AluCode::kNeg},
    {"sad", AluCode::kSad},     {"dp2a", AluCode::kDp2a},
    {"dp4a", AluCode::kDp4a},   {"mul24", AluCode::kMul24},
    {"mad24", AluCode::kMad24}, {"sqrt", AluCode::kSqrt},
    {"rcp", AluCode::kRcp},     {"rsqrt", AluCode::kRsqrt},
    {"ex2", AluCode::kEx2},     {"lg2", AluCode::kLg2},
    {"sin", AluCode::kSin},     {"cos", AluCode::kCos},
    {"tanh", AluCode::kTanh},   {"copysign", AluCode::kCopysign},
    {"testp", AluCode::kTestp}, {"and", AluCode::kAnd},
    {"or", AluCode::kOr},       {"xor", AluCode::kXor},
    {"not", AluCode::kNot},     {"cnot", AluCode::kCnot},
    {"lop3", AluCode::kLop3},   {"shl", AluCode::kShl},
    {"shr", AluCode::kShr},     {"shf", AluCode::kShf},
    {"bfe", AluCode::kBfe},     {"bfi", AluCode::kBfi},
    {"bfind", AluCode::kBfind}, {"brev", AluCode::kBrev},
    {"clz", AluCode::kClz},     {"popc", AluCode::kPopc},
    {"prmt", AluCode::kPrmt},   {"fns", AluCode::kFns},
    {"bmsk", AluCode::kBmsk},   {"szext", AluCode::kSzext},
    {"set", AluCode::kSet},     {"setp", AluCode::kSetp},
    {"selp", AluCode::kSelp},   {"slct", AluCode::kSlct},
    {"cvt", AluCode::kCvt},     {"mov", AluCode::kMov},
};
constexpr Word<Compare> kCompares[] = {
    {"eq", Compare::kEq},   {"ne", Compare::kNe},   {"lt", Compare::kLt},   {"le", Compare::kLe},
    {"gt", Compare::kGt},   {"ge", Compare::kGe},   {"lo", Compare::kLt},   {"ls", Compare::kLe},
    {"hi", Compare::kGt},   {"hs", Compare::kGe},   {"equ", Compare::kEqu}, {"neu", Compare::kNeu},
    {"ltu", Compare::kLtu}, {"leu", Compare::kLeu}, {"gtu", Compare::kGtu}, {"geu", Compare::kGeu},
    {"num", Compare::kNum}, {"nan", Compare::kNan},
};
constexpr Word<Test> kTests[] = {
    {"finite", Test::kFinite},         {"infinite", Test::kInfinite}, {"number", Test::kNumber},
    {"notanumber", Test::kNotANumber}, {"normal", Test::kNormal},     {"subnormal", Test::kSubnormal},
};
constexpr Word<Permute> kPermutes[] = {
    {"f4e", Permute::kF4e}, {"b4e", Permute::kB4e}, {"rc8", Permute::kRc8},
    {"ecl", Permute::kEcl}, {"ecr", Permute::kEcr}, {"rc16", Permute::kRc16},
};
struct RoundWord {
  Round round;
  bool integral;
};
constexpr Word<RoundWord> kRounds[] = {
    {"rn", {Round::kNearest, false}}, {"rz", {Round::kZero, false}},         {"rm", {Round::kDown, false}},
    {"rp", {Round::kUp, false}},      {"rna", {Round::kNearestAway, false}}, {"rni", {Round::kNearest, true}},
    {"rzi", {Round::kZero, true}},    {"rmi", {Round::kDown, true}},         {"rpi", {Round::kUp, true}},
};

template <typename Value, size_t kCount>
const Value* Lookup(const Word<Value> (&table)[kCount], std::string_view name) {
  for (const Word<Value>& word : table) {
    if (word.name == name) return &word.value;
  }
  return nullptr;
}

// Words that mean the same for every opcode; true when `word` was one of them.
bool ReadCommonWord(std::string_view word, AluKey* key) {
  if (const RoundWord* round = Lookup(kRounds, word)) {
    key->round = round->round;
    key->integral = round->integral;
    return true;
  }
  constexpr std::pair<std::string_view, bool AluKey::*> kFlags[] = {
      {"ftz", &AluKey::ftz},           {"sat", &AluKey::sat},   {"satfinite", &AluKey::satfinite},
      {"approx", &AluKey::approx},     {"full", &AluKey::full}, {"NaN", &AluKey::nan},
      {"relu", &AluKey::relu},         {"wrap", &AluKey::wrap}, {"clamp", &AluKey::clamp},
      {"shiftamt", &AluKey::shiftamt},
  };
  for (const auto& [name, flag] : kFlags) {
    if (word == name) {
      key->*flag = true;
      return true;
    }
  }
  return false;
}

// Words whose meaning depends on the opcode.
bool ReadOpcodeWord(std::string_view word, AluKey* key) {
  switch (key->code) {
    case AluCode::kMul:
    case AluCode::kMad:
    case AluCode::kMul24:
    case AluCode::kMad24:
    case AluCode::kDp2a:
      key->part = word == "lo"     ? Part::kLo
                  : word == "hi"   ? Part::kHi
                  : word == "wide" ? Part::kWide
                                   : key->part;
      return word == "lo" || word == "hi" || word == "wide";
    case AluCode::kSet:
    case AluCode::kSetp:
      if (const Compare* compare = Lookup(kCompares, word)) {
        key->compare = *compare;
        return true;
      }
      return key->code == AluCode::kSetp && (word == "and" || word == "or" || word == "xor");
    case AluCode::kTestp:
      if (const Test* test = Lookup(kTests, word)) {
        key->test = *test;
        return true;
      }
      return false;
    case AluCode::kPrmt:
      if (const Permute* permute = Lookup(kPermutes, word)) {
        key->permute = *permute;
        return true;
      }
      return false;
    case AluCode::kShf:
      key->left |= word == "l";
      return word == "l" || word == "r";
    case AluCode::kMin:
    case AluCode::kMax:
      if (word == "xorsign") return true;
      key->xorsign_abs |= word == "abs";
      return word == "abs";
    case AluCode::kCvt:
      if (word == "pack") key->code = AluCode::kCvtPack;
      return word == "pack";
    default:
      return false;
  }
}

Flow FlowOf(const Instruction& i) {
  bool out = i.Has("cc");
  bool in = i.opcode == "addc" || i.opcode == "subc" || i.opcode == "madc";
  return in ? (out ? Flow::kInOut : Flow::kIn) : out ? Flow::kOut : Flow::kNone;
}

Status Unsupported(const Instruction& i) {
  return Errorf(StatusCode::kUnsupported, "'%s' is not an instruction we know", i.Mnemonic().c_str());
}

// How many type words the opcode's longest form has.
size_t MostTypes(AluCode code) {
  switch (code) {
    case AluCode::kCvtPack:
      return 3;
    case AluCode::kCvt:
    case AluCode::kSet:
    case AluCode::kSlct:
    case AluCode::kDp2a:
    case AluCode::kDp4a:
    // Mixed precision: add.f32.f16.
    case AluCode::kAdd:
    case AluCode::kSub:
    case AluCode::kFma:
      return 2;
    default:
      return 1;
  }
}

Result<AluKey> KeyOf(const Instruction& i) {
  const AluCode* code = Lookup(kOpcodes, i.opcode);
  if (code == nullptr)
    return Errorf(StatusCode::kNotFound, "'%s' is not an arithmetic instruction", i.opcode.c_str());
  AluKey key;
  key.code = *code;
  key.carry = FlowOf(i);
  for (const std::string& word : i.words) {
    if (ptx::TypeFromName(word) != Type::kNone || word == "cc") continue;
    if (word == "xorsign::abs" || word == "xorsign.abs") {
      key.xorsign_abs = true;
      continue;
    }
    if (!ReadOpcodeWord(word, &key) && !ReadCommonWord(word, &key)) return Unsupported(i);
  }
  if (i.types.empty() || i.types.size() > MostTypes(key.code)) return Unsupported(i);
  key.type = i.types[0];
  key.source = i.types.size() > 1 ? i.types[1] : Type::kNone;
  if (key.code == AluCode::kLop3) {
    // The table is the last operand and part of what the function is.
    if (i.operands.size() < 5 || i.operands[4].kind != Operand::Kind::kInt || i.operands[4].bits > 255)
      return Unsupported(i);
    key.lut = static_cast<uint8_t>(i.operands[4].bits);
  }
  bool extreme = key.code == AluCode::kMin || key.code == AluCode::kMax;
  if (extreme && i.operands.size() > 3) return Unsupported(i);  // the three-source forms
  if (key.type == Type::kPred) return Unsupported(i);
  return key;
}

bool Resolve(const AluKey& key, Isa isa, AluOp* op) {
  // First what the variant has, then what exists for the baseline only.
  static constexpr ResolveFn kVariants[][4] = {
    {&isa_v2::ResolveInteger, &isa_v2::ResolveFloat, &isa_v2::ResolveConvert, &isa_v2::ResolveHalf},
#if SOFTGPU_ALU_LEVELS > 1
    {&isa_v3::ResolveInteger, &isa_v3::ResolveFloat, &isa_v3::ResolveConvert, &isa_v3::ResolveHalf},
    {&isa_v4::ResolveInteger, &isa_v4::ResolveFloat, &isa_v4::ResolveConvert, &isa_v4::ResolveHalf},
#endif
  };
  static constexpr ResolveFn kRest[] = {&isa_v2::ResolveBits, &isa_v2::ResolveSmall, &isa_v2::ResolveCompare,
                                        &isa_v2::ResolveConvertRest};
  for (ResolveFn resolve : kVariants[static_cast<unsigned>(isa)]) {
    if (resolve(key, op)) return true;
  }
  for (ResolveFn resolve : kRest) {
    if (resolve(key, op)) return true;
  }
  return false;
}

Isa BestIsa() { return IsaRuns(Isa::kV4) ? Isa::kV4 : IsaRuns(Isa::kV3) ? Isa::kV3 : Isa::kV2; }

Result<AluOp> Find(const Instruction& instruction, Isa isa) {
  Result<AluKey> key = KeyOf(instruction);
  if (!key.ok()) return std::move(key).status();
  AluOp op;
  op.lane = nullptr;
  op.dest_type = Type::kNone;
  for (Type& type : op.source_type) type = Type::kNone;
  if (!Resolve(*key, isa, &op)) return Unsupported(instruction);
  return op;
}

uint64_t BitsOf(double value) { return __builtin_bit_cast(uint64_t, value); }
uint32_t BitsOf(float value) { return __builtin_bit_cast(uint32_t, value); }

// A literal's value for floating point types: 0f and 0d literals are patterns of their own width.
double LiteralValue(const Operand& operand) {
  switch (operand.kind) {
    case Operand::Kind::kF32:
      return static_cast<double>(__builtin_bit_cast(float, static_cast<uint32_t>(operand.bits)));
    case Operand::Kind::kF64:
      return __builtin_bit_cast(double, operand.bits);
    default:
      return static_cast<double>(static_cast<int64_t>(operand.bits));
  }
}

}  // namespace

unsigned LaneBytes(Type type) {
  switch (type) {
    case Type::kNone:
    case Type::kPred:
      return 0;
    case Type::kU8:
    case Type::kS8:
    case Type::kB8:
    case Type::kU16:
    case Type::kS16:
    case Type::kB16:
    case Type::kF16:
    case Type::kBF16:
    case Type::kE4M3:
    case Type::kE5M2:
    case Type::kE4M3x2:
    case Type::kE5M2x2:
      return 2;
    case Type::kU64:
    case Type::kS64:
    case Type::kB64:
    case Type::kF64:
    case Type::kTexref:
    case Type::kSamplerref:
    case Type::kSurfref:
      return 8;
    case Type::kB128:
      return 16;
    default:
      return 4;
  }
}

bool IsaRuns(Isa isa) {
  switch (isa) {
    case Isa::kV2:
      return true;
#if SOFTGPU_ALU_LEVELS == 1
    default:
      return false;
#else
    case Isa::kV3:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
             __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
    default:
      return IsaRuns(Isa::kV3) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl");
#endif
  }
}

Result<AluOp> FindAlu(const Instruction& instruction) {
  static const Isa isa = BestIsa();
  return Find(instruction, isa);
}

Result<AluOp> FindAluForTest(const Instruction& instruction, Isa isa) { return Find(instruction, isa); }

uint64_t EncodeImmediate(const Operand& operand, Type type) {
  bool literal_float = operand.kind == Operand::Kind::kF32 || operand.kind == Operand::Kind::kF64;
  switch (type) {
    // An integer literal in place of a float is its bit pattern.
    case Type::kF64:
      return literal_float ? BitsOf(LiteralValue(operand)) : operand.bits;
    case Type::kF32:
    case Type::kTF32:
      return operand.kind == Operand::Kind::kF64 ? BitsOf(static_cast<float>(LiteralValue(operand)))
                                                 : operand.bits & 0xffffffff;
    default:
      break;
  }
  switch (LaneBytes(type)) {
    case 2:
      return operand.bits & (type == Type::kU8 || type == Type::kS8 || type == Type::kB8 ? 0xff : 0xffff);
    case 4:
      return operand.bits & 0xffffffff;
    default:
      return operand.bits;
  }
}

}  // namespace softgpu::exec
