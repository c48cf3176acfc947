// Who multiplies matrices: kernels of the samples' own, or cuBLAS.
#pragma once

#include <memory>

#include "../common/gemm.h"

namespace gpt {

// All work goes to the stream it was made with. The products are those of common/gemm.h.
class Products {
 public:
  virtual ~Products() = default;

  // out = a * b
  virtual void Multiply(sample::Matrix a, sample::Matrix b, sample::Matrix out) = 0;
  // out = transpose(a) * b
  virtual void MultiplyTransposedLeft(sample::Matrix a, sample::Matrix b, sample::Matrix out) = 0;
  // out = a * transpose(b)
  virtual void MultiplyTransposedRight(sample::Matrix a, sample::Matrix b, sample::Matrix out) = 0;
};

std::unique_ptr<Products> MakeKernelProducts(cudaStream_t stream);
std::unique_ptr<Products> MakeBlasProducts(cudaStream_t stream);

}  // namespace gpt
