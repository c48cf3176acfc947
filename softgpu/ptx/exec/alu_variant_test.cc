// Which instructions exist, and that every variant gives the same bits for them.
#include <gtest/gtest.h>

#include "softgpu/ptx/exec/alu_testing.h"

namespace softgpu::exec {
namespace {

using Shape = AluOp::Shape;
using stasis::StatusCode;

constexpr uint32_t kMasks[] = {kAllLanes, 0x00ff3c5a, 0x80000001, 0};

struct Outcome {
  Row row;
  uint32_t bits = 0;
  bool operator==(const Outcome& other) const {
    return bits == other.bits && std::memcmp(row.bytes, other.row.bytes, sizeof row.bytes) == 0;
  }
};

Outcome Apply(const AluOp& op, const Row (&in)[4], uint32_t mask) {
  Outcome out;
  out.bits = 0x2545f491;
  std::memset(out.row.bytes, 0x5a, sizeof out.row.bytes);
  const unsigned char *a = in[0].bytes, *b = in[1].bytes, *c = in[2].bytes, *e = in[3].bytes;
  switch (op.shape) {
    case Shape::kLane:
      op.lane(out.row.bytes, a, b, c, mask);
      break;
    case Shape::kLane4:
      op.lane4(out.row.bytes, a, b, c, e, mask);
      break;
    case Shape::kSelect:
      op.select(out.row.bytes, a, b, 0x1234f0e7, mask);
      break;
    case Shape::kCarry:
      op.carry(out.row.bytes, a, b, c, mask, &out.bits);
      break;
    case Shape::kCompare:
      out.bits = op.compare(a, b);
      break;
    case Shape::kTest:
      out.bits = op.test(a);
      break;
  }
  return out;
}

// Values of the operand's type, edges among them; in the bits above 8-bit values is rubbish.
void FillRow(ptx::Type type, std::mt19937_64* engine, Row* row) {
  using ptx::Type;
  static const std::vector<uint64_t> kWords = IntegerEdges(32, 200), kLongs = IntegerEdges(64, 200),
                                     kSingles = FloatEdges(32, 8, 200), kDoubles = FloatEdges(64, 11, 200),
                                     kHalves = FloatEdges(16, 5, 200), kBfloats = FloatEdges(16, 8, 200);
  auto any = [&](const std::vector<uint64_t>& from) { return from[(*engine)() % from.size()]; };
  auto pair = [&](const std::vector<uint64_t>& from) {
    return static_cast<uint32_t>(any(from) << 16 | any(from));
  };
  for (unsigned l = 0; l < kWarpSize; ++l) {
    switch (type) {
      case Type::kF32:
        row->Set(l, static_cast<uint32_t>(any(kSingles)));
        break;
      case Type::kF64:
        row->Set(l, any(kDoubles));
        break;
      case Type::kF16:
        row->Set(l, static_cast<uint16_t>(any(kHalves)));
        break;
      case Type::kBF16:
        row->Set(l, static_cast<uint16_t>(any(kBfloats)));
        break;
      case Type::kF16x2:
        row->Set(l, pair(kHalves));
        break;
      case Type::kBF16x2:
        row->Set(l, pair(kBfloats));
        break;
      default:
        if (LaneBytes(type) == 16)
          row->Set(l, static_cast<unsigned __int128>((*engine)()) << 64 | (*engine)());
        if (LaneBytes(type) == 8) row->Set(l, any(kLongs));
        if (LaneBytes(type) == 4) row->Set(l, static_cast<uint32_t>(any(kWords)));
        if (LaneBytes(type) == 2) row->Set(l, static_cast<uint16_t>((*engine)()));
    }
  }
}

// Lanes outside the mask keep their bytes, lanes inside do not depend on the mask, bytes past the row are
// untouched.
void CheckMask(const std::string& name, const AluOp& op, const Row (&in)[4], const Outcome& full,
               uint32_t mask) {
  Outcome got = Apply(op, in, mask);
  unsigned bytes = LaneBytes(op.dest_type);
  for (unsigned l = 0; l < kWarpSize; ++l) {
    for (unsigned i = l * bytes; i < (l + 1) * bytes; ++i) {
      ASSERT_EQ(got.row.bytes[i], mask >> l & 1 ? full.row.bytes[i] : 0x5a)
          << name << " mask " << mask << " lane " << l;
    }
  }
  for (unsigned i = bytes * kWarpSize; i < sizeof got.row.bytes; ++i)
    ASSERT_EQ(got.row.bytes[i], 0x5a) << name;
}

TEST(AluVariantTest, AllMnemonicsResolveAndAgree) {
  std::vector<std::string> all = AllMnemonics();
  ASSERT_GT(all.size(), 1500u);
  std::mt19937_64 engine(7);
  for (const std::string& name : all) {
    AluOp base = Resolved(name, Isa::kV2, 0x96);
    ASSERT_NE(base.lane, nullptr) << name;
    ASSERT_EQ(LaneBytes(base.dest_type) == 0, base.shape == Shape::kCompare || base.shape == Shape::kTest)
        << name;
    for (int round = 0; round < 30; ++round) {
      Row in[4];
      for (unsigned s = 0; s < base.sources; ++s) FillRow(base.source_type[s], &engine, &in[s]);
      Outcome full = Apply(base, in, kAllLanes);
      if (LaneBytes(base.dest_type)) {
        for (uint32_t mask : kMasks) CheckMask(name, base, in, full, mask);
      }
      for (Isa isa : RunningIsas()) {
        AluOp op = Resolved(name, isa, 0x96);
        for (uint32_t mask : kMasks)
          ASSERT_EQ(Apply(op, in, mask), Apply(base, in, mask)) << name << " variant " << int(isa);
      }
    }
  }
}

// The destination may be a source's row.
TEST(AluVariantTest, DestinationMayAliasASource) {
  std::mt19937_64 engine(8);
  for (const std::string& name : AllMnemonics()) {
    for (Isa isa : RunningIsas()) {
      AluOp op = Resolved(name, isa, 0xe8);
      if (op.shape != Shape::kLane && op.shape != Shape::kSelect && op.shape != Shape::kLane4) continue;
      Row in[4];
      for (unsigned s = 0; s < op.sources; ++s) FillRow(op.source_type[s], &engine, &in[s]);
      Outcome expected = Apply(op, in, kAllLanes);
      for (unsigned s = 0; s < op.sources; ++s) {
        Row copy[4] = {in[0], in[1], in[2], in[3]};
        unsigned char* d = copy[s].bytes;
        if (op.shape == Shape::kLane) op.lane(d, copy[0].bytes, copy[1].bytes, copy[2].bytes, kAllLanes);
        if (op.shape == Shape::kSelect) op.select(d, copy[0].bytes, copy[1].bytes, 0x1234f0e7, kAllLanes);
        if (op.shape == Shape::kLane4)
          op.lane4(d, copy[0].bytes, copy[1].bytes, copy[2].bytes, copy[3].bytes, kAllLanes);
        ASSERT_EQ(std::memcmp(d, expected.row.bytes, kWarpSize * LaneBytes(op.dest_type)), 0)
            << name << " source " << s;
      }
    }
  }
}

TEST(AluVariantTest, WhatPtxLacksIsRefused) {
  for (const char* name : {"add.sat.u32",     "add.f32.f64",
                           "sub.u16x2",       "min.ftz.f64",
                           "shl.u32",         "cvt.rn.s32.f32",
                           "cvt.f32.s32",     "cvt.rni.f32.s32",
                           "cvt.f16.f32",     "cvt.rn.e4m3x2.f32",
                           "setp.lt.b32",     "setp.ltu.s32",
                           "set.eq.u64.u32",  "mul.s32",
                           "mul.wide.u64",    "and.u32",
                           "abs.u32",         "bfind.b32",
                           "tanh.approx.f64", "add.rn.relu.f16",
                           "add.rz.f16",      "cvt.rn.satfinite.f32.f64",
                           "add.bogus.f32",   "rem.f32",
                           "sqrt.s32",        "mov.pred",
                           "fma.rn.sat.f64",  "cvt.ftz.f64.f16",
                           "add.f32x2",       "setp.eq.u8",
                           "shf.l.b32",       "lg2.approx.f64"}) {
    stasis::Result<AluOp> op = FindAlu(Mnemonic(name));
    EXPECT_EQ(op.status().code(), StatusCode::kUnsupported) << name;
  }
  for (const char* name : {"ld.global.u32", "bra", "addx.u32", ""}) {
    EXPECT_EQ(FindAlu(Mnemonic(name)).status().code(), StatusCode::kNotFound) << name;
  }
  ptx::Instruction lop3 = Mnemonic("lop3.b32", 0xff);
  lop3.operands[4].bits = 256;
  EXPECT_EQ(FindAlu(lop3).status().code(), StatusCode::kUnsupported);
  ptx::Instruction three = Mnemonic("min.f32");
  three.operands.resize(4);
  EXPECT_EQ(FindAlu(three).status().code(), StatusCode::kUnsupported);
}

TEST(AluVariantTest, LaneBytes) {
  using ptx::Type;
  for (Type t : {Type::kU8, Type::kS8, Type::kB8, Type::kU16, Type::kF16, Type::kBF16, Type::kE4M3x2})
    EXPECT_EQ(LaneBytes(t), 2u);
  for (Type t : {Type::kU32, Type::kF32, Type::kTF32, Type::kF16x2, Type::kS16x2})
    EXPECT_EQ(LaneBytes(t), 4u);
  for (Type t : {Type::kU64, Type::kF64, Type::kB64}) EXPECT_EQ(LaneBytes(t), 8u);
  EXPECT_EQ(LaneBytes(Type::kB128), 16u);
  EXPECT_EQ(LaneBytes(Type::kPred), 0u);
}

TEST(AluVariantTest, Immediates) {
  using ptx::Type;
  ptx::Operand integer, single, wide;
  integer.kind = ptx::Operand::Kind::kInt;
  integer.bits = static_cast<uint64_t>(-2);
  single.kind = ptx::Operand::Kind::kF32;
  single.bits = Bits<uint32_t>(1.5f);
  wide.kind = ptx::Operand::Kind::kF64;
  wide.bits = Bits<uint64_t>(0.1);
  EXPECT_EQ(EncodeImmediate(integer, Type::kS8) & 0xff, 0xfeu);
  EXPECT_EQ(EncodeImmediate(integer, Type::kU16), 0xfffeu);
  EXPECT_EQ(EncodeImmediate(integer, Type::kS32), 0xfffffffeu);
  EXPECT_EQ(EncodeImmediate(integer, Type::kS64), 0xfffffffffffffffeu);
  EXPECT_EQ(EncodeImmediate(single, Type::kF32), Bits<uint32_t>(1.5f));
  EXPECT_EQ(EncodeImmediate(single, Type::kB32), Bits<uint32_t>(1.5f));
  EXPECT_EQ(EncodeImmediate(single, Type::kF64), Bits<uint64_t>(1.5));
  EXPECT_EQ(EncodeImmediate(wide, Type::kF64), Bits<uint64_t>(0.1));
  EXPECT_EQ(EncodeImmediate(wide, Type::kB64), Bits<uint64_t>(0.1));
  EXPECT_EQ(EncodeImmediate(wide, Type::kF32), Bits<uint32_t>(0.1f));
}

}  // namespace
}  // namespace softgpu::exec
