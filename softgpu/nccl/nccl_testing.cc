#include "softgpu/nccl/nccl_testing.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "softgpu/device/test_daemon.h"

namespace softgpu::nccl {

OnDevice::OnDevice(int device) : device_(device) {
  CUcontext context = nullptr;
  EXPECT_EQ(cuInit(0), CUDA_SUCCESS);
  EXPECT_EQ(cuDevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxPushCurrent(context), CUDA_SUCCESS);
}

OnDevice::~OnDevice() {
  CUcontext context = nullptr;
  EXPECT_EQ(cuCtxPopCurrent(&context), CUDA_SUCCESS);
  EXPECT_EQ(cuDevicePrimaryCtxRelease(device_), CUDA_SUCCESS);
}

Buffer::Buffer(int device, size_t bytes, uint8_t fill) : device_(device), bytes_(bytes) {
  const OnDevice on(device);
  CUcontext kept = nullptr;
  // The memory holds the context; released by the destructor.
  EXPECT_EQ(cuDevicePrimaryCtxRetain(&kept, device), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAlloc(&address_, bytes + 1), CUDA_SUCCESS);
  EXPECT_EQ(cuMemsetD8(address_, fill, bytes + 1), CUDA_SUCCESS);
  // The tests' streams do not wait for the default stream.
  EXPECT_EQ(cuStreamSynchronize(nullptr), CUDA_SUCCESS);
}

Buffer::Buffer(int device, const std::vector<uint8_t>& bytes) : Buffer(device, bytes.size()) {
  const OnDevice on(device);
  if (bytes.empty()) return;
  EXPECT_EQ(cuMemcpyHtoD(address_, bytes.data(), bytes.size()), CUDA_SUCCESS);
}

Buffer::Buffer(Buffer&& other) noexcept
    : device_(other.device_), address_(std::exchange(other.address_, 0)), bytes_(other.bytes_) {}

Buffer::~Buffer() {
  if (address_ == 0) return;
  {
    const OnDevice on(device_);
    EXPECT_EQ(cuMemFree(address_), CUDA_SUCCESS);
  }
  EXPECT_EQ(cuDevicePrimaryCtxRelease(device_), CUDA_SUCCESS);
}

std::vector<uint8_t> Buffer::Bytes() const {
  const OnDevice on(device_);
  std::vector<uint8_t> bytes(bytes_);
  if (bytes_ == 0) return bytes;
  EXPECT_EQ(cuMemcpyDtoH(bytes.data(), address_, bytes_), CUDA_SUCCESS);
  return bytes;
}

Stream::Stream(int on_device) : device(on_device) {
  const OnDevice on(device);
  CUcontext kept = nullptr;
  EXPECT_EQ(cuDevicePrimaryCtxRetain(&kept, device), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
}

Stream::Stream(Stream&& other) noexcept
    : device(other.device), stream(std::exchange(other.stream, nullptr)) {}

Stream::~Stream() {
  if (stream == nullptr) return;
  {
    const OnDevice on(device);
    EXPECT_EQ(cuStreamDestroy(stream), CUDA_SUCCESS);
  }
  EXPECT_EQ(cuDevicePrimaryCtxRelease(device), CUDA_SUCCESS);
}

CUresult Stream::Wait() const {
  const OnDevice on(device);
  return cuStreamSynchronize(stream);
}

CUresult Stream::Query() const {
  const OnDevice on(device);
  return cuStreamQuery(stream);
}

Ranks::Ranks(int count) : comms(static_cast<size_t>(count)) {
  for (int rank = 0; rank < count; rank++) streams.emplace_back(rank);
  EXPECT_NCCL_OK(ncclCommInitAll(comms.data(), count, nullptr));
}

Ranks::~Ranks() {
  for (ncclComm_t comm : comms) EXPECT_NCCL_OK(ncclCommDestroy(comm));
}

void Ranks::Wait() const {
  for (const Stream& stream : streams) EXPECT_EQ(stream.Wait(), CUDA_SUCCESS);
}

void ExpectWorks(const std::vector<ncclComm_t>& comms, const std::vector<int>& devices) {
  std::vector<Buffer> buffers;
  std::vector<Stream> streams;
  for (int device : devices) {
    buffers.push_back(MakeBuffer(device, std::vector<int32_t>(100, 1)));
    streams.emplace_back(device);
  }
  EXPECT_NCCL_OK(ncclGroupStart());
  for (size_t i = 0; i < comms.size(); i++)
    EXPECT_NCCL_OK(
        ncclAllReduce(buffers[i].at(), buffers[i].at(), 100, ncclInt32, ncclSum, comms[i], streams[i].get()));
  EXPECT_NCCL_OK(ncclGroupEnd());
  for (size_t i = 0; i < comms.size(); i++) {
    EXPECT_EQ(streams[i].Wait(), CUDA_SUCCESS);
    EXPECT_EQ(buffers[i].As<int32_t>(), std::vector<int32_t>(100, static_cast<int32_t>(comms.size())));
  }
}

ncclResult_t AwaitState(ncclComm_t comm, ncclResult_t unwanted) {
  ncclResult_t state = unwanted;
  for (const auto end = std::chrono::steady_clock::now() + kPatience;
       std::chrono::steady_clock::now() < end;) {
    EXPECT_NCCL_OK(ncclCommGetAsyncError(comm, &state));
    if (state != unwanted) break;
    std::this_thread::yield();
  }
  return state;
}

namespace {

template <typename T>
void Put(T value, uint8_t* bytes) {
  std::memcpy(bytes, &value, sizeof value);
}
template <typename T>
T Get(const uint8_t* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

float FromFloat8(const uint8_t* bytes, __nv_fp8_interpretation_t kind) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(*bytes, kind)));
}

}  // namespace

