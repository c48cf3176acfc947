// Linking of relocatable device code, as nvlink does it: PTX ISA 9.0, section 11.6 (linking directives).
#include <algorithm>
#include <string>
#include <unordered_set>

#include "softgpu/ptx/parser.h"
#include "softgpu/ptx/rename.h"

namespace softgpu::ptx {
namespace {

using stasis::Status;
using stasis::StatusCode;

// Which definition of a name other units see.
enum class Strength : uint8_t { kNone, kWeak, kCommon, kStrong };

Strength StrengthOf(const Function& function) {
  if (function.is_declaration) return Strength::kNone;
  return function.is_weak ? Strength::kWeak : Strength::kStrong;
}

Strength StrengthOf(const Variable& variable) {
  if (variable.is_extern) return Strength::kNone;
  if (variable.is_common) return Strength::kCommon;
  return variable.is_weak ? Strength::kWeak : Strength::kStrong;
}

// Whether other units can mean this by its name.
template <typename Symbol>
bool IsShared(const Symbol& symbol) {
  return symbol.is_extern || symbol.is_visible || symbol.is_weak;
}
bool IsSharedSymbol(const Variable& variable) { return IsShared(variable) || variable.is_common; }
bool IsSharedSymbol(const Function& function) { return IsShared(function); }

struct Definition {
  Strength strength = Strength::kNone;
  size_t unit = 0;
  uint64_t size = 0;
  bool is_function = false;
};

class Linker {
 public:
  explicit Linker(std::vector<Module> units) : units_(std::move(units)) {}

  Status Link() {
    CollectNames();
    for (size_t unit = 0; unit < units_.size(); ++unit) {
      SeparatePrivateNames(unit);
      RETURN_IF_ERROR(CollectDefinitions(unit));
    }
    ResolveAliases();
    for (size_t unit = 0; unit < units_.size(); ++unit) Merge(unit);
    return Status();
  }

  Module Take() { return std::move(linked_); }

 private:
  void CollectNames();
  void SeparatePrivateNames(size_t unit);
  Status CollectDefinitions(size_t unit);
  template <typename Symbol>
  Status Define(const Symbol& symbol, size_t unit, uint64_t size, bool is_function);
  void ResolveAliases();
  void Merge(size_t unit);
  void MergeHeader(const Module& unit);
  void MergeVariable(size_t unit, Variable variable);
  void MergeFunction(size_t unit, Function function);

