#include "softgpu/blas/blas_testing.h"

namespace softgpu {

const std::vector<std::string> kDaemonOptions = {"--gpus", "1", "--memory", "1GiB"};

namespace blas {

namespace {

constexpr unsigned char kGuardByte = 0xa5;

std::vector<Complex64> Random(cudaDataType type, size_t count, std::mt19937* random) {
  std::uniform_real_distribution<double> real(-1, 1);
  std::uniform_int_distribution<int> integer(type == CUDA_R_8I ? -128 : -1000,
                                             type == CUDA_R_8I ? 127 : 1000);
  std::vector<Complex64> values(count);
  alignas(16) unsigned char rounded[16];
  for (Complex64& value : values) {
    value = type == CUDA_R_8I || type == CUDA_R_32I
                ? Complex64(integer(*random))
                : Complex64(real(*random), IsComplex(type) ? real(*random) : 0);
    StoreElement(type, rounded, 0, value);
    value = LoadElement(type, rounded, 0);
  }
  return values;
}

}  // namespace

Buffer::Buffer(size_t bytes, size_t offset) : bytes_(bytes), offset_(offset) {
  EXPECT_EQ(cuMemAlloc(&base_, bytes + offset + 2 * kGuard), CUDA_SUCCESS);
  EXPECT_EQ(cuMemsetD8(base_, kGuardByte, bytes + offset + 2 * kGuard), CUDA_SUCCESS);
}

Buffer::~Buffer() {
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  std::vector<unsigned char> all(bytes_ + offset_ + 2 * kGuard);
  EXPECT_EQ(cuMemcpyDtoH(all.data(), base_, all.size()), CUDA_SUCCESS);
  for (size_t i = 0; i < all.size(); i++) {
    if (i == kGuard + offset_) i += bytes_;
    if (i < all.size() && all[i] != kGuardByte) {
      ADD_FAILURE() << "byte " << static_cast<int64_t>(i - kGuard - offset_) << " of " << bytes_
                    << " was written";
      break;
    }
  }
  EXPECT_EQ(cuMemFree(base_), CUDA_SUCCESS);
}

void Buffer::Write(const void* from) const {
  if (bytes_ == 0) return;
  EXPECT_EQ(cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(at()), from, bytes_), CUDA_SUCCESS);
}

void Buffer::Read(void* to) const {
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  if (bytes_ == 0) return;
  EXPECT_EQ(cuMemcpyDtoH(to, reinterpret_cast<CUdeviceptr>(at()), bytes_), CUDA_SUCCESS);
}

Numbers::Numbers(cudaDataType type, size_t count, std::mt19937* random, size_t offset)
    : Numbers(type, Random(type, count, random), offset) {}

Numbers::Numbers(cudaDataType type, const std::vector<Complex64>& values, size_t offset)
    : type_(type), was_(values), buffer_(values.size() * SizeOf(type), offset * SizeOf(type)) {
  Upload();
}

void Numbers::Upload() {
  std::vector<unsigned char> bytes(buffer_.bytes());
  for (size_t i = 0; i < was_.size(); i++)
    StoreElement(type_, bytes.data(), static_cast<int64_t>(i), was_[i]);
  buffer_.Write(bytes.data());
}

std::vector<unsigned char> Numbers::Bytes() const {
  std::vector<unsigned char> bytes(buffer_.bytes());
  buffer_.Read(bytes.data());
  return bytes;
}

std::vector<Complex64> Numbers::Now() const {
  std::vector<unsigned char> bytes = Bytes();
  std::vector<Complex64> values(was_.size());
  for (size_t i = 0; i < values.size(); i++)
    values[i] = LoadElement(type_, bytes.data(), static_cast<int64_t>(i));
  return values;
}

double UnitOf(cudaDataType type) {
  switch (type) {
    case CUDA_R_16F:
      return 0x1p-11;
    case CUDA_R_16BF:
      return 0x1p-8;
    case CUDA_R_8F_E4M3:
      return 0x1p-4;
    case CUDA_R_8F_E5M2:
      return 0x1p-3;
    case CUDA_R_32F:
    case CUDA_C_32F:
      return 0x1p-24;
    case CUDA_R_64F:
    case CUDA_C_64F:
      return 0x1p-53;
    default:
      return 0;
  }
}

void ExpectNear(Complex64 got, const Sum& sum, int64_t terms, cudaDataType arithmetic, cudaDataType result,
                const char* what) {
  // The usual bound of a sum in any order, doubled for complex products; the smallest number rounds
  // absolutely.
  double bound = 2 * static_cast<double>(terms + 4) * UnitOf(arithmetic) * sum.magnitude +
                 UnitOf(result) * std::abs(sum.value) + (UnitOf(result) == 0x1p-11 ? 0x1p-25 : 1e-37);
  if (UnitOf(result) == 0) bound = 0;
  EXPECT_LE(std::abs(got - sum.value), bound) << what << ": " << got << " for " << sum.value;
}

}  // namespace blas
}  // namespace softgpu
