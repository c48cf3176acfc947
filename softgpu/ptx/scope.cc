#include "softgpu/ptx/scope.h"

#include <algorithm>
#include <charconv>

#include "softgpu/ptx/lexer.h"
#include "softgpu/ptx/parse_context.h"

namespace softgpu::ptx {
namespace {

using stasis::Status;

constexpr size_t kMaxDepth = 64;

constexpr size_t kMaxDigits = 7;  // of an index below kMaxRegistersOfFunction

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Where the digits at the end of the name begin, at most kMaxDigits of them.
size_t DigitsBegin(std::string_view name) {
  size_t at = name.size();
  while (at > 0 && name.size() - at < kMaxDigits && IsDigit(name[at - 1])) --at;
  return at;
}

}  // namespace

Status ScopeStack::Push(uint32_t line) {
  if (scopes_.size() >= kMaxDepth) return Cursor::ErrorAt(line, "scopes are nested too deeply");
  scopes_.emplace_back();
  return Status();
}

Status ScopeStack::Pop() {
  Scope scope = std::move(scopes_.back());
  scopes_.pop_back();
  for (LabelUse& use : scope.uses) {
    const auto found = scope.labels.find(use.name);
    if (found != scope.labels.end()) {
      if (found->second.kind != use.kind) {
        return Cursor::ErrorAt(use.line, "label '" + std::string(use.name) + "' is of another kind");
      }
      Bind(use, found->second);
    } else if (scopes_.empty()) {
      return Cursor::ErrorAt(use.line, "unknown label '" + std::string(use.name) + "'");
    } else {
      scopes_.back().uses.push_back(std::move(use));
    }
  }
  return Status();
}

void ScopeStack::Bind(const LabelUse& use, const Label& label) {
  if (use.instruction == kInTargets) {
    function_.target_lists[use.list][use.element] = label.unique;
  } else {
    function_.instructions[use.instruction].operands[use.element].name = label.unique;
  }
}

// A name that some `prefix<N>` of the scope declares, the prefix ending at `digits`.
bool ScopeStack::FindInRange(const Scope& scope, std::string_view name, size_t digits, Entry* entry) const {
  const auto range = scope.ranges.find(name.substr(0, digits));
  if (range == scope.ranges.end()) return false;
  const bool padded = digits + 1 < name.size() && name[digits] == '0';
  uint32_t number = 0;
  std::from_chars(name.data() + digits, name.data() + name.size(), number);
  if (padded || number >= range->second.count) return false;
  *entry = {Entry::Kind::kRegister, range->second.base + number, 1};
  return true;
}

bool ScopeStack::Find(std::string_view name, Entry* entry) const {
  const size_t first = DigitsBegin(name);
  // A prefix hardly ever ends in a digit itself; only then is there more than one way to split the name.
  const size_t last = prefix_ends_in_digit_ ? name.size() : std::min(first + 1, name.size());
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    for (size_t digits = first; digits < last; ++digits) {
      if (FindInRange(*scope, name, digits, entry)) return true;
    }
    const auto found = scope->names.find(name);
    if (found != scope->names.end()) {
      *entry = found->second;
      return true;
    }
  }
  return false;
}

bool ScopeStack::IsTaken(std::string_view name) const {
  Entry ignored;
  return module_names_.count(name) != 0 || Find(name, &ignored);
}

bool ScopeStack::RangeVisible(std::string_view prefix) const {
  for (const Scope& scope : scopes_) {
    if (scope.ranges.count(prefix) != 0) return true;
  }
  return false;
}

std::string ScopeStack::MakeUnique(std::string_view name) {
  return std::string(name) + "@" + std::to_string(++next_suffix_);
}

Status ScopeStack::Declare(std::string_view name, const Entry& entry, uint32_t line) {
  if (!scopes_.back().names.emplace(name, entry).second) {
    return Cursor::ErrorAt(line, "'" + std::string(name) + "' is declared twice");
  }
  return Status();
}

Status ScopeStack::Allocate(std::string_view name, const Shape& shape, uint32_t line, RegId* base) {
  static constexpr const char* kElements[] = {".x", ".y", ".z", ".w"};
  if (function_.registers.size() + shape.Total() > kMaxRegistersOfFunction) {
    return Cursor::ErrorAt(line, "too many registers");
  }
  if (shape.Total() > registers_left_) {
    return Cursor::ErrorAt(line, "more registers are declared than the text can use");
  }
  registers_left_ -= shape.Total();
  *base = static_cast<RegId>(function_.registers.size());
  for (uint64_t i = 0; i < (shape.count == 0 ? 1 : shape.count); ++i) {
    std::string full(name);
    if (shape.count != 0) full += std::to_string(i);
    for (uint32_t element = 0; element < shape.width; ++element) {
      function_.registers.push_back({shape.width == 1 ? full : full + kElements[element], shape.type});
    }
  }
  return Status();
}

