// Help for tests of the arithmetic: instructions from their mnemonics, rows, and the values that matter.
#ifndef SOFTGPU_PTX_EXEC_ALU_TESTING_H_
#define SOFTGPU_PTX_EXEC_ALU_TESTING_H_

#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "softgpu/ptx/exec/alu_key.h"
#include "softgpu/ptx/exec/lanes.h"

namespace softgpu::exec {

// "add.rn.f32" as an instruction without operands; lop3 gets its table from `lut`.
ptx::Instruction Mnemonic(std::string_view text, uint8_t lut = 0);
// Every mnemonic of alu_mnemonics.txt, its alternatives expanded, without repetitions.
std::vector<std::string> AllMnemonics();
// The variants that were built and run here.
std::vector<Isa> RunningIsas();
// The operation; a test failure and a null function when there is none.
AluOp Resolved(std::string_view text, Isa isa = Isa::kV2, uint8_t lut = 0);

// A register of one warp.
struct alignas(64) Row {
  unsigned char bytes[kWarpSize * 16] = {};

  template <typename T>
  T Get(unsigned lane) const {
    T value;
    std::memcpy(&value, bytes + lane * sizeof(T), sizeof(T));
    return value;
  }
  template <typename T>
  void Set(unsigned lane, T value) {
    std::memcpy(bytes + lane * sizeof(T), &value, sizeof(T));
  }
};

// The value of an 8-bit type's register lane.
template <typename T>
using LaneOf =
    std::conditional_t<sizeof(T) == 1, std::conditional_t<std::is_signed_v<T>, int16_t, uint16_t>, T>;

// A warp's worth of tuples is collected and run at once, on every variant; `check` then sees each tuple's
// result.
template <typename D, typename A, typename B, typename C>
class Batch {
 public:
  explicit Batch(std::string_view mnemonic) : mnemonic_(mnemonic) {
    for (Isa isa : RunningIsas()) ops_.push_back(Resolved(mnemonic, isa));
  }
  // check(got, a, b, c) is called for every tuple, at the latest by Flush().
  template <typename Check>
  void Add(A a, B b, C c, Check check) {
    a_.Set(used_, a);
    b_.Set(used_, b);
    c_.Set(used_, c);
    if (++used_ == kWarpSize) Flush(check);
  }
  template <typename Check>
  void Flush(Check check) {
    for (const AluOp& op : ops_) {
      Row d;
      if (op.lane == nullptr) return;
      op.lane(d.bytes, a_.bytes, b_.bytes, c_.bytes, kAllLanes);
      for (unsigned l = 0; l < used_; ++l) {
        check(d.template Get<D>(l), a_.template Get<A>(l), b_.template Get<B>(l), c_.template Get<C>(l));
      }
    }
    used_ = 0;
  }

 private:
  std::string mnemonic_;
  std::vector<AluOp> ops_;
  Row a_, b_, c_;
  unsigned used_ = 0;
};

// Bit patterns of a type of `bits` bits: the ends of every range, all powers of two and their neighbours, and
// for floating point zeros, subnormals, ones, infinities and NaNs; then `random` seeded random ones.
std::vector<uint64_t> IntegerEdges(unsigned bits, unsigned random);
std::vector<uint64_t> FloatEdges(unsigned bits, unsigned exponent_bits, unsigned random);
template <typename T>
std::vector<T> Edges(unsigned random) {
  std::vector<T> values;
  std::vector<uint64_t> patterns;
  if constexpr (std::is_same_v<T, float>) {
    patterns = FloatEdges(32, 8, random);
  } else if constexpr (std::is_same_v<T, double>) {
    patterns = FloatEdges(64, 11, random);
  } else {
    patterns = IntegerEdges(8 * sizeof(T), random);
  }
  for (uint64_t p : patterns) {
    T value;
    std::memcpy(&value, &p, sizeof value);
    values.push_back(value);
  }
  return values;
}

template <typename To, typename From>
To Bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

}  // namespace softgpu::exec

#endif  // SOFTGPU_PTX_EXEC_ALU_TESTING_H_
