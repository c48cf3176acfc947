#include "softgpu/ptx/rename.h"

#include <unordered_set>

namespace softgpu::ptx {
namespace {

using LocalNames = std::unordered_set<std::string>;

void Apply(const Renames& renames, const LocalNames& locals, std::string* name) {
  const auto found = renames.find(*name);
  if (found != renames.end() && locals.count(*name) == 0) *name = found->second;
}

void RenameOperand(const Renames& renames, const LocalNames& locals, Operand* operand) {
  if (operand->kind == Operand::Kind::kSymbol || operand->kind == Operand::Kind::kAddress) {
    Apply(renames, locals, &operand->name);
  }
  for (Operand& element : operand->elements) RenameOperand(renames, locals, &element);
}

void RenameRelocations(const Renames& renames, const LocalNames& locals, std::vector<Variable>* variables) {
  for (Variable& variable : *variables) {
    for (Variable::Relocation& relocation : variable.relocations) Apply(renames, locals, &relocation.symbol);
  }
}

void RenameInFunction(const Renames& renames, Function* function) {
  LocalNames locals;
  for (const auto* list : {&function->results, &function->params, &function->locals}) {
    for (const Variable& variable : *list) locals.insert(variable.name);
  }
  RenameRelocations(renames, locals, &function->locals);
  for (Instruction& instruction : function->instructions) {
    for (Operand& operand : instruction.operands) RenameOperand(renames, locals, &operand);
  }
  for (auto& [label, targets] : function->target_lists) {
    for (std::string& target : targets) {
      if (function->labels.count(target) == 0) Apply(renames, locals, &target);
    }
  }
}

}  // namespace

void RenameUses(const Renames& renames, Module* module) {
  if (renames.empty()) return;
  RenameRelocations(renames, {}, &module->variables);
  for (Function& function : module->functions) RenameInFunction(renames, &function);
}

void RenameDeclarations(const Renames& renames, Module* module) {
  for (Variable& variable : module->variables) Apply(renames, {}, &variable.name);
  for (Function& function : module->functions) Apply(renames, {}, &function.name);
  for (Alias& alias : module->aliases) Apply(renames, {}, &alias.aliasee);
}

}  // namespace softgpu::ptx
