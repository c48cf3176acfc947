// An ALU instruction as plain numbers, the form in which the text-reading front (alu_find.cc) asks an
// instruction-set variant for its function. Plain data only: the variants are compiled for different CPUs,
// and an inline function of a library that both use could otherwise end up compiled for the wrong one.
#ifndef SOFTGPU_PTX_EXEC_ALU_KEY_H_
#define SOFTGPU_PTX_EXEC_ALU_KEY_H_

#include <cstdint>

#include "softgpu/ptx/exec/lanes.h"
#include "softgpu/ptx/module.h"

namespace softgpu::exec {

enum class AluCode : uint8_t {
  kAdd,
  kSub,
  kMul,
  kMad,
  kFma,
  kDiv,
  kRem,
  kMin,
  kMax,
  kAbs,
  kNeg,
  kSad,
  kDp2a,
  kDp4a,
  kMul24,
  kMad24,
  kSqrt,
  kRcp,
  kRsqrt,
  kEx2,
  kLg2,
  kSin,
  kCos,
  kTanh,
  kCopysign,
  kTestp,
  kAnd,
  kOr,
  kXor,
  kNot,
  kCnot,
  kLop3,
  kShl,
  kShr,
  kShf,
  kBfe,
  kBfi,
  kBfind,
  kBrev,
  kClz,
  kPopc,
  kPrmt,
  kFns,
  kBmsk,
  kSzext,
  kSet,
  kSetp,
  kSelp,
  kSlct,
  kCvt,
  kCvtPack,
  kMov,
};

enum class Part : uint8_t { kNone, kLo, kHi, kWide };
enum class Round : uint8_t { kNone, kNearest, kZero, kDown, kUp, kNearestAway };
enum class Compare : uint8_t {
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kEqu,
  kNeu,
  kLtu,
  kLeu,
  kGtu,
  kGeu,
  kNum,
  kNan,
};
enum class Flow : uint8_t { kNone, kOut, kIn, kInOut };  // carry: .cc, c-variants, both
enum class Test : uint8_t { kFinite, kInfinite, kNumber, kNotANumber, kNormal, kSubnormal };
enum class Permute : uint8_t { kDefault, kF4e, kB4e, kRc8, kEcl, kEcr, kRc16 };

struct AluKey {
  AluCode code;
  ptx::Type type = ptx::Type::kNone;    // the first type word (the destination's for cvt, set and slct)
  ptx::Type source = ptx::Type::kNone;  // the second one
  Part part = Part::kNone;
  Round round = Round::kNone;
  Compare compare = Compare::kEq;
  Flow carry = Flow::kNone;
  Test test = Test::kFinite;
  Permute permute = Permute::kDefault;
  uint8_t lut = 0;        // lop3
  bool integral = false;  // .rni .rzi .rmi .rpi
  bool ftz = false, sat = false, satfinite = false, approx = false, full = false, nan = false,
       xorsign_abs = false, relu = false;
  bool left = false, wrap = false, shiftamt = false, clamp = false;
};

// Each fills shape, function and types of *op, or gives false when it has no such function.
using ResolveFn = bool (*)(const AluKey& key, AluOp* op);
namespace isa_v2 {
bool ResolveInteger(const AluKey& key, AluOp* op);
bool ResolveFloat(const AluKey& key, AluOp* op);
bool ResolveHalf(const AluKey& key, AluOp* op);
bool ResolveConvert(const AluKey& key, AluOp* op);
// What is rare exists for the baseline only.
bool ResolveBits(const AluKey& key, AluOp* op);
bool ResolveSmall(const AluKey& key, AluOp* op);
bool ResolveCompare(const AluKey& key, AluOp* op);
bool ResolveConvertRest(const AluKey& key, AluOp* op);
}  // namespace isa_v2
namespace isa_v3 {
bool ResolveInteger(const AluKey& key, AluOp* op);
bool ResolveFloat(const AluKey& key, AluOp* op);
bool ResolveHalf(const AluKey& key, AluOp* op);
bool ResolveConvert(const AluKey& key, AluOp* op);
}  // namespace isa_v3
namespace isa_v4 {
bool ResolveInteger(const AluKey& key, AluOp* op);
bool ResolveFloat(const AluKey& key, AluOp* op);
bool ResolveHalf(const AluKey& key, AluOp* op);
bool ResolveConvert(const AluKey& key, AluOp* op);
}  // namespace isa_v4

enum class Isa : uint8_t { kV2, kV3, kV4 };  // x86-64-v2, -v3, -v4
// Whether the variant was built and this CPU runs it.
bool IsaRuns(Isa isa);
// As FindAlu, for one variant; for tests, which compare them.
stasis::Result<AluOp> FindAluForTest(const ptx::Instruction& instruction, Isa isa);

}  // namespace softgpu::exec

#endif  // SOFTGPU_PTX_EXEC_ALU_KEY_H_