  std::vector<Module> units_;
  Module linked_;
  std::unordered_set<std::string> taken_;                    // names that no private symbol may get
  std::unordered_map<std::string, Definition> definitions_;  // of shared names
  std::unordered_set<std::string> aliases_;
  std::unordered_map<std::string, size_t> merged_variables_;  // index in linked_, of shared names
  std::unordered_map<std::string, bool> declared_functions_;
};

// Shared names keep their spelling whatever the order of the units.
void Linker::CollectNames() {
  for (const Module& unit : units_) {
    for (const Variable& variable : unit.variables) {
      if (IsSharedSymbol(variable)) taken_.insert(variable.name);
    }
    for (const Function& function : unit.functions) {
      if (IsSharedSymbol(function)) taken_.insert(function.name);
    }
    for (const Alias& alias : unit.aliases) taken_.insert(alias.name);
  }
}

// The names of one unit that mean nothing to others. A function counts by all of its declarations: any of
// them may carry the word that makes it shared.
std::vector<std::string> PrivateNames(const Module& unit) {
  std::unordered_map<std::string, bool> shared;
  std::vector<std::string> order;
  const auto add = [&](const std::string& name, bool is_shared) {
    const auto [found, is_new] = shared.emplace(name, is_shared);
    if (is_new) order.push_back(name);
    found->second |= is_shared;
  };
  for (const Variable& variable : unit.variables) add(variable.name, IsSharedSymbol(variable));
  for (const Function& function : unit.functions) add(function.name, IsSharedSymbol(function));
  std::erase_if(order, [&](const std::string& name) { return shared[name]; });
  return order;
}

void Linker::SeparatePrivateNames(size_t unit) {
  Renames renames;
  for (const std::string& name : PrivateNames(units_[unit])) {
    if (taken_.insert(name).second) continue;
    std::string fresh;
    for (size_t suffix = unit + 1; fresh.empty() || !taken_.insert(fresh).second; ++suffix) {
      fresh = name + "@" + std::to_string(suffix);
    }
    renames.emplace(name, std::move(fresh));
  }
  RenameUses(renames, &units_[unit]);
  RenameDeclarations(renames, &units_[unit]);
}

template <typename Symbol>
Status Linker::Define(const Symbol& symbol, size_t unit, uint64_t size, bool is_function) {
  const Strength strength = StrengthOf(symbol);
  if (strength == Strength::kNone) return Status();
  Definition& known = definitions_[symbol.name];
  const bool clash = known.strength == Strength::kStrong && strength == Strength::kStrong;
  if (clash || (known.strength != Strength::kNone && known.is_function != is_function)) {
    return Status(StatusCode::kInvalidArgument, "symbol '" + symbol.name + "' is defined twice");
  }
  // The first of equals stays, but the largest .common.
  const bool larger = strength == Strength::kCommon && known.strength == strength && size > known.size;
  if (strength > known.strength || larger) known = {strength, unit, size, is_function};
  return Status();
}

Status Linker::CollectDefinitions(size_t unit) {
  for (const Variable& variable : units_[unit].variables) {
    RETURN_IF_ERROR(Define(variable, unit, variable.size, false));
  }
  for (const Function& function : units_[unit].functions) {
    RETURN_IF_ERROR(Define(function, unit, 0, true));
  }
  return Status();
}

// What another unit declares as external may be an alias here. A real definition comes first.
void Linker::ResolveAliases() {
  Renames renames;
  for (const Module& unit : units_) {
    for (const Alias& alias : unit.aliases) {
      if (definitions_.count(alias.name) == 0) renames.emplace(alias.name, alias.aliasee);
    }
  }
  for (Module& unit : units_) RenameUses(renames, &unit);
  for (const auto& [name, aliasee] : renames) aliases_.insert(name);
}

void Linker::MergeHeader(const Module& unit) {
  const bool newer = std::pair(unit.version_major, unit.version_minor) >
                     std::pair(linked_.version_major, linked_.version_minor);
  if (newer) {
    linked_.version_major = unit.version_major;
    linked_.version_minor = unit.version_minor;
  }
  if (linked_.target.empty() || unit.sm > linked_.sm) {
    linked_.target = unit.target;
    linked_.sm = unit.sm;
  }
  linked_.address_size = unit.address_size;
}

void Linker::MergeVariable(size_t unit, Variable variable) {
  const auto definition = definitions_.find(variable.name);
  if (definition != definitions_.end()) {
    if (variable.is_extern || definition->second.unit != unit) return;
    linked_.variables.push_back(std::move(variable));
    return;
  }
  // Still external: one declaration stays, with the strictest alignment (".extern .shared" arrays of several
  // units).
  const auto [found, is_new] = merged_variables_.emplace(variable.name, linked_.variables.size());
  if (is_new) {
    linked_.variables.push_back(std::move(variable));
    return;
  }
  Variable& first = linked_.variables[found->second];
  first.align = std::max(first.align, variable.align);
  first.size = std::max(first.size, variable.size);
}

void Linker::MergeFunction(size_t unit, Function function) {
  const auto definition = definitions_.find(function.name);
  if (definition != definitions_.end()) {
    if (function.is_declaration || definition->second.unit != unit) return;
    linked_.functions.push_back(std::move(function));
    return;
  }
  if (aliases_.count(function.name) != 0 || !declared_functions_.emplace(function.name, true).second) return;
  linked_.functions.push_back(std::move(function));
}

void Linker::Merge(size_t unit) {
  Module& module = units_[unit];
  MergeHeader(module);
  for (Variable& variable : module.variables) MergeVariable(unit, std::move(variable));
  for (Function& function : module.functions) MergeFunction(unit, std::move(function));
  for (Alias& alias : module.aliases) linked_.aliases.push_back(std::move(alias));
}

}  // namespace

stasis::Result<Module> Link(std::vector<Module> units) {
  if (units.empty()) return Status(StatusCode::kInvalidArgument, "nothing to link");
  Linker linker(std::move(units));
  RETURN_IF_ERROR(linker.Link());
  return linker.Take();
}

}  // namespace softgpu::ptx
