// From an image as the program hands it over to a program that the executor can run, with the log that JIT
// options ask for.
#ifndef SOFTGPU_DRIVER_CODE_H_
#define SOFTGPU_DRIVER_CODE_H_

#include <cuda.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "softgpu/driver/device.h"
#include "softgpu/ptx/exec/program.h"
#include "softgpu/ptx/module.h"

namespace softgpu {

// The options that mean something here; all others of cuda.h are accepted and change nothing.
class JitOptions {
 public:
  // INVALID_VALUE for arrays that are missing and options that cuda.h does not have. The arrays must stay
  // valid until Report().
  static CUresult Read(unsigned count, CUjit_option* options, void** values, JitOptions* out);
  // Fills the program's buffers, and the sizes and times it asked for.
  void Report(const std::string& info, const std::string& error) const;

 private:
  static void Fill(char* buffer, void** size, const std::string& text);
  void** value(CUjit_option option) const;
  std::span<CUjit_option> options_;
  void** values_ = nullptr;
};

struct Code {
  ptx::Module source;
  std::shared_ptr<exec::Program> program;  // not yet bound
};

// Finds, parses and links what runs on `device`; `log` gets the reason of a failure.
CUresult LoadCode(std::span<const std::byte> image, const Device& device, Code* code, std::string* log);
CUresult LoadTexts(const std::vector<std::string>& texts, Code* code, std::string* log);
// An image of which only the address is known.
CUresult LoadImage(const void* image, const Device& device, const JitOptions& options, Code* code);
// FILE_NOT_FOUND, OUT_OF_MEMORY.
CUresult ReadFile(const char* path, std::vector<std::byte>* bytes);

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_CODE_H_
