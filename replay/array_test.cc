// Arrays, textures and surfaces made through the interposer's own wrappers, and used again in a new driver.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>

#include "intercept/gate.h"
#include "replay/array_record.h"
#include "replay/object_table.h"
#include "replay/pause.h"
#include "replay/testing.h"
#include "replay/texture_record.h"
#include "vmm/testing.h"

namespace stasis {
namespace {

using replay::PauseAndResume;
using replay::Refusal;
using testing::HasSubstr;

// sample(out, texture): out[0] = texel (1, 0) of a 2D texture of words.
// shift(surface): texel (1, 0) of a 2D surface of words goes to (0, 0).
const char kCode[] = R"(
.version 8.0
.target sm_75
.address_size 64
.visible .entry sample(.param .u64 out, .param .u64 texture)
{
  .reg .b64 %rd<3>;
  .reg .b32 %r<7>;
  ld.param.u64 %rd1, [out];
  ld.param.u64 %rd2, [texture];
  mov.u32 %r1, 1;
  mov.u32 %r2, 0;
  tex.2d.v4.u32.s32 {%r3, %r4, %r5, %r6}, [%rd2, {%r1, %r2}];
  st.global.u32 [%rd1], %r3;
  ret;
}
.visible .entry shift(.param .u64 surface)
{
  .reg .b64 %rd<2>;
  .reg .b32 %r<4>;
  ld.param.u64 %rd1, [surface];
  mov.u32 %r1, 4;
  mov.u32 %r2, 0;
  suld.b.2d.b32.trap %r3, [%rd1, {%r1, %r2}];
  sust.b.2d.b32.trap [%rd1, {%r2, %r2}], %r3;
  ret;
}
)";

CUDA_ARRAY3D_DESCRIPTOR Shape(size_t width, size_t height, size_t depth, unsigned flags = 0,
                              CUarray_format format = CU_AD_FORMAT_UNSIGNED_INT32, unsigned channels = 1) {
  return {width, height, depth, format, channels, flags};
}

size_t TexelBytes(const CUDA_ARRAY3D_DESCRIPTOR& desc) {
  const bool bytes = desc.Format == CU_AD_FORMAT_UNSIGNED_INT8;
  return desc.NumChannels * (bytes ? 1 : desc.Format == CU_AD_FORMAT_HALF ? 2 : 4);
}

// All of an array, one way or the other.
CUDA_MEMCPY3D Whole(CUarray array, void* host, bool to_array) {
  CUDA_ARRAY3D_DESCRIPTOR desc{};
  EXPECT_CUDA_OK(cuArray3DGetDescriptor_v2(&desc, array));
  CUDA_MEMCPY3D copy{};
  copy.WidthInBytes = desc.Width * TexelBytes(desc);
  copy.Height = std::max<size_t>(desc.Height, 1);
  copy.Depth = std::max<size_t>(desc.Depth, 1);
  copy.srcMemoryType = to_array ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_ARRAY;
  copy.dstMemoryType = to_array ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_HOST;
  (to_array ? copy.dstArray : copy.srcArray) = array;
  copy.srcHost = copy.dstHost = host;
  copy.srcPitch = copy.dstPitch = copy.WidthInBytes;
  copy.srcHeight = copy.dstHeight = copy.Height;
  return copy;
}

using Bytes = std::vector<unsigned char>;

Bytes Fill(CUarray array, unsigned seed) {
  CUDA_MEMCPY3D copy = Whole(array, nullptr, true);
  Bytes bytes(copy.WidthInBytes * copy.Height * copy.Depth);
  std::mt19937 random(seed);
  for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random());
  copy.srcHost = bytes.data();
  EXPECT_CUDA_OK(cuMemcpy3D_v2(&copy));
  return bytes;
}

Bytes Read(CUarray array) {
  CUDA_MEMCPY3D copy = Whole(array, nullptr, false);
  Bytes bytes(copy.WidthInBytes * copy.Height * copy.Depth);
  copy.dstHost = bytes.data();
  EXPECT_CUDA_OK(cuMemcpy3D_v2(&copy));
  return bytes;
}

CUarray Make(const CUDA_ARRAY3D_DESCRIPTOR& desc) {
  CUarray array = nullptr;
  EXPECT_CUDA_OK(cuArray3DCreate_v2(&array, &desc));
  return array;
}

