#include "softgpu/blas/types.h"

namespace softgpu::blas {

Complex64 LoadElement(cudaDataType type, const void* data, int64_t index) {
  switch (type) {
    case CUDA_R_32I:
      return static_cast<const int32_t*>(data)[index];
    case CUDA_R_64F:
      return static_cast<const double*>(data)[index];
    case CUDA_C_32F:
      return Complex64(static_cast<const Complex32*>(data)[index]);
    case CUDA_C_64F:
      return static_cast<const Complex64*>(data)[index];
    default:
      break;
  }
  double value = 0;
  WithStorage(type,
              [&]<typename S>(S) { value = S::Load(static_cast<const typename S::Type*>(data)[index]); });
  return value;
}

void StoreElement(cudaDataType type, void* data, int64_t index, Complex64 value) {
  switch (type) {
    case CUDA_R_32I:
      static_cast<int32_t*>(data)[index] = static_cast<int32_t>(std::nearbyint(value.real()));
      return;
    case CUDA_R_64F:
      static_cast<double*>(data)[index] = value.real();
      return;
    case CUDA_C_32F:
      static_cast<Complex32*>(data)[index] = Complex32(value);
      return;
    case CUDA_C_64F:
      static_cast<Complex64*>(data)[index] = value;
      return;
    default:
      break;
  }
  auto narrow = static_cast<float>(value.real());
  WithStorage(type, [&]<typename S>(S) { static_cast<typename S::Type*>(data)[index] = S::Store(narrow); });
}

}  // namespace softgpu::blas
