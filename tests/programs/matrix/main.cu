// usage: matrix --list                  every case: name, kinds, what is refused, how it may be disturbed
//        matrix CASE                    one step for each line of standard input, until its end
//        matrix CASE FOLDER STEPS       step N once FOLDER has a file N
#include <fcntl.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "matrix.h"

namespace matrix {
namespace {

std::vector<Case>& Cases() {
  static std::vector<Case>* const cases = new std::vector<Case>;
  return *cases;
}

std::string line, program;
int (*child_function)(int fd);

[[noreturn]] void Fail(const char* name, const char* call, int at) {
  std::printf("%s\nline %d: %s: %s\n", line.c_str(), at, call, name);
  std::fflush(stdout);
  std::_Exit(1);
}

bool ReadLine() {
  char text[64];
  return std::fgets(text, sizeof text, stdin) != nullptr && text[0] != 'q';
}

// The folder is watched, so that nothing is polled.
void WaitForFile(const std::string& folder, const std::string& name) {
  const int watch = inotify_init1(IN_CLOEXEC);
  if (watch < 0 || inotify_add_watch(watch, folder.c_str(), IN_CREATE | IN_MOVED_TO) < 0) std::_Exit(4);
  while (access((folder + "/" + name).c_str(), F_OK) != 0) {
    char events[4096];
    if (read(watch, events, sizeof events) <= 0) std::_Exit(4);
  }
  close(watch);
}

void Tell(const char* what) {
  std::printf("%s:%s\n", what, line.c_str());
  std::fflush(stdout);
  line.clear();
}

void Step(const Case& one, unsigned number) {
  one.step(number);
  CHECK(cudaDeviceSynchronize());
  Tell(("step " + std::to_string(number)).c_str());
}

int Run(const Case& one, const char* folder, unsigned steps) {
  one.make();
  Tell("ready");
  for (unsigned number = 1; folder != nullptr ? number <= steps : ReadLine(); ++number) {
    if (folder != nullptr) WaitForFile(folder, std::to_string(number));
    Step(one, number);
  }
  if (one.end != nullptr) one.end();
  Tell("end");
  return 0;
}

int List() {
  for (const Case& one : Cases())
    std::printf("%s|%s|%s|%s\n", one.name, one.kinds, one.refused == nullptr ? "" : one.refused, one.ways == nullptr ? "" : one.ways);
  return 0;
}

}  // namespace

Registrar::Registrar(const Case& added) { Cases().push_back(added); }
ChildRegistrar::ChildRegistrar(int (*child)(int fd)) { child_function = child; }

void Check(cudaError_t error, const char* call, int at) {
  if (error != cudaSuccess) Fail(cudaGetErrorName(error), call, at);
}

void Check(CUresult result, const char* call, int at) {
  const char* name = "?";
  if (result != CUDA_SUCCESS && cuGetErrorName(result, &name) != CUDA_SUCCESS) name = "an unknown error";
  if (result != CUDA_SUCCESS) Fail(name, call, at);
}

void Say(const char* format, ...) {
  char text[512];
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  line += std::string(" ") + text;
}

void SayHash(const char* what, const void* memory, size_t bytes) {
  std::vector<unsigned char> copy(bytes);
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaMemcpy(copy.data(), memory, bytes, cudaMemcpyDefault));
  unsigned long long hash = 14695981039346656037ull;
  for (unsigned char byte : copy) hash = (hash ^ byte) * 1099511628211ull;
  Say("%s=%016llx", what, hash);
}

__global__ void Mix(unsigned* cells, unsigned count, unsigned seed) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) cells[i] = cells[i] * 1664525u + seed * 1013904223u + i;
}

void LaunchMix(unsigned* cells, unsigned count, unsigned seed, cudaStream_t stream) {
  Mix<<<(count + 63) / 64, 64, 0, stream>>>(cells, count, seed);
  CHECK(cudaGetLastError());
}

unsigned* Cells(unsigned count, unsigned seed) {
  unsigned* cells = nullptr;
  CHECK(cudaMalloc(&cells, count * sizeof *cells));
  CHECK(cudaMemset(cells, static_cast<int>(seed), count * sizeof *cells));
  LaunchMix(cells, count, seed);
  return cells;
}

const char* Program() { return program.c_str(); }

}  // namespace matrix

int main(int argc, char** argv) {
  matrix::program = argv[0];
  if (argc == 2 && std::strcmp(argv[1], "--list") == 0) return matrix::List();
  if (argc == 3 && std::strcmp(argv[1], "--child") == 0) return matrix::child_function(std::atoi(argv[2]));
  for (const matrix::Case& one : matrix::Cases()) {
    if (argc >= 2 && std::strcmp(one.name, argv[1]) == 0)
      return matrix::Run(one, argc == 4 ? argv[2] : nullptr, argc == 4 ? std::atoi(argv[3]) : 0);
  }
  std::fprintf(stderr, "usage: matrix --list | CASE [FOLDER STEPS]\n");
  return 2;
}
