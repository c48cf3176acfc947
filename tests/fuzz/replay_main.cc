// Runs a fuzz target over every file below the folders (or files) given: the corpus as a plain test.
// libFuzzer brings its own main; this one stands in where the compiler has no libFuzzer. Fails if there was
// nothing to run.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
// Some targets prepare themselves.
extern "C" __attribute__((weak)) int LLVMFuzzerInitialize(int* argc, char*** argv);

namespace {

namespace fs = std::filesystem;

bool Replay(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "cannot read %s\n", path.c_str());
    return false;
  }
  std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  // A copy of exactly that size, so that a sanitizer sees the first byte read beyond it.
  std::vector<uint8_t> input(bytes.begin(), bytes.end());
  LLVMFuzzerTestOneInput(input.data(), input.size());
  return true;
}

// The number of inputs run, or -1 after an error.
int ReplayAll(const char* argument) {
  std::error_code error;
  if (!fs::is_directory(argument, error)) return Replay(argument) ? 1 : -1;
  int count = 0;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(argument, error)) {
    if (!entry.is_regular_file()) continue;
    if (!Replay(entry.path())) return -1;
    count++;
  }
  return error ? -1 : count;
}

}  // namespace

int main(int argc, char** argv) {
  if (LLVMFuzzerInitialize != nullptr) LLVMFuzzerInitialize(&argc, &argv);
  int total = 0;
  for (int i = 1; i < argc; i++) {
    int count = ReplayAll(argv[i]);
    if (count <= 0) {
      std::fprintf(stderr, "%s: no input could be run\n", argv[i]);
      return 1;
    }
    total += count;
  }
  std::printf("%d inputs\n", total);
  return total > 0 ? 0 : 1;
}
