// For tests of libnccl: ranks in this process, each on a device and with a stream of its own.
#ifndef SOFTGPU_NCCL_NCCL_TESTING_H_
#define SOFTGPU_NCCL_NCCL_TESTING_H_

#include <cuda.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <cstdint>
#include <string>
#include <vector>

namespace softgpu::nccl {

#define NCCL_OK(call) ASSERT_EQ(call, ncclSuccess) << ncclGetLastError(nullptr)
#define EXPECT_NCCL_OK(call) EXPECT_EQ(call, ncclSuccess) << ncclGetLastError(nullptr)

// The primary context of a device is current meanwhile.
class OnDevice {
 public:
  explicit OnDevice(int device);
  ~OnDevice();

 private:
  const int device_;
};

// Device memory.
class Buffer {
 public:
  Buffer(int device, size_t bytes, uint8_t fill = 0);
  Buffer(int device, const std::vector<uint8_t>& bytes);
  Buffer(Buffer&& other) noexcept;
  ~Buffer();
  void* at(size_t offset = 0) const { return reinterpret_cast<void*>(address_ + offset); }
  std::vector<uint8_t> Bytes() const;
  template <typename T>
  std::vector<T> As() const {
    const std::vector<uint8_t> bytes = Bytes();
    const T* first = reinterpret_cast<const T*>(bytes.data());
    return std::vector<T>(first, first + bytes.size() / sizeof(T));
  }

 private:
  int device_ = 0;
  CUdeviceptr address_ = 0;
  size_t bytes_ = 0;
};

template <typename T>
Buffer MakeBuffer(int device, const std::vector<T>& values) {
  const auto* first = reinterpret_cast<const uint8_t*>(values.data());
  return Buffer(device, std::vector<uint8_t>(first, first + values.size() * sizeof(T)));
}

struct Stream {
  explicit Stream(int device);
  Stream(Stream&& other) noexcept;
  ~Stream();
  cudaStream_t get() const { return reinterpret_cast<cudaStream_t>(stream); }
  CUresult Wait() const;
  CUresult Query() const;

  int device;
  CUstream stream = nullptr;
};

// A communicator of `count` ranks on the devices 0 to count-1.
class Ranks {
 public:
  explicit Ranks(int count);
  ~Ranks();
  int count() const { return static_cast<int>(comms.size()); }
  // Waits for all streams.
  void Wait() const;
  // Calls launch(rank) for all in a group.
  template <typename Launch>
  void Group(const Launch& launch) const {
    EXPECT_NCCL_OK(ncclGroupStart());
    for (int rank = 0; rank < count(); rank++) EXPECT_NCCL_OK(launch(rank));
    EXPECT_NCCL_OK(ncclGroupEnd());
  }

  std::vector<ncclComm_t> comms;  // null: destroyed by the test
  std::vector<Stream> streams;
};

// Sums 1 over the ranks, each on its device, and checks it.
void ExpectWorks(const std::vector<ncclComm_t>& comms, const std::vector<int>& devices);

// The communicator's state once it is not `unwanted` any more; or `unwanted` when patience ends.
ncclResult_t AwaitState(ncclComm_t comm, ncclResult_t unwanted);

// The value in the type's bytes, and back, by the conversions of NVIDIA's headers; integers wrap around.
void Encode(ncclDataType_t type, double value, uint8_t* bytes);
double Decode(ncclDataType_t type, const uint8_t* bytes);
size_t Bytes(ncclDataType_t type);

}  // namespace softgpu::nccl

#endif  // SOFTGPU_NCCL_NCCL_TESTING_H_
