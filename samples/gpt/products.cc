#include "products.h"

#include <cublas_v2.h>

#include "../common/fail.h"

#define CUBLAS_CHECK(call) ::gpt::CheckBlas((call), #call, __FILE__, __LINE__)

namespace gpt {
namespace {

void CheckBlas(cublasStatus_t status, const char* what, const char* file, int line) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  sample::Fail(sample::kExitFailure, "%s failed: %s (%s) at %s:%d", what, cublasGetStatusName(status),
               cublasGetStatusString(status), file, line);
}

class KernelProducts : public Products {
 public:
  explicit KernelProducts(cudaStream_t stream) : stream_(stream) {}

  void Multiply(sample::Matrix a, sample::Matrix b, sample::Matrix out) override {
    sample::Multiply(a, b, out, stream_);
  }
  void MultiplyTransposedLeft(sample::Matrix a, sample::Matrix b, sample::Matrix out) override {
    sample::MultiplyTransposedLeft(a, b, out, stream_);
  }
  void MultiplyTransposedRight(sample::Matrix a, sample::Matrix b, sample::Matrix out) override {
    sample::MultiplyTransposedRight(a, b, out, stream_);
  }

 private:
  cudaStream_t stream_;
};

class BlasProducts : public Products {
 public:
  explicit BlasProducts(cudaStream_t stream) {
    CUBLAS_CHECK(cublasCreate(&handle_));
    CUBLAS_CHECK(cublasSetStream(handle_, stream));
  }
  BlasProducts(const BlasProducts&) = delete;
  BlasProducts& operator=(const BlasProducts&) = delete;
  ~BlasProducts() override { cublasDestroy(handle_); }

  void Multiply(sample::Matrix a, sample::Matrix b, sample::Matrix out) override {
    Run(CUBLAS_OP_N, a, CUBLAS_OP_N, b, out, a.columns);
  }
  void MultiplyTransposedLeft(sample::Matrix a, sample::Matrix b, sample::Matrix out) override {
    Run(CUBLAS_OP_T, a, CUBLAS_OP_N, b, out, a.rows);
  }
  void MultiplyTransposedRight(sample::Matrix a, sample::Matrix b, sample::Matrix out) override {
    Run(CUBLAS_OP_N, a, CUBLAS_OP_T, b, out, a.columns);
  }

 private:
  // A row-major matrix is the transpose of what cuBLAS sees, so it is asked for op(b)' * op(a)'.
  void Run(cublasOperation_t op_a, sample::Matrix a, cublasOperation_t op_b, sample::Matrix b,
           sample::Matrix out, int depth) {
    const float one = 1;
    const float zero = 0;
    CUBLAS_CHECK(cublasSgemm(handle_, op_b, op_a, out.columns, out.rows, depth, &one, b.data, b.columns,
                             a.data, a.columns, &zero, out.data, out.columns));
  }

  cublasHandle_t handle_ = nullptr;
};

}  // namespace

std::unique_ptr<Products> MakeKernelProducts(cudaStream_t stream) {
  return std::make_unique<KernelProducts>(stream);
}

std::unique_ptr<Products> MakeBlasProducts(cudaStream_t stream) {
  return std::make_unique<BlasProducts>(stream);
}

}  // namespace gpt