Status ScopeStack::ReuseOrAllocate(std::string_view name, const Shape& shape, bool visible, uint32_t line,
                                   RegId* base) {
  // What is in use by an enclosing scope is not free; the outermost scope has no sibling.
  if (visible || scopes_.size() == 1) return Allocate(name, shape, line, base);
  std::string key(name);
  key.append("<").append(std::to_string(shape.count)).append(" ").append(std::to_string(shape.width));
  key.append(NameOf(shape.type));
  const auto found = free_registers_.find(key);
  if (found != free_registers_.end()) {
    *base = found->second;
    return Status();
  }
  RETURN_IF_ERROR(Allocate(name, shape, line, base));
  free_registers_.emplace(std::move(key), *base);
  return Status();
}

Status ScopeStack::AddRegisters(std::string_view name, uint64_t count, uint32_t width, Type type,
                                uint32_t line) {
  if (width > 4) return Cursor::ErrorAt(line, "a vector of registers has at most 4 elements");
  if (count != 0 && width != 1) return Cursor::ErrorAt(line, "vectors cannot be parametrised");
  const Shape shape = {count, width, type};
  RegId base = kNoReg;
  if (count == 0) {
    Entry existing;
    RETURN_IF_ERROR(ReuseOrAllocate(name, shape, Find(name, &existing), line, &base));
    const Entry::Kind kind = width == 1 ? Entry::Kind::kRegister : Entry::Kind::kRegisterVector;
    return Declare(name, {kind, base, width}, line);
  }
  if (scopes_.back().ranges.count(name) != 0) {
    return Cursor::ErrorAt(line, "'" + std::string(name) + "' is declared twice");
  }
  RETURN_IF_ERROR(ReuseOrAllocate(name, shape, RangeVisible(name), line, &base));
  prefix_ends_in_digit_ |= IsDigit(name.back());
  scopes_.back().ranges[name] = {base, count};
  return Status();
}

uint32_t ScopeStack::KeepName(std::string name) {
  unique_names_.push_back(std::move(name));
  return static_cast<uint32_t>(unique_names_.size() - 1);
}

Status ScopeStack::AddVariable(std::string_view name, Variable variable) {
  const uint32_t line = variable.line;
  const bool taken = IsTaken(name);
  std::string key;
  if (!taken && variable.space == Space::kParam && scopes_.size() > 1) {
    key.append(name)
        .append(" ")
        .append(NameOf(variable.type))
        .append(" ")
        .append(std::to_string(variable.size));
    key.append(" ").append(std::to_string(variable.align));
    const auto found = free_variables_.find(key);
    if (found != free_variables_.end())
      return Declare(name, {Entry::Kind::kVariable, found->second, 1}, line);
  }
  const bool seen = !used_variables_.insert(name).second;
  if (taken || seen) variable.name = MakeUnique(name);
  const uint32_t index = KeepName(variable.name);
  if (!key.empty()) free_variables_.emplace(std::move(key), index);
  function_.locals.push_back(std::move(variable));
  return Declare(name, {Entry::Kind::kVariable, index, 1}, line);
}

Status ScopeStack::AddParam(std::string_view name, Variable* param) {
  if (param->space == Space::kReg) return AddRegisters(name, 0, param->vector, param->type, param->line);
  used_variables_.insert(name);
  if (module_names_.count(name) != 0) param->name = MakeUnique(name);
  return Declare(name, {Entry::Kind::kVariable, KeepName(param->name), 1}, param->line);
}

Status ScopeStack::AddLabel(std::string_view name, LabelKind kind, uint32_t line, std::string* unique) {
  *unique = used_labels_.insert(name).second ? std::string(name) : MakeUnique(name);
  if (!scopes_.back().labels.emplace(name, Label{*unique, kind}).second) {
    return Cursor::ErrorAt(line, "label '" + std::string(name) + "' is defined twice");
  }
  return Status();
}

void ScopeStack::UseLabelInOperand(std::string_view name, LabelKind kind, uint32_t line, uint32_t instruction,
                                   uint32_t operand) {
  scopes_.back().uses.push_back({name, kind, line, instruction, operand, {}});
}

void ScopeStack::UseLabelInTargets(std::string_view name, uint32_t line, const std::string& list,
                                   uint32_t element) {
  scopes_.back().uses.push_back({name, LabelKind::kCode, line, kInTargets, element, list});
}

}  // namespace softgpu::ptx
