// Builds a ProgramState from a parsed module.
#ifndef SOFTGPU_PTX_EXEC_LOADER_H_
#define SOFTGPU_PTX_EXEC_LOADER_H_

#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "softgpu/ptx/exec/lower.h"
#include "softgpu/ptx/exec/program_state.h"

namespace softgpu::exec {

class Loader final : public LoweringContext {
 public:
  explicit Loader(ptx::Module module);
  stasis::Result<std::shared_ptr<Program>> Load();

  Ref Constant(uint64_t value, unsigned lane_bytes) override;
  Ref BoundConstant(BoundValue value, unsigned lane_bytes) override;
  const VariablePlace* FindVariable(const std::string& name) override;
  bool FindShared(const std::string& name, uint64_t* offset, bool* dynamic) override;
  int FindFunction(const std::string& name) override;
  Function* FunctionAtIndex(int index) override;
  CallSite* NewCall() override;
  AtomicOp* NewAtomic() override;
  MmaOp* NewMatrix() override;

 private:
  struct SharedPlace {
    uint64_t offset;
    bool dynamic;
  };

  void IndexFunctions();
  void PlaceVariable(const ptx::Variable& v);
  stasis::Status PlaceVariables();
  void FindReferences();
  std::vector<uint32_t> Reachable(uint32_t root) const;
  void PlaceCommonShared();
  stasis::Status PlaceKernelShared(uint32_t index, Kernel* kernel);
  void PlaceShared(const ptx::Variable& v, uint64_t* bytes, uint32_t* dynamic_align);
  stasis::Status NewKernel(uint32_t index, Kernel** out);
  stasis::Status LowerFunctions();
  void LinkCode();
  void LinkInst(Inst* inst, Draft* draft, Inst* base);
  void FinishKernel(Kernel* kernel, uint32_t index);
  bool StackBound(uint32_t index, std::vector<uint8_t>* state, std::vector<uint64_t>* bytes) const;

  std::shared_ptr<ProgramState> program_;
  const ptx::Module* module_;
  std::vector<const ptx::Function*> sources_;      // by function index
  std::vector<std::set<std::string>> references_;  // names each function mentions
  std::vector<bool> calls_indirect_;
  std::unordered_map<std::string, SharedPlace> shared_;  // as the function being lowered sees it
  std::unordered_map<std::string, SharedPlace> common_shared_;
  uint64_t common_shared_bytes_ = 0;
  std::vector<LoweredFunction> lowered_;
  std::vector<Kernel*> kernel_of_;  // by function index, null for device functions
};

}  // namespace softgpu::exec

#endif  // SOFTGPU_PTX_EXEC_LOADER_H_
