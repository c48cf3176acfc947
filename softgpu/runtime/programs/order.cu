// What an ordinary program asks of the runtime, in an order that the test can follow.
#include <cstdio>
#include <cstdlib>
#include <cstring>

__device__ int counter;
__managed__ int shared_value = 3;

__global__ void Touch(int* out) { *out = counter + shared_value; }

static void BeforeMain() {
  // Whatever the constructors registered has not reached the driver yet: its log is still empty.
  const char* path = getenv("FAKE_CUDA_LOG");
  FILE* log = path != nullptr ? fopen(path, "r") : nullptr;
  printf("log before first use: %s\n", log != nullptr ? "exists" : "none");
  if (log != nullptr) fclose(log);
}

// Runs after main, when the driver's own exit handlers have run.
struct AtExit {
  int* memory = nullptr;
  ~AtExit() {
    printf("at exit: %s\n", cudaGetErrorName(cudaFree(memory)));
    fflush(stdout);
  }
};
static AtExit at_exit;

int main(int argc, char** argv) {
  BeforeMain();
  int* out = nullptr;
  cudaError_t error = cudaMalloc(&out, sizeof *out);
  printf("malloc: %s\n", cudaGetErrorName(error));
  at_exit.memory = out;
  for (int i = 0; i < 2; ++i) {
    Touch<<<2, 32>>>(out);
    printf("launch: %s\n", cudaGetErrorName(cudaGetLastError()));
  }
  if (argc > 1 && strcmp(argv[1], "reset") == 0) {
    printf("reset: %s\n", cudaGetErrorName(cudaDeviceReset()));
    Touch<<<2, 32>>>(out);
    printf("launch: %s\n", cudaGetErrorName(cudaGetLastError()));
    at_exit.memory = nullptr;
  }
  shared_value = 5;
  int value = 1;
  printf("symbol: %s\n", cudaGetErrorName(cudaMemcpyToSymbol(counter, &value, sizeof value)));
  return 0;
}
