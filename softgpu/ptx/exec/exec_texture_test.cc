// Texture fetches and surface accesses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "softgpu/ptx/exec/exec_testing.h"

namespace softgpu::exec {
namespace {

constexpr uint64_t kHandle = 77;

// Fetches at coordinates in[2 * thread], in[2 * thread + 1] and stores the first channel.
std::string FetchKernel(const std::string& types) {
  std::string coordinate = types.substr(types.size() - 3);
  return SimpleKernel(R"(
  mul.wide.u32 %rd2, %r0, 8;
  add.u64 %rd3, %rd1, %rd2;
  ld.global.v2.b32 {%r2, %r3}, [%rd3];
  mov.u64 %rd4, 77;
  tex.2d.v4.)" + types +
                      R"( {%r4, %r5, %r6, %r7}, [%rd4, {%r2, %r3}];
  st.global.b32 [%rd0], %r4;
)");
}

class ExecTextureTest : public testing::Test {
 protected:
  ExecTextureTest() {
    for (int y = 0; y < 4; ++y) {
      for (int x = 0; x < 8; ++x) texels_[16 * y + x] = static_cast<float>(10 * y + x);
    }
    TextureView view;
    view.data = reinterpret_cast<uint64_t>(texels_);
    view.width = 8;
    view.height = 4;
    view.row_pitch = 64;
    for (auto& a : view.address) a = TextureView::Address::kClamp;
    device_.services.textures[kHandle] = view;
    device_.services.surfaces[kHandle] = view;
  }

  template <typename T>
  std::vector<float> Fetch(const std::string& types, std::vector<T> coordinates) {
    device_.Load(FetchKernel(types));
    T* in = device_.Alloc<T>(64);
    float* out = device_.Alloc<float>(32);
    std::copy(coordinates.begin(), coordinates.end(), in);
    Fault fault = device_.Launch("k", {1}, {static_cast<uint32_t>(coordinates.size() / 2)}, Pass(out, in));
    EXPECT_EQ(fault.kind, FaultKind::kNone) << fault.message;
    return std::vector<float>(out, out + coordinates.size() / 2);
  }

  TextureView& view() { return device_.services.textures[kHandle]; }

  TestDevice device_;
  float* texels_ = device_.Alloc<float>(64);
};

TEST_F(ExecTextureTest, IntegerCoordinatesAreClamped) {
  EXPECT_EQ(Fetch<int32_t>("f32.s32", {0, 0, 3, 2, 7, 3, 8, 1, -5, 9}),
            (std::vector<float>{0, 23, 37, 17, 30}));
}

TEST_F(ExecTextureTest, PointSamplingTakesTheTexelAround) {
  EXPECT_EQ(Fetch<float>("f32.f32", {0.99f, 0.0f, 3.5f, 2.5f, 100.0f, -3.0f}),
            (std::vector<float>{0, 23, 7}));
}

TEST_F(ExecTextureTest, LinearFilteringWeighsNeighbours) {
  view().linear_filter = true;
  EXPECT_EQ(Fetch<float>("f32.f32", {1.5f, 1.5f, 2.0f, 1.5f, 2.0f, 2.0f, 0.0f, 0.0f, 2.25f, 1.5f}),
            (std::vector<float>{11, 11.5, 16.5, 0, 11.75}));
}

TEST_F(ExecTextureTest, NormalizedCoordinatesWrapMirrorAndBorder) {
  view().normalized_coords = true;
  view().address[0] = TextureView::Address::kWrap;
  view().address[1] = TextureView::Address::kMirror;
  // x = 9.5 wraps to texel 1; y = 4.5 mirrors to row 3, -0.5 to row 0.
  EXPECT_EQ(Fetch<float>("f32.f32", {9.5f / 8, 0.5f / 4, 0.5f / 8, 4.5f / 4, 2.5f / 8, -0.5f / 4}),
            (std::vector<float>{1, 30, 2}));
  view().address[0] = TextureView::Address::kBorder;
  view().border[0] = -9;
  EXPECT_EQ(Fetch<float>("f32.f32", {9.5f / 8, 0.5f / 4}), (std::vector<float>{-9}));
}

TEST_F(ExecTextureTest, BytesMayBeReadAsFractions) {
  auto* bytes = reinterpret_cast<uint8_t*>(texels_);
  bytes[3] = 255;
  bytes[4] = 51;
  view().channel_bytes = 1;
  view().format = TextureView::Format::kUint;
  view().read_as_float = true;
  EXPECT_EQ(Fetch<int32_t>("f32.s32", {3, 0, 4, 0}), (std::vector<float>{1.0f, 0.2f}));
}

TEST_F(ExecTextureTest, BadHandlesAndMemoryAreFaults) {
  device_.Load(FetchKernel("f32.s32"));
  int32_t* in = device_.Alloc<int32_t>(64);
  float* out = device_.Alloc<float>(32);
  view().data = 4096;
  EXPECT_EQ(device_.Launch("k", {1}, {1}, Pass(out, in)).kind, FaultKind::kIllegalAddress);
  device_.services.textures.clear();
  Fault fault = device_.Launch("k", {1}, {1}, Pass(out, in));
  EXPECT_EQ(fault.kind, FaultKind::kIllegalAddress);
  EXPECT_THAT(fault.message, testing::HasSubstr("invalid texture or surface handle 0x4d"));
}

TEST_F(ExecTextureTest, SurfacesAreAddressedInBytes) {
  device_.Load(SimpleKernel(R"(
  mov.u64 %rd4, 77;
  shl.b32 %r2, %r0, 2;
  mov.u32 %r3, 2;
  suld.b.2d.b32.trap %r4, [%rd4, {%r2, %r3}];
  mov.f32 %f1, 0f42C80000;
  mov.b32 %f2, %r4;
  add.f32 %f2, %f2, %f1;
  mov.b32 %r5, %f2;
  sust.b.2d.b32.trap [%rd4, {%r2, %r3}], {%r5};
  suld.b.2d.b32.zero %r6, [%rd4, {-4, %r3}];
  suld.b.2d.b32.clamp %r7, [%rd4, {-4, 1}];
  add.u32 %r6, %r6, %r7;
  st.global.u32 [%rd0], %r6;
)"));
  uint32_t* out = device_.Alloc<uint32_t>(8);
  Fault fault = device_.Launch("k", {1}, {8}, Pass(out, uint64_t{0}));
  ASSERT_EQ(fault.kind, FaultKind::kNone) << fault.message;
  for (int x = 0; x < 8; ++x) EXPECT_EQ(texels_[32 + x], 120.0f + x);
  float clamped;
  std::memcpy(&clamped, out, 4);
  EXPECT_EQ(clamped, 10.0f);
  // The ninth texel of a row of eight is outside.
  EXPECT_EQ(device_.Launch("k", {1}, {9}, Pass(out, uint64_t{0})).kind, FaultKind::kIllegalAddress);
}

}  // namespace
}  // namespace softgpu::exec
