// Nanoseconds a warp instruction of the arithmetic that programs spend their time in: for the full warp on
// each variant that runs here, and for half a warp on the best.
#include <benchmark/benchmark.h>

#include "softgpu/ptx/exec/alu_testing.h"

namespace softgpu::exec {
namespace {

constexpr const char* kMnemonics[] = {
    "fma.rn.f32",   "add.f32",        "mul.f32",      "fma.rn.ftz.f32", "fma.rn.f64",     "add.s32",
    "add.s64",      "mad.lo.s32",     "mul.wide.s32", "mul.lo.s64",     "shl.b32",        "and.b32",
    "setp.lt.s32",  "setp.gt.f32",    "selp.f32",     "max.f32",        "cvt.rn.f32.s32", "cvt.rzi.s32.f32",
    "cvt.f32.f16",  "cvt.rn.f16.f32", "fma.rz.f32",   "ex2.approx.f32", "rcp.approx.f32", "div.rn.f32",
    "fma.rn.f16x2", "fma.rn.bf16x2",  "prmt.b32",     "lop3.b32",
};

void Run(benchmark::State& state, const AluOp& op, uint32_t mask) {
  static Row a, b, c, d;
  for (unsigned l = 0; l < kWarpSize * 4; ++l) {
    float v = 1.0f + 0.125f * static_cast<float>(l % kWarpSize);
    for (Row* row : {&a, &b, &c}) row->Set(l, v);
  }
  uint32_t bits = 0;
  for (auto _ : state) {
    switch (op.shape) {
      case AluOp::Shape::kLane:
        op.lane(d.bytes, a.bytes, b.bytes, c.bytes, mask);
        break;
      case AluOp::Shape::kSelect:
        op.select(d.bytes, a.bytes, b.bytes, 0x5a5a1234, mask);
        break;
      case AluOp::Shape::kCompare:
        bits ^= op.compare(a.bytes, b.bytes);
        break;
      default:
        state.SkipWithError("not measured");
        break;
    }
    benchmark::ClobberMemory();
  }
  benchmark::DoNotOptimize(bits);
}

int Main(int argc, char** argv) {
  constexpr const char* kNames[] = {"v2", "v3", "v4"};
  for (const char* name : kMnemonics) {
    for (Isa isa : {Isa::kV2, Isa::kV3, Isa::kV4}) {
      if (!IsaRuns(isa)) continue;
      stasis::Result<AluOp> op = FindAluForTest(Mnemonic(name, 0x96), isa);
      if (!op.ok()) return 1;
      std::string full = std::string(name) + "/" + kNames[static_cast<unsigned>(isa)];
      benchmark::RegisterBenchmark(full.c_str(), [op = *op](benchmark::State& s) { Run(s, op, kAllLanes); });
    }
    stasis::Result<AluOp> best = FindAlu(Mnemonic(name, 0x96));
    if (!best.ok()) return 1;
    std::string half = std::string(name) + "/half";
    benchmark::RegisterBenchmark(half.c_str(), [op = *best](benchmark::State& s) { Run(s, op, 0x0000ffff); });
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace softgpu::exec

int main(int argc, char** argv) { return softgpu::exec::Main(argc, argv); }
