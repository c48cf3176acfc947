// A Program in memory: code, constants, symbols. Filled by the loader, bound once, then read-only.
#ifndef SOFTGPU_PTX_EXEC_PROGRAM_STATE_H_
#define SOFTGPU_PTX_EXEC_PROGRAM_STATE_H_

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "softgpu/ptx/exec/atomics.h"
#include "softgpu/ptx/exec/code.h"
#include "softgpu/ptx/exec/matrix.h"
#include "softgpu/ptx/exec/program.h"
#include "softgpu/ptx/module.h"

namespace softgpu::exec {

// A value that may depend on where variables lie: `value` plus the base of the block it points into.
struct BoundValue {
  enum class Base : uint8_t { kNone, kDevice, kManaged } base = Base::kNone;
  uint64_t value = 0;
};

// Constants as rows, interned by value and width.
class ConstantPool {
 public:
  ~ConstantPool();
  Ref Intern(BoundValue value, unsigned lane_bytes);
  // Writes the rows; addresses are known now.
  void Materialize(uint64_t device_base, uint64_t managed_base);
  std::byte* rows() const { return rows_; }

 private:
  struct Entry {
    BoundValue value;
    unsigned lane_bytes;
    uint32_t offset;
  };
  std::unordered_map<std::string, Ref> index_;
  std::vector<Entry> entries_;
  uint32_t bytes_ = 0;
  std::byte* rows_ = nullptr;
};

// Where a variable of module scope lies.
struct VariablePlace {
  const ptx::Variable* variable = nullptr;
  BoundValue address;
};

class ProgramState final : public Program {
 public:
  uint64_t device_bytes() const override { return device_bytes_; }
  uint64_t managed_bytes() const override { return managed_bytes_; }
  stasis::Status Bind(uint64_t device_base, uint64_t managed_base) override;
  const std::vector<GlobalInfo>& globals() const override { return globals_; }
  const std::vector<const Kernel*>& kernels() const override { return kernel_list_; }
  const Kernel* FindKernel(std::string_view name) const override;
  const GlobalInfo* FindGlobal(std::string_view name) const override;
  int ptx_version() const override { return 10 * module_.version_major + module_.version_minor; }
  int target_sm() const override { return module_.sm; }

  // The function of a tagged id, or null.
  const Function* FunctionAt(uint64_t id) const {
    uint64_t index = (id & kOffsetMask) - 1;
    return (id & ~kOffsetMask) == kFunctionTag && index < functions_.size() ? functions_[index].get()
                                                                            : nullptr;
  }
  std::byte* pool_rows() const { return pool_.rows(); }

 private:
  friend class Loader;

  stasis::Result<uint64_t> RelocatedValue(const ptx::Variable::Relocation& relocation, uint64_t device_base,
                                          uint64_t managed_base) const;

  ptx::Module module_;
  ConstantPool pool_;
  std::vector<Inst> code_;
  std::deque<std::vector<Ref>> refs_;
  std::deque<CallSite> calls_;
  std::deque<BranchTable> tables_;
  std::deque<AtomicOp> atomics_;
  std::deque<MmaOp> matrices_;
  std::vector<std::unique_ptr<Function>> functions_;
  std::unordered_map<std::string, uint32_t> function_index_;
  std::vector<std::unique_ptr<Kernel>> kernels_;
  std::vector<const Kernel*> kernel_list_;
  std::vector<GlobalInfo> globals_;
  std::unordered_map<std::string, VariablePlace> places_;    // .global and .const
  std::unordered_map<std::string, uint64_t> shared_places_;  // module-scope .shared: offset
  std::vector<VariablePlace> placed_;                        // in layout order
  uint64_t device_bytes_ = 0, managed_bytes_ = 0;
};

inline const ProgramState& ProgramOf(const Program& program) {
  return static_cast<const ProgramState&>(program);
}

}  // namespace softgpu::exec

#endif  // SOFTGPU_PTX_EXEC_PROGRAM_STATE_H_
