// Reaches cuBLAS as a plug-in does that nothing preloaded can stand before: dlopen, and dlsym on the handle. One step
// a line of its input, one line of answers a step.
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr int kSize = 16;
constexpr size_t kBytes = kSize * kSize * sizeof(float);

void Expect(bool right, const char* what) {
  if (right) return;
  std::printf("%s\n", what);
  std::fflush(stdout);
  std::_Exit(1);
}
#define EXPECT(condition) Expect((condition), #condition)

template <typename Function>
Function* Find(void* library, const char* name) {
  void* address = dlsym(library, name);
  Expect(address != nullptr, name);
  return reinterpret_cast<Function*>(address);
}

}  // namespace

int main() {
  void* library = dlopen("libcublas.so.13", RTLD_NOW | RTLD_LOCAL);
  EXPECT(library != nullptr);
  cublasHandle_t handle = nullptr;
  EXPECT(Find<decltype(cublasCreate_v2)>(library, "cublasCreate_v2")(&handle) == CUBLAS_STATUS_SUCCESS);
  const auto multiply = Find<decltype(cublasSgemm_v2)>(library, "cublasSgemm_v2");
  float* matrices[3];
  for (float*& matrix : matrices) EXPECT(cudaMalloc(reinterpret_cast<void**>(&matrix), kBytes) == cudaSuccess);
  std::printf("ready\n");
  std::fflush(stdout);
  char line[16];
  for (unsigned number = 1; std::fgets(line, sizeof line, stdin) != nullptr && line[0] != 'q'; ++number) {
    const float one = 1, zero = 0;
    std::vector<float> values(kSize * kSize);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>((i * 7 + number) % 5);
    for (float* matrix : matrices)
      EXPECT(cudaMemcpy(matrix, values.data(), kBytes, cudaMemcpyHostToDevice) == cudaSuccess);
    EXPECT(multiply(handle, CUBLAS_OP_N, CUBLAS_OP_N, kSize, kSize, kSize, &one, matrices[0], kSize, matrices[1], kSize,
                    &zero, matrices[2], kSize) == CUBLAS_STATUS_SUCCESS);
    EXPECT(cudaMemcpy(values.data(), matrices[2], kBytes, cudaMemcpyDeviceToHost) == cudaSuccess);
    unsigned sum = 0;
    for (float value : values) sum = (sum ^ static_cast<unsigned>(value)) * 16777619u;
    std::printf("step %u: %x\n", number, sum);
    std::fflush(stdout);
  }
  EXPECT(Find<decltype(cublasDestroy_v2)>(library, "cublasDestroy_v2")(handle) == CUBLAS_STATUS_SUCCESS);
  std::printf("done\n");
  return 0;
}