CUDA_RESOURCE_DESC Of(CUarray array) {
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  resource.res.array.hArray = array;
  return resource;
}

CUDA_TEXTURE_DESC ReadAsIs() {
  CUDA_TEXTURE_DESC texture{};
  texture.flags = CU_TRSF_READ_AS_INTEGER;
  std::fill(texture.addressMode, texture.addressMode + 3, CU_TR_ADDRESS_MODE_CLAMP);
  return texture;
}

CUtexObject Texture(const CUDA_RESOURCE_DESC& resource) {
  const CUDA_TEXTURE_DESC texture = ReadAsIs();
  CUtexObject object = 0;
  EXPECT_CUDA_OK(cuTexObjectCreate(&object, &resource, &texture, nullptr));
  return object;
}

CUsurfObject Surface(CUarray array) {
  const CUDA_RESOURCE_DESC resource = Of(array);
  CUsurfObject object = 0;
  EXPECT_CUDA_OK(cuSurfObjectCreate(&object, &resource));
  return object;
}

// The program's thread has entered again since the last pause, so that its context is current.
size_t FreeBytes() {
  EXPECT_CUDA_OK(cuCtxSynchronize());
  return vmm::DriverFreeBytes();
}

class ReplayArrayTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_CUDA_OK(cuInit(0));
    ASSERT_CUDA_OK(cuDevicePrimaryCtxRetain(&context_, 0));
    ASSERT_CUDA_OK(cuCtxSetCurrent(context_));
    ASSERT_CUDA_OK(cuMemAlloc_v2(&out_, 1 << 16));
    ASSERT_CUDA_OK(cuModuleLoadData(&module_, kCode));
    ASSERT_CUDA_OK(cuModuleGetFunction(&sample_, module_, "sample"));
    ASSERT_CUDA_OK(cuModuleGetFunction(&shift_, module_, "shift"));
    free_ = FreeBytes();
    records_ = replay::ObjectTable::Get().size();
  }
  void TearDown() override {
    EXPECT_EQ(FreeBytes(), free_);
    // One record, of all textures of the context, stays with it.
    EXPECT_LE(replay::ObjectTable::Get().size(), records_ + 1);
    EXPECT_CUDA_OK(cuModuleUnload(module_));
    EXPECT_CUDA_OK(cuMemFree_v2(out_));
    CUcontext popped = nullptr;
    EXPECT_CUDA_OK(cuCtxPopCurrent_v2(&popped));
    EXPECT_CUDA_OK(cuDevicePrimaryCtxRelease_v2(0));
  }
  uint32_t Sample(CUtexObject texture) {
    void* parameters[] = {&out_, &texture};
    EXPECT_CUDA_OK(cuLaunchKernel(sample_, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
    uint32_t value = 0;
    EXPECT_CUDA_OK(cuMemcpyDtoH_v2(&value, out_, sizeof value));
    return value;
  }
  void Shift(CUsurfObject surface) {
    void* parameters[] = {&surface};
    EXPECT_CUDA_OK(cuLaunchKernel(shift_, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
    EXPECT_CUDA_OK(cuCtxSynchronize());
  }
  CUcontext context_ = nullptr;
  CUdeviceptr out_ = 0;
  CUmodule module_ = nullptr;
  CUfunction sample_ = nullptr, shift_ = nullptr;
  size_t free_ = 0, records_ = 0;
};

uint32_t Word(const Bytes& bytes, size_t index) {
  uint32_t word = 0;
  std::memcpy(&word, bytes.data() + index * 4, 4);
  return word;
}

TEST_F(ReplayArrayTest, ArraysOfEveryShapeKeepTheirContents) {
  const CUDA_ARRAY3D_DESCRIPTOR shapes[] = {
      Shape(100, 0, 0),
      Shape(33, 7, 0),
      Shape(9, 5, 3),
      Shape(17, 0, 4, CUDA_ARRAY3D_LAYERED),
      Shape(8, 6, 5, CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST),
      Shape(8, 8, 6, CUDA_ARRAY3D_CUBEMAP),
      Shape(4, 4, 12, CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED),
      Shape(31, 3, 0, CUDA_ARRAY3D_TEXTURE_GATHER, CU_AD_FORMAT_UNSIGNED_INT8, 4),
      Shape(5, 5, 5, 0, CU_AD_FORMAT_HALF, 2),
      Shape(6, 6, 0, CUDA_ARRAY3D_SURFACE_LDST, CU_AD_FORMAT_FLOAT, 4),
  };
  std::vector<CUarray> arrays;
  std::vector<Bytes> contents;
  for (const CUDA_ARRAY3D_DESCRIPTOR& shape : shapes) {
    arrays.push_back(Make(shape));
    contents.push_back(Fill(arrays.back(), static_cast<unsigned>(arrays.size())));
  }
  for (int pause = 0; pause < 3; ++pause) {
    PauseAndResume();
    for (size_t i = 0; i < arrays.size(); ++i) {
      CUDA_ARRAY3D_DESCRIPTOR desc{};
      EXPECT_CUDA_OK(cuArray3DGetDescriptor_v2(&desc, arrays[i]));
      EXPECT_EQ(std::memcmp(&desc, &shapes[i], sizeof desc), 0);
      EXPECT_EQ(Read(arrays[i]), contents[i]) << i;
      contents[i] = Fill(arrays[i], static_cast<unsigned>(100 * pause + 10 + i));
    }
  }
  for (CUarray array : arrays) EXPECT_CUDA_OK(cuArrayDestroy(array));
  EXPECT_EQ(cuArrayDestroy(arrays[0]), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(ReplayArrayTest, LevelsOfMipmappedArraysAreHandlesToo) {
  const CUDA_ARRAY3D_DESCRIPTOR shape = Shape(16, 8, 3, CUDA_ARRAY3D_LAYERED);
  CUmipmappedArray mipmap = nullptr;
  ASSERT_CUDA_OK(cuMipmappedArrayCreate(&mipmap, &shape, 99));
  std::vector<CUarray> levels;
  std::vector<Bytes> contents;
  CUarray level = nullptr;
  for (unsigned i = 0; cuMipmappedArrayGetLevel(&level, mipmap, i) == CUDA_SUCCESS; ++i) {
    levels.push_back(level);
    contents.push_back(Fill(level, i));
  }
  ASSERT_EQ(levels.size(), 5u);
  const size_t records = replay::ObjectTable::Get().size();
  for (int pause = 0; pause < 2; ++pause) {
    PauseAndResume();
    for (size_t i = 0; i < levels.size(); ++i) {
      EXPECT_EQ(Read(levels[i]), contents[i]);
      ASSERT_CUDA_OK(cuMipmappedArrayGetLevel(&level, mipmap, static_cast<unsigned>(i)));
      EXPECT_EQ(level, levels[i]);
    }
  }
  EXPECT_EQ(replay::ObjectTable::Get().size(), records);
  EXPECT_EQ(cuArrayDestroy(levels[1]), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_CUDA_OK(cuMipmappedArrayDestroy(mipmap));
  EXPECT_EQ(cuMipmappedArrayGetLevel(&level, mipmap, 0), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(ReplayArrayTest, CopiesNameArraysInTheirStructures) {
  const CUarray from = Make(Shape(16, 4, 0)), to = Make(Shape(16, 4, 0));
  const Bytes contents = Fill(from, 1);
  Fill(to, 2);
  PauseAndResume();
  CUDA_MEMCPY2D flat{};
  flat.srcMemoryType = flat.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  flat.srcArray = from;
  flat.dstArray = to;
  flat.WidthInBytes = 64;
  flat.Height = 4;
  for (const auto copy : {cuMemcpy2D_v2, cuMemcpy2DUnaligned_v2}) {
    Fill(to, 3);
    EXPECT_CUDA_OK(copy(&flat));
    EXPECT_EQ(Read(to), contents);
  }
  Fill(to, 3);
  EXPECT_CUDA_OK(cuMemcpy2DAsync_v2(&flat, nullptr));
  EXPECT_EQ(Read(to), contents);
  CUDA_MEMCPY3D_PEER peer{};
  peer.srcMemoryType = peer.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  peer.srcArray = from;
  peer.dstArray = to;
  peer.srcContext = peer.dstContext = context_;
  peer.WidthInBytes = 64;
  peer.Height = 4;
  peer.Depth = 1;
  Fill(to, 4);
  EXPECT_CUDA_OK(cuMemcpy3DPeer(&peer));
  EXPECT_EQ(Read(to), contents);
  CUDA_MEMCPY3D_BATCH_OP op{};
  op.src.type = op.dst.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
  op.src.op.array.array = from;
  op.dst.op.array.array = to;
  op.extent = {16, 4, 1};
  op.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  Fill(to, 5);
  CUstream stream = nullptr;
  ASSERT_CUDA_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  EXPECT_CUDA_OK(cuMemcpy3DBatchAsync_v2(1, &op, 0, stream));
  EXPECT_CUDA_OK(cuStreamSynchronize(stream));
  EXPECT_EQ(Read(to), contents);
  EXPECT_CUDA_OK(cuStreamDestroy_v2(stream));
  Fill(to, 6);
  EXPECT_CUDA_OK(cuMemcpyAtoA_v2(to, 0, from, 0, 64));
  EXPECT_TRUE(std::equal(contents.begin(), contents.begin() + 64, Read(to).begin()));
  EXPECT_CUDA_OK(cuMemcpyAtoD_v2(out_, from, 0, 64));
  EXPECT_CUDA_OK(cuMemcpyDtoA_v2(to, 0, out_, 64));
  Bytes row(64);
  EXPECT_CUDA_OK(cuMemcpyAtoH_v2(row.data(), to, 0, 64));
  EXPECT_TRUE(std::equal(row.begin(), row.end(), contents.begin()));
  EXPECT_CUDA_OK(cuMemcpyHtoA_v2(to, 0, row.data(), 64));
  EXPECT_CUDA_OK(cuArrayDestroy(from));
  EXPECT_CUDA_OK(cuArrayDestroy(to));
}

TEST_F(ReplayArrayTest, KernelsFindTexturesAndSurfacesUnderTheirNumbers) {
  const CUarray array = Make(Shape(8, 4, 0, CUDA_ARRAY3D_SURFACE_LDST));
  const Bytes contents = Fill(array, 1);
  const CUtexObject texture = Texture(Of(array));
  const CUsurfObject surface = Surface(array);
  PauseAndResume();
  EXPECT_EQ(Sample(texture), Word(contents, 1));
  Shift(surface);
  PauseAndResume();
  EXPECT_EQ(Word(Read(array), 0), Word(contents, 1));
  EXPECT_EQ(Sample(texture), Word(contents, 1));
  // What is made now does not get a number that is taken.
  const CUtexObject more = Texture(Of(array));
  EXPECT_NE(more, texture);
  EXPECT_NE(more, surface);
  EXPECT_CUDA_OK(cuTexObjectDestroy(more));
  EXPECT_CUDA_OK(cuTexObjectDestroy(texture));
  EXPECT_CUDA_OK(cuSurfObjectDestroy(surface));
  EXPECT_CUDA_OK(cuArrayDestroy(array));
}

TEST_F(ReplayArrayTest, EveryKindOfResourceIsDescribedAsItWas) {
  const CUDA_ARRAY3D_DESCRIPTOR shape = Shape(8, 4, 0, CUDA_ARRAY3D_SURFACE_LDST);
  const CUarray array = Make(shape);
  CUDA_RESOURCE_DESC mipmap{}, linear{}, pitched{};
  mipmap.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
  ASSERT_CUDA_OK(cuMipmappedArrayCreate(&mipmap.res.mipmap.hMipmappedArray, &shape, 3));
  linear.resType = CU_RESOURCE_TYPE_LINEAR;
  linear.res.linear = {out_, CU_AD_FORMAT_UNSIGNED_INT32, 1, 4096};
  pitched.resType = CU_RESOURCE_TYPE_PITCH2D;
  pitched.res.pitch2D = {out_, CU_AD_FORMAT_UNSIGNED_INT32, 1, 8, 4, 512};
  CUDA_RESOURCE_VIEW_DESC view{};
  view.format = CU_RES_VIEW_FORMAT_SINT_1X32;
  view.width = 8;
  view.height = 4;
  view.firstMipmapLevel = 1;
  view.lastMipmapLevel = 2;
  const CUDA_TEXTURE_DESC texture = ReadAsIs();
  CUtexObject viewed = 0;
  ASSERT_CUDA_OK(cuTexObjectCreate(&viewed, &mipmap, &texture, &view));
  const std::vector<std::pair<CUtexObject, CUDA_RESOURCE_DESC>> objects = {{Texture(Of(array)), Of(array)},
                                                                           {Texture(mipmap), mipmap},
                                                                           {Texture(linear), linear},
                                                                           {Texture(pitched), pitched},
                                                                           {viewed, mipmap}};
  const CUsurfObject surface = Surface(array);
  CUarray level = nullptr;
  ASSERT_CUDA_OK(cuMipmappedArrayGetLevel(&level, mipmap.res.mipmap.hMipmappedArray, 1));
  const Bytes of_level = Fill(level, 9);
  PauseAndResume();
  PauseAndResume();
  for (const auto& [object, resource] : objects) {
    CUDA_RESOURCE_DESC got{};
    CUDA_TEXTURE_DESC sampling{};
    EXPECT_CUDA_OK(cuTexObjectGetResourceDesc(&got, object));
    EXPECT_EQ(std::memcmp(&got, &resource, sizeof got), 0) << object;
    EXPECT_CUDA_OK(cuTexObjectGetTextureDesc(&sampling, object));
    EXPECT_EQ(std::memcmp(&sampling, &texture, sizeof sampling), 0);
  }
  CUDA_RESOURCE_VIEW_DESC seen{};
  EXPECT_CUDA_OK(cuTexObjectGetResourceViewDesc(&seen, viewed));
  EXPECT_EQ(std::memcmp(&seen, &view, sizeof seen), 0);
  EXPECT_EQ(cuTexObjectGetResourceViewDesc(&seen, objects[0].first), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Sample(viewed), Word(of_level, 1)) << "the finest level of the view";
  CUDA_RESOURCE_DESC got{};
  EXPECT_CUDA_OK(cuSurfObjectGetResourceDesc(&got, surface));
  EXPECT_EQ(got.res.array.hArray, array);
  for (const auto& [object, resource] : objects) EXPECT_CUDA_OK(cuTexObjectDestroy(object));
  EXPECT_CUDA_OK(cuSurfObjectDestroy(surface));
  EXPECT_CUDA_OK(cuMipmappedArrayDestroy(mipmap.res.mipmap.hMipmappedArray));
  EXPECT_CUDA_OK(cuArrayDestroy(array));
}

// Numbers given by random creations and destructions, in two contexts, come back each to its own.
TEST_F(ReplayArrayTest, RandomNumbersComeBack) {
  CUcontext second = nullptr;
  ASSERT_CUDA_OK(cuCtxCreate_v2(&second, 0, 0));
  CUmodule code = nullptr;
  CUfunction sample[2] = {sample_, nullptr};
  ASSERT_CUDA_OK(cuModuleLoadData(&code, kCode));
  ASSERT_CUDA_OK(cuModuleGetFunction(&sample[1], code, "sample"));
  CUcontext contexts[] = {context_, second};
  std::mt19937 random(20261130);
  struct Known {
    CUarray array;
    CUtexObject texture;
    CUsurfObject surface;
    uint32_t value;
  };
  std::vector<Known> known[2];
  for (int step = 0; step < 60; ++step) {
    const size_t which = random() % 2;
    ASSERT_CUDA_OK(cuCtxSetCurrent(contexts[which]));
    std::vector<Known>& mine = known[which];
    if (random() % 5 < 3 || mine.empty()) {
      const CUarray array = Make(Shape(4, 2, 0, CUDA_ARRAY3D_SURFACE_LDST));
      const Bytes bytes = Fill(array, static_cast<unsigned>(step));
      const bool surface_first = random() % 2 != 0;
      const CUsurfObject early = surface_first ? Surface(array) : 0;
      const CUtexObject texture = Texture(Of(array));
      mine.push_back({array, texture, surface_first ? early : Surface(array), Word(bytes, 1)});
    } else {
      const size_t at = random() % mine.size();
      EXPECT_CUDA_OK(cuTexObjectDestroy(mine[at].texture));
      EXPECT_CUDA_OK(cuSurfObjectDestroy(mine[at].surface));
      EXPECT_CUDA_OK(cuArrayDestroy(mine[at].array));
      mine.erase(mine.begin() + static_cast<ptrdiff_t>(at));
    }
    if (step % 10 != 9) continue;
    PauseAndResume();
    for (size_t i = 0; i < 2; ++i) {
      ASSERT_CUDA_OK(cuCtxSetCurrent(contexts[i]));
      std::swap(sample_, sample[i]);
      CUdeviceptr first = out_;
      ASSERT_CUDA_OK(cuMemAlloc_v2(&out_, 64));
      for (const Known& object : known[i]) {
        EXPECT_EQ(Sample(object.texture), object.value);
        CUDA_RESOURCE_DESC got{};
        EXPECT_CUDA_OK(cuSurfObjectGetResourceDesc(&got, object.surface));
        EXPECT_EQ(got.res.array.hArray, object.array);
      }
      EXPECT_CUDA_OK(cuMemFree_v2(out_));
      out_ = first;
      std::swap(sample_, sample[i]);
    }
  }
  for (size_t i = 0; i < 2; ++i) {
    ASSERT_CUDA_OK(cuCtxSetCurrent(contexts[i]));
    for (const Known& object : known[i]) {
      EXPECT_CUDA_OK(cuTexObjectDestroy(object.texture));
      EXPECT_CUDA_OK(cuSurfObjectDestroy(object.surface));
      EXPECT_CUDA_OK(cuArrayDestroy(object.array));
    }
  }
  ASSERT_CUDA_OK(cuCtxDestroy_v2(second));
  ASSERT_CUDA_OK(cuCtxSetCurrent(context_));
}

// The program has still to destroy them, and nothing else.
TEST_F(ReplayArrayTest, ObjectsOfWhatIsGoneKeepTheirNumbers) {
  const CUarray array = Make(Shape(8, 4, 0, CUDA_ARRAY3D_SURFACE_LDST));
  const CUarray kept = Make(Shape(8, 4, 0));
  const Bytes contents = Fill(kept, 4);
  CUdeviceptr memory = 0;
  ASSERT_CUDA_OK(cuMemAlloc_v2(&memory, 4 << 20));
  CUDA_RESOURCE_DESC linear{};
  linear.resType = CU_RESOURCE_TYPE_LINEAR;
  linear.res.linear = {memory, CU_AD_FORMAT_UNSIGNED_INT32, 1, 4 << 20};
  const CUtexObject of_array = Texture(Of(array)), of_memory = Texture(linear), of_kept = Texture(Of(kept));
  const CUsurfObject surface = Surface(array);
  EXPECT_CUDA_OK(cuArrayDestroy(array));
  EXPECT_CUDA_OK(cuMemFree_v2(memory));
  PauseAndResume();
  PauseAndResume();
  EXPECT_EQ(Sample(of_kept), Word(contents, 1));
  CUDA_RESOURCE_DESC got{};
  EXPECT_CUDA_OK(cuTexObjectGetResourceDesc(&got, of_memory));
  EXPECT_EQ(got.res.linear.devPtr, memory);
  for (CUtexObject object : {of_array, of_memory, of_kept}) EXPECT_CUDA_OK(cuTexObjectDestroy(object));
  EXPECT_CUDA_OK(cuSurfObjectDestroy(surface));
  EXPECT_CUDA_OK(cuArrayDestroy(kept));
  PauseAndResume();  // what stood in for them goes with the driver
}

TEST_F(ReplayArrayTest, WhatADestroyedContextHadIsForgotten) {
  CUcontext made = nullptr;
  ASSERT_CUDA_OK(cuCtxCreate_v2(&made, 0, 0));
  const CUarray array = Make(Shape(8, 4, 0));
  Texture(Of(array));
  CUmipmappedArray mipmap = nullptr;
  const CUDA_ARRAY3D_DESCRIPTOR shape = Shape(8, 8, 0);
  ASSERT_CUDA_OK(cuMipmappedArrayCreate(&mipmap, &shape, 2));
  CUarray level = nullptr;
  ASSERT_CUDA_OK(cuMipmappedArrayGetLevel(&level, mipmap, 1));
  ASSERT_CUDA_OK(cuCtxDestroy_v2(made));
  ASSERT_CUDA_OK(cuCtxSetCurrent(context_));
  EXPECT_LE(replay::ObjectTable::Get().size(), records_ + 1);
  PauseAndResume();
}

TEST_F(ReplayArrayTest, AnArrayThatFindsNoMemoryIsNamedAndTheNextTrySucceeds) {
  const CUarray array = Make(Shape(1024, 1024, 0));
  const Bytes contents = Fill(array, 1);
  const CUtexObject texture = Texture(Of(array));
  std::thread control([] {
    EXPECT_STATUS_OK(replay::Stop());
    EXPECT_STATUS_OK(replay::LetGo());
    vmm::TestNode::Fault("oom-after=0");
    const Status failed = replay::ComeBack();
    EXPECT_FALSE(failed.ok());
    vmm::TestNode::Fault("none");
    replay::BackToReleased();
    EXPECT_STATUS_OK(replay::ComeBack());
    replay::GoOn();
  });
  control.join();
  EXPECT_EQ(Read(array), contents);
  EXPECT_EQ(Sample(texture), Word(contents, 1));
  EXPECT_CUDA_OK(cuTexObjectDestroy(texture));
  EXPECT_CUDA_OK(cuArrayDestroy(array));
}

// softgpu makes none of these; a driver that does is believed.
TEST_F(ReplayArrayTest, WhatCannotComeBackIsRefusedByName) {
  const replay::ContextPtr context = replay::CurrentContextRecord();
  ASSERT_NE(context, nullptr);
  const auto refusal = [&](const CUDA_ARRAY3D_DESCRIPTOR& desc) {
    const Status one = replay::ArrayRecord(context, desc).Check();
    const Status levels = replay::MipmappedArrayRecord(context, desc, 1).Check();
    EXPECT_EQ(one.code(), StatusCode::kUnsupported);
    EXPECT_EQ(levels.code(), StatusCode::kUnsupported);
    EXPECT_THAT(std::string(one.message()), HasSubstr("cuArray3DCreate"));
    EXPECT_THAT(std::string(levels.message()), HasSubstr("cuMipmappedArrayCreate"));
    return std::string(one.message());
  };
  EXPECT_THAT(refusal(Shape(8, 8, 0, CUDA_ARRAY3D_SPARSE)), HasSubstr("CUDA_ARRAY3D_SPARSE"));
  EXPECT_THAT(refusal(Shape(8, 8, 0, CUDA_ARRAY3D_DEFERRED_MAPPING)),
              HasSubstr("CUDA_ARRAY3D_DEFERRED_MAPPING"));
  EXPECT_THAT(refusal(Shape(8, 8, 0, 0, CU_AD_FORMAT_NV12)), HasSubstr("format"));
  EXPECT_STATUS_OK(replay::ArrayRecord(context, Shape(8, 8, 0)).Check());

  const auto object = std::make_shared<replay::TextureObject>();
  object->resource.resType = CU_RESOURCE_TYPE_LINEAR;
  replay::TextureSet set(context);
  set.Add(7, replay::TextureSort::kTexture, object);
  EXPECT_STATUS_OK(set.Check());
  set.Add(0x7f0012345600, replay::TextureSort::kSurface, object);
  const Status pointer = set.Check();
  EXPECT_EQ(pointer.code(), StatusCode::kUnsupported);
  EXPECT_THAT(std::string(pointer.message()), HasSubstr("cuSurfObjectCreate"));
  set.Remove(0x7f0012345600, replay::TextureSort::kSurface, object);
  const auto foreign = std::make_shared<replay::TextureObject>();
  foreign->resource = Of(reinterpret_cast<CUarray>(0x1000));
  set.Add(8, replay::TextureSort::kTexture, foreign);
  EXPECT_THAT(std::string(set.Check().message()),
              HasSubstr("shows an array that is not tracked (cuTexObjectCreate)"));
}

TEST_F(ReplayArrayTest, NothingIsLeftAfterManyPauses) {
  const CUarray array = Make(Shape(64, 64, 0, CUDA_ARRAY3D_SURFACE_LDST));
  const Bytes contents = Fill(array, 1);
  const CUtexObject texture = Texture(Of(array));
  const size_t free = FreeBytes(), records = replay::ObjectTable::Get().size(),
               files = vmm::OpenDescriptors();
  for (int i = 0; i < 100; ++i) PauseAndResume();
  EXPECT_EQ(FreeBytes(), free);
  EXPECT_EQ(replay::ObjectTable::Get().size(), records);
  EXPECT_EQ(vmm::OpenDescriptors(), files);
  EXPECT_EQ(Sample(texture), Word(contents, 1));
  EXPECT_CUDA_OK(cuTexObjectDestroy(texture));
  EXPECT_CUDA_OK(cuArrayDestroy(array));
}

}  // namespace
}  // namespace stasis

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const stasis::vmm::TestNode node({"--gpus", "2", "--memory", "256MiB"});
  setenv("STASIS_DRIVER", LIBCUDA_PATH, 1);
  return RUN_ALL_TESTS();
}
