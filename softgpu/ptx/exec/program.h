// A loaded module: PTX lowered to the executor's own form, plus what the driver needs to know of it.
//
// Loading has two steps because the driver owns device memory: Load() checks and lowers everything and tells
// how much memory the module's variables need; Bind() is told where they lie, writes their initial contents
// and patches addresses into the code. After Bind() a Program is immutable and shared freely between threads.
#ifndef SOFTGPU_PTX_EXEC_PROGRAM_H_
#define SOFTGPU_PTX_EXEC_PROGRAM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "softgpu/ptx/module.h"

namespace softgpu::exec {

struct ParamInfo {
  uint32_t offset, size, align;  // bytes, in the kernel's parameter block
};

struct KernelInfo {
  std::string name;
  std::vector<ParamInfo> params;
  uint32_t param_bytes = 0;
  uint32_t static_shared = 0;  // bytes a block, without dynamic shared memory
  uint32_t local_bytes = 0;    // bytes a thread, callees included when known
  uint32_t registers = 0;  // 32-bit registers a thread, as a compiler would count after allocation (<= 255)
  uint32_t maxntid[3] = {0, 0, 0};  // .maxntid / .reqntid, 0 = not given
  uint32_t reqntid[3] = {0, 0, 0};
  uint32_t max_threads = 1024;  // threads a block that the directives and registers allow
  bool uses_device_malloc = false;
  bool uses_grid_sync = false;  // reads envreg1/envreg2
  std::vector<std::string> pragmas;  // of the entry itself
};

struct GlobalInfo {
  std::string name;
  uint64_t offset, size;  // in the module's block of its kind
  uint32_t align;
  bool constant;  // .const space
  bool managed;   // in the managed block, else in the device block
  bool visible;
};

struct Kernel;  // lowered code of one entry; lives as long as its Program

class Program {
 public:
  virtual ~Program() = default;

  // kUnsupported: an opcode, word or type that the executor does not know: "line N: unknown opcode
  // 'foo.bar.u32'". kInvalidArgument: unresolved extern symbol. Limits checked: 64 KiB of constants, 48 KiB
  // of static shared memory, 32 KiB of parameters (CUDA C++ Programming Guide, technical specifications).
  static stasis::Result<std::shared_ptr<Program>> Load(ptx::Module module);

  // Bytes of device memory and of managed memory that the variables need (0 when none), both aligned to 256.
  virtual uint64_t device_bytes() const = 0;
  virtual uint64_t managed_bytes() const = 0;
  // Once, before any launch. The addresses are both device addresses and readable/writable by this process.
  virtual stasis::Status Bind(uint64_t device_base, uint64_t managed_base) = 0;

  virtual const std::vector<GlobalInfo>& globals() const = 0;
  virtual const std::vector<const Kernel*>& kernels() const = 0;
  virtual const Kernel* FindKernel(std::string_view name) const = 0;
  virtual const GlobalInfo* FindGlobal(std::string_view name) const = 0;
  virtual int ptx_version() const = 0;  // 10 * major + minor
  virtual int target_sm() const = 0;    // e.g. 75
};

const KernelInfo& InfoOf(const Kernel& kernel);

}  // namespace softgpu::exec

#endif  // SOFTGPU_PTX_EXEC_PROGRAM_H_
