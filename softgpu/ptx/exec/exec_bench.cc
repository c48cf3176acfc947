// Speed of the executor on the inner loops that matter. Counters are lane operations a second.
#include <benchmark/benchmark.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "softgpu/ptx/exec/access_map.h"
#include "softgpu/ptx/exec/grid.h"
#include "softgpu/ptx/exec/program.h"
#include "softgpu/ptx/parser.h"

namespace softgpu::exec {
namespace {

constexpr uint32_t kSteps = 256;

class NoServices final : public DeviceServices {
 public:
  void Print(std::string_view) override {}
  uint64_t Malloc(uint64_t) override { return 0; }
  void Free(uint64_t) override {}
  const TextureView* FindTexture(uint64_t) override { return nullptr; }
  const TextureView* FindSurface(uint64_t) override { return nullptr; }
};

std::string Reg(const char* name, int n) { return std::string("%") + name + std::to_string(n); }

// A tile of 8x8 results a thread from two tiles in shared memory, as a hand-written GEMM has it.
std::string TiledMultiply() {
  std::string s = R"(.version 8.8
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{
  .reg .pred %p<2>; .reg .b32 %r<10>; .reg .b64 %rd<5>; .reg .f32 %f<100>;
  .shared .align 16 .b8 as[4096];
  .shared .align 16 .b8 bs[4096];
  mov.u32 %r1, %tid.x;
  and.b32 %r2, %r1, 15;
  shr.u32 %r3, %r1, 4;
  mov.u32 %r4, as; shl.b32 %r5, %r3, 5; add.u32 %r4, %r4, %r5;
  mov.u32 %r6, bs; shl.b32 %r7, %r2, 5; add.u32 %r6, %r6, %r7;
)";
  for (int n = 0; n < 64; ++n) s += "  mov.f32 " + Reg("f", n) + ", 0f00000000;\n";
  s += "  mov.u32 %r8, 0;\nLOOP:\n";
  s += "  ld.shared.v4.f32 {%f64, %f65, %f66, %f67}, [%r4];\n";
  s += "  ld.shared.v4.f32 {%f68, %f69, %f70, %f71}, [%r4+16];\n";
  s += "  ld.shared.v4.f32 {%f72, %f73, %f74, %f75}, [%r6];\n";
  s += "  ld.shared.v4.f32 {%f76, %f77, %f78, %f79}, [%r6+16];\n";
  for (int i = 0; i < 8; ++i) {
    for (int j = 0; j < 8; ++j) {
      std::string d = Reg("f", 8 * i + j);
      s += "  fma.rn.f32 " + d + ", " + Reg("f", 64 + i) + ", " + Reg("f", 72 + j) + ", " + d + ";\n";
    }
  }
  s += "  add.u32 %r8, %r8, 1;\n  setp.lt.u32 %p1, %r8, " + std::to_string(kSteps) + ";\n  @%p1 bra LOOP;\n";
  for (int n = 1; n < 64; ++n) s += "  add.f32 %f0, %f0, " + Reg("f", n) + ";\n";
  s += "  ld.param.u64 %rd1, [out];\n  mul.wide.u32 %rd2, %r1, 4;\n  add.u64 %rd3, %rd1, %rd2;\n";
  s += "  st.global.f32 [%rd3], %f0;\n  ret;\n}\n";
  return s;
}

// y = a * x + y over an array, four elements a thread apart by the grid.
std::string Axpy() {
  return R"(.version 8.8
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y, .param .u32 n)
{
  .reg .pred %p<2>; .reg .b32 %r<10>; .reg .b64 %rd<10>; .reg .f32 %f<5>;
  mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %nctaid.x;
  mad.lo.s32 %r5, %r2, %r3, %r1;
  mul.lo.s32 %r6, %r3, %r4;
  ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; ld.param.u32 %r7, [n];
  cvta.to.global.u64 %rd3, %rd1; cvta.to.global.u64 %rd4, %rd2;
LOOP:
  mul.wide.s32 %rd5, %r5, 4;
  add.s64 %rd6, %rd3, %rd5;
  add.s64 %rd7, %rd4, %rd5;
  ld.global.f32 %f1, [%rd6];
  ld.global.f32 %f2, [%rd7];
  fma.rn.f32 %f3, %f1, 0f40000000, %f2;
  st.global.f32 [%rd7], %f3;
  add.s32 %r5, %r5, %r6;
  setp.lt.s32 %p1, %r5, %r7;
  @%p1 bra LOOP;
  ret;
}
)";
}

struct Setup {
  std::unique_ptr<AccessMap> access = std::move(AccessMap::Create()).value();
  // Whole pages of the access map, as device memory is.
  static constexpr size_t kPage = 2 << 20;
  std::unique_ptr<float[], void (*)(void*)> memory{nullptr, std::free};
  NoServices services;
  LaunchConfig config;

  Setup(const std::string& text, size_t floats) {
    size_t bytes = (4 * floats + kPage - 1) / kPage * kPage;
    memory.reset(static_cast<float*>(std::aligned_alloc(kPage, bytes)));
    std::memset(memory.get(), 0, bytes);
    config.program = std::move(Program::Load(std::move(ptx::Parse(text)).value())).value();
    STASIS_CHECK(config.program->Bind(0, 0).ok());
    config.kernel = config.program->FindKernel("k");
    access->Set(reinterpret_cast<uint64_t>(memory.get()), bytes, Access::kReadWrite);
    config.access = access.get();
    config.services = &services;
  }
  void AddParam(uint64_t value, size_t bytes) {
    const auto* p = reinterpret_cast<const uint8_t*>(&value);
    config.params.insert(config.params.end(), p, p + bytes);
  }
  void Run() {
    std::atomic<bool> yield{false};
    std::unique_ptr<Grid> grid = Grid::Create(config);
    grid->Run(0, yield);
    STASIS_CHECK(grid->fault().kind == FaultKind::kNone);
  }
};

void BM_TiledMultiply(benchmark::State& state) {
  Setup setup(TiledMultiply(), 256);
  setup.AddParam(reinterpret_cast<uint64_t>(setup.memory.get()), 8);
  setup.config.grid = {4};
  setup.config.block = {256};
  for (auto _ : state) setup.Run();
  double fma = 4.0 * 256 * 64 * kSteps;
  state.counters["lane_fma"] =
      benchmark::Counter(fma * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}
BENCHMARK(BM_TiledMultiply)->Unit(benchmark::kMillisecond);

void BM_Axpy(benchmark::State& state) {
  constexpr uint32_t kElements = 1 << 18;
  Setup setup(Axpy(), 2 * kElements);
  setup.AddParam(reinterpret_cast<uint64_t>(setup.memory.get()), 8);
  setup.AddParam(reinterpret_cast<uint64_t>(setup.memory.get() + kElements), 8);
  setup.AddParam(kElements, 4);
  setup.config.grid = {32};
  setup.config.block = {256};
  for (auto _ : state) setup.Run();
  state.counters["elements"] = benchmark::Counter(1.0 * kElements * static_cast<double>(state.iterations()),
                                                  benchmark::Counter::kIsRate);
}
BENCHMARK(BM_Axpy)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace softgpu::exec

BENCHMARK_MAIN();
