#include "softgpu/ptx/exec/exec_testing.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <thread>

#include "softgpu/ptx/parser.h"

namespace softgpu::exec {

void TestServices::Print(std::string_view text) {
  std::lock_guard<std::mutex> lock(mutex_);
  printed_ += text;
}

uint64_t TestServices::Malloc(uint64_t bytes) {
  if (bytes > (1u << 20)) return 0;
  std::lock_guard<std::mutex> lock(mutex_);
  auto memory = std::make_unique<uint64_t[]>(bytes / 8 + 1);
  uint64_t address = reinterpret_cast<uint64_t>(memory.get());
  access->Set(address, bytes, Access::kReadWrite);
  heap_[address] = std::move(memory);
  return address;
}

void TestServices::Free(uint64_t address) {
  std::lock_guard<std::mutex> lock(mutex_);
  heap_.erase(address);
}

const TextureView* TestServices::FindTexture(uint64_t handle) {
  auto it = textures.find(handle);
  return it == textures.end() ? nullptr : &it->second;
}

const TextureView* TestServices::FindSurface(uint64_t handle) {
  auto it = surfaces.find(handle);
  return it == surfaces.end() ? nullptr : &it->second;
}

std::string TestServices::printed() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return printed_;
}

size_t TestServices::live_allocations() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return heap_.size();
}

std::vector<uint8_t> Params::Pack(const KernelInfo& info) const {
  std::vector<uint8_t> block(info.param_bytes);
  EXPECT_EQ(values_.size(), info.params.size());
  for (size_t n = 0; n < std::min(values_.size(), info.params.size()); ++n) {
    EXPECT_EQ(values_[n].size(), info.params[n].size) << "parameter " << n;
    std::memcpy(block.data() + info.params[n].offset, values_[n].data(),
                std::min<size_t>(values_[n].size(), info.params[n].size));
  }
  return block;
}

TestDevice::TestDevice() {
  access_ = std::move(AccessMap::Create()).value();
  services.access = access_.get();
}

TestDevice::~TestDevice() {
  program_.reset();
  for (auto [address, bytes] : mappings_) munmap(address, bytes);
}

void* TestDevice::AllocBytes(size_t bytes, Access access) {
  constexpr size_t kPage = 4096;
  size_t used = (bytes + kPage - 1) / kPage * kPage;
  void* p = mmap(nullptr, used + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  STASIS_CHECK(p != MAP_FAILED);
  mprotect(static_cast<char*>(p) + used, kPage, PROT_NONE);
  mappings_.push_back({p, used + kPage});
  access_->Set(reinterpret_cast<uint64_t>(p), bytes, access);
  return p;
}

stasis::Status TestDevice::TryLoad(const std::string& ptx) {
  ASSIGN_OR_RETURN(ptx::Module module, ptx::Parse(ptx));
  return Program::Load(std::move(module)).status();
}

void TestDevice::Load(const std::string& ptx) {
  auto module = ptx::Parse(ptx);
  ASSERT_TRUE(module.ok()) << module.status().ToString();
  auto program = Program::Load(std::move(*module));
  ASSERT_TRUE(program.ok()) << program.status().ToString();
  program_ = *program;
  if (program_->device_bytes())
    device_base_ = reinterpret_cast<uint64_t>(Alloc<char>(program_->device_bytes()));
  if (program_->managed_bytes())
    managed_base_ = reinterpret_cast<uint64_t>(Alloc<char>(program_->managed_bytes()));
  stasis::Status bound = program_->Bind(device_base_, managed_base_);
  ASSERT_TRUE(bound.ok()) << bound.ToString();
}

void* TestDevice::Global(std::string_view name) const {
  const GlobalInfo* info = program_->FindGlobal(name);
  if (!info) return nullptr;
  return reinterpret_cast<void*>((info->managed ? managed_base_ : device_base_) + info->offset);
}

LaunchConfig TestDevice::Config(const std::string& kernel, Dim3 grid, Dim3 block, const Params& params) {
  LaunchConfig config;
  config.program = program_;
  config.kernel = program_->FindKernel(kernel);
  STASIS_CHECK(config.kernel != nullptr);
  config.grid = grid;
  config.block = block;
  config.params = params.Pack(InfoOf(*config.kernel));
  config.workers = workers;
  config.dynamic_shared = dynamic_shared;
  config.access = access_.get();
  config.services = &services;
  return config;
}

Fault TestDevice::Run(LaunchConfig config) {
  unsigned count = config.workers;
  std::unique_ptr<Grid> grid = Grid::Create(std::move(config));
  std::atomic<bool> yield{false};
  std::vector<std::thread> threads;
  for (unsigned n = 1; n < count; ++n) {
    threads.emplace_back([&grid, &yield, n] { grid->Run(n, yield); });
  }
  grid->Run(0, yield);
  for (std::thread& t : threads) t.join();
  EXPECT_TRUE(grid->done());
  return grid->fault();
}

std::string SimpleKernel(const std::string& body, const std::string& before) {
  return Ptx(before + R"(
.visible .entry k(.param .u64 out, .param .u64 in)
{
  .reg .pred %p<10>;
  .reg .b16 %h<10>;
  .reg .b32 %r<60>;
  .reg .b64 %rd<60>;
  .reg .f32 %f<20>;
  .reg .f64 %fd<10>;
  mov.u32 %r57, %ctaid.x; mov.u32 %r58, %ntid.x; mov.u32 %r59, %tid.x;
  mad.lo.u32 %r0, %r57, %r58, %r59;
  ld.param.u64 %rd58, [out];
  ld.param.u64 %rd1, [in];
  mul.wide.u32 %rd59, %r0, 4;
  add.u64 %rd0, %rd58, %rd59;
)" + body + "\n  ret;\n}\n");
}

std::string Ptx(const std::string& body) { return ".version 8.8\n.target sm_90\n.address_size 64\n" + body; }

}  // namespace softgpu::exec
