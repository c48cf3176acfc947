#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "softgpu/ptx/exec/half.h"
#include "softgpu/ptx/exec/matrix.h"
#include "softgpu/ptx/exec/memory.h"

namespace softgpu::exec {
namespace {

using ptx::Type;

unsigned BitsOf(Type type) {
  switch (type) {
    case Type::kF16:
    case Type::kBF16:
      return 16;
    case Type::kS8:
    case Type::kU8:
      return 8;
    default:
      return 32;
  }
}

bool IsInteger(Type type) { return type == Type::kS8 || type == Type::kU8 || type == Type::kS32; }

// Exact for every type: integers have at most 32 bits.
double Decode(Type type, uint32_t bits) {
  float f;
  switch (type) {
    case Type::kF16:
      return HalfToFloat(static_cast<uint16_t>(bits));
    case Type::kBF16:
      bits <<= 16;
      break;
    case Type::kTF32:
      bits &= 0xffffe000;  // the low 13 bits of the fraction are not looked at
      break;
    case Type::kS8:
      return static_cast<int8_t>(bits);
    case Type::kU8:
      return static_cast<uint8_t>(bits);
    case Type::kS32:
      return static_cast<int32_t>(bits);
    default:
      break;
  }
  std::memcpy(&f, &bits, sizeof f);
  return f;
}

uint32_t Encode(Type type, double value, bool saturate) {
  if (type == Type::kF16) return FloatToHalf(static_cast<float>(value));
  if (type == Type::kS32) {
    if (saturate) value = std::clamp(value, -2147483648.0, 2147483647.0);
    return static_cast<uint32_t>(static_cast<int64_t>(value));
  }
  auto f = static_cast<float>(value);
  uint32_t bits;
  std::memcpy(&bits, &f, sizeof bits);
  return bits;
}

struct Position {
  unsigned row, column;
};

// Which element is part `part` of register `reg` of a lane.
Position Locate(const Fragment& f, unsigned lane, unsigned reg, unsigned part) {
  unsigned per_register = 32 / BitsOf(f.type), group = lane >> 2, member = lane & 3;
  switch (f.layout) {
    case Fragment::Layout::kManualA:
      return {group + (reg & 1) * 8, per_register * (member + (reg >> 1) * 4) + part};
    case Fragment::Layout::kManualB:
      return {per_register * (member + reg * 4) + part, group};
    case Fragment::Layout::kManualC:
      if (per_register == 2) return {group + reg * 8, 2 * member + part};
      return {group + (reg >> 1) * 8, 2 * member + (reg & 1)};
    case Fragment::Layout::kOpaque:
      break;
  }
  unsigned held = f.rows * f.columns / kWarpSize;
  unsigned element = lane * held + (reg * per_register + part) % held;
  return {element / f.columns, element % f.columns};
}

template <typename Visit>
void ForEachElement(const Fragment& f, Visit visit) {
  unsigned bits = BitsOf(f.type);
  for (unsigned lane = 0; lane < kWarpSize; ++lane) {
    for (unsigned reg = 0; reg < f.registers; ++reg) {
      for (unsigned part = 0; part < 32 / bits; ++part)
        visit(lane, reg, part * bits, Locate(f, lane, reg, part));
    }
  }
}

uint32_t MaskOf(Type type) { return BitsOf(type) == 32 ? ~0u : (1u << BitsOf(type)) - 1; }

std::vector<double> ReadFragment(const Warp& w, const Fragment& f, const Ref* refs) {
  std::vector<double> matrix(size_t{f.rows} * f.columns);
  ForEachElement(f, [&](unsigned lane, unsigned reg, unsigned shift, Position at) {
    uint32_t word = reinterpret_cast<const uint32_t*>(w.Row(refs[reg]))[lane];
    matrix[at.row * f.columns + at.column] = Decode(f.type, word >> shift & MaskOf(f.type));
  });
  return matrix;
}

void WriteFragment(const Warp& w, const Fragment& f, const Ref* refs, const std::vector<double>& matrix,
                   bool saturate) {
  ForEachElement(f, [&](unsigned lane, unsigned reg, unsigned shift, Position at) {
    uint32_t& word = reinterpret_cast<uint32_t*>(w.Row(refs[reg]))[lane];
    uint32_t bits = Encode(f.type, matrix[at.row * f.columns + at.column], saturate);
    word = (word & ~(MaskOf(f.type) << shift)) | bits << shift;
  });
}

// The whole warp must take part; null when it does.
const Inst* RequireWarp(Warp& w, const Inst* i) {
  if (w.mask == kAllLanes) return nullptr;
  return w.Fault(FaultKind::kIllegalInstruction, i, static_cast<unsigned>(std::countr_zero(w.mask)),
                 "matrix instruction by part of a warp");
}

uint64_t BaseAddress(const Warp& w, const Inst* i, unsigned lane) {
  auto imm = static_cast<uint64_t>(i->imm);
  switch (static_cast<AddressMode>(i->y)) {
    case AddressMode::k32:
      return static_cast<uint32_t>(reinterpret_cast<const uint32_t*>(w.Row(i->a))[lane] + imm);
    case AddressMode::k64:
      return reinterpret_cast<const uint64_t*>(w.Row(i->a))[lane] + imm;
    case AddressMode::kFrame:
      return w.frame->local_base + imm;
    case AddressMode::kNone:
      break;
  }
  return imm;
}

// Moves every element between memory and registers.
const Inst* MoveFragment(Warp& w, const Inst* i, bool store) {
  if (const Inst* stop = RequireWarp(w, i)) return stop;
  const MmaOp& op = *i->mma;
  const Fragment& f = op.d;
  unsigned bytes = BitsOf(f.type) / 8;
  const auto* stride = reinterpret_cast<const uint32_t*>(w.Row(i->c));
  const Inst* stop = nullptr;
  ForEachElement(f, [&](unsigned lane, unsigned reg, unsigned shift, Position at) {
    if (stop) return;
    uint64_t index = op.row_major ? uint64_t{at.row} * stride[lane] + at.column
                                  : uint64_t{at.column} * stride[lane] + at.row;
    uint64_t address = BaseAddress(w, i, lane) + index * bytes;
    uint8_t* p = Translate(w, lane, op.space, address, bytes, store);
    if (!p || address % bytes != 0) {
      char text[80];
      std::snprintf(text, sizeof text, "illegal matrix %s at 0x%llx", store ? "write" : "read",
                    static_cast<unsigned long long>(address));
      stop = w.Fault(p ? FaultKind::kMisalignedAddress : FaultKind::kIllegalAddress, i, lane, text);
      return;
    }
    uint32_t& word = reinterpret_cast<uint32_t*>(w.Row(i->refs[reg]))[lane];
    if (store) {
      uint32_t bits = word >> shift;
      std::memcpy(p, &bits, bytes);
    } else {
      uint32_t bits = 0;
      std::memcpy(&bits, p, bytes);
      word = (word & ~(MaskOf(f.type) << shift)) | bits << shift;
    }
  });
  return stop ? stop : i + 1;
}

}  // namespace

const Inst* OpMatrixMultiply(Warp& w, const Inst* i) {
  if (const Inst* stop = RequireWarp(w, i)) return stop;
  const MmaOp& op = *i->mma;
  const Ref* refs = i->refs + op.d.registers;
  std::vector<double> a = ReadFragment(w, op.a, refs);
  refs += op.a.registers;
  std::vector<double> b = ReadFragment(w, op.b, refs);
  refs += op.b.registers;
  std::vector<double> d = ReadFragment(w, op.c, refs);
  unsigned m = op.a.rows, k = op.a.columns, n = op.b.columns;
  // Products are exact in double; the sum is rounded once, at the end. Integers of 8 bits cannot overflow it.
  for (unsigned row = 0; row < m; ++row) {
    for (unsigned inner = 0; inner < k; ++inner) {
      for (unsigned column = 0; column < n; ++column) {
        d[row * n + column] += a[row * k + inner] * b[inner * n + column];
      }
    }
  }
  WriteFragment(w, op.d, i->refs, d, op.saturate || !IsInteger(op.d.type));
  return i + 1;
}

const Inst* OpMatrixLoad(Warp& w, const Inst* i) { return MoveFragment(w, i, false); }

const Inst* OpMatrixStore(Warp& w, const Inst* i) { return MoveFragment(w, i, true); }

const Inst* OpLoadMatrix8x8(Warp& w, const Inst* i) {
  if (const Inst* stop = RequireWarp(w, i)) return stop;
  const MmaOp& op = *i->mma;
  // Lane 8 * m + r gives the address of row r of matrix m.
  uint16_t matrices[4][8][8];
  for (unsigned lane = 0; lane < 8 * op.count; ++lane) {
    uint64_t address = BaseAddress(w, i, lane);
    uint8_t* p = Translate(w, lane, op.space, address, 16, false);
    if (!p || address % 16 != 0) {
      return w.Fault(p ? FaultKind::kMisalignedAddress : FaultKind::kIllegalAddress, i, lane,
                     "illegal matrix read");
    }
    std::memcpy(matrices[lane / 8][lane % 8], p, 16);
  }
  for (unsigned m = 0; m < op.count; ++m) {
    auto* row = reinterpret_cast<uint32_t*>(w.Row(i->refs[m]));
    for (unsigned lane = 0; lane < kWarpSize; ++lane) {
      unsigned r = lane / 4, c = lane % 4 * 2;
      uint32_t low = op.transpose ? matrices[m][c][r] : matrices[m][r][c];
      uint32_t high = op.transpose ? matrices[m][c + 1][r] : matrices[m][r][c + 1];
      row[lane] = low | high << 16;
    }
  }
  return i + 1;
}

}  // namespace softgpu::exec
