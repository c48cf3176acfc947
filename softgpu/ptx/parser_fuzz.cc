// Any bytes as PTX: parsing, and linking of what parses, must end in a module or an error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "softgpu/ptx/parser.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using softgpu::ptx::Module;
  stasis::Result<Module> module =
      softgpu::ptx::Parse(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!module.ok()) return 0;
  // What the executor relies on without asking again.
  for (const softgpu::ptx::Function& function : module->functions) {
    for (const auto& [label, index] : function.labels) STASIS_CHECK(index <= function.instructions.size());
    for (const softgpu::ptx::Instruction& instruction : function.instructions) {
      STASIS_CHECK(instruction.guard == softgpu::ptx::kNoReg ||
                   instruction.guard < function.registers.size());
      for (const softgpu::ptx::Operand& operand : instruction.operands) {
        STASIS_CHECK(operand.reg == softgpu::ptx::kNoReg || operand.reg < function.registers.size());
      }
    }
  }
  for (const softgpu::ptx::Variable& variable : module->variables) {
    STASIS_CHECK(variable.init.size() <= variable.size);
    for (const auto& relocation : variable.relocations) {
      STASIS_CHECK(relocation.offset + relocation.size <= variable.size);
    }
  }
  std::vector<Module> units = {*module, std::move(*module)};
  (void)softgpu::ptx::Link(std::move(units)).ok();
  return 0;
}