void Encode(ncclDataType_t type, double value, uint8_t* bytes) {
  const auto whole = static_cast<uint64_t>(static_cast<int64_t>(value));
  const auto single = static_cast<float>(value);
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return Put(static_cast<uint8_t>(whole), bytes);
    case ncclInt32:
    case ncclUint32:
      return Put(static_cast<uint32_t>(whole), bytes);
    case ncclInt64:
    case ncclUint64:
      return Put(whole, bytes);
    case ncclFloat16:
      return Put(__half_raw(__float2half_rn(single)).x, bytes);
    case ncclFloat32:
      return Put(single, bytes);
    case ncclFloat64:
      return Put(value, bytes);
    case ncclBfloat16:
      return Put(__nv_bfloat16_raw(__float2bfloat16_rn(single)).x, bytes);
    case ncclFloat8e4m3:
      return Put(__nv_cvt_float_to_fp8(single, __NV_SATFINITE, __NV_E4M3), bytes);
    case ncclFloat8e5m2:
      return Put(__nv_cvt_float_to_fp8(single, __NV_SATFINITE, __NV_E5M2), bytes);
    default:
      FAIL() << type;
  }
}

double Decode(ncclDataType_t type, const uint8_t* bytes) {
  switch (type) {
    case ncclInt8:
      return static_cast<double>(Get<int8_t>(bytes));
    case ncclUint8:
      return Get<uint8_t>(bytes);
    case ncclInt32:
      return Get<int32_t>(bytes);
    case ncclUint32:
      return Get<uint32_t>(bytes);
    case ncclInt64:
      return static_cast<double>(Get<int64_t>(bytes));
    case ncclUint64:
      return static_cast<double>(Get<uint64_t>(bytes));
    case ncclFloat16:
      return __half2float(__half(__half_raw{Get<uint16_t>(bytes)}));
    case ncclFloat32:
      return Get<float>(bytes);
    case ncclFloat64:
      return Get<double>(bytes);
    case ncclBfloat16:
      return __bfloat162float(__nv_bfloat16(__nv_bfloat16_raw{Get<uint16_t>(bytes)}));
    case ncclFloat8e4m3:
      return FromFloat8(bytes, __NV_E4M3);
    case ncclFloat8e5m2:
      return FromFloat8(bytes, __NV_E5M2);
    default:
      return 0;
  }
}

size_t Bytes(ncclDataType_t type) {
  static constexpr size_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return kBytes[type];
}

}  // namespace softgpu::nccl
