// The names visible inside a function body: registers, variables and labels, by scope.
//
// Bodies nest scopes ("{ }", from calls and inline assembly), Function does not: this class gives each name
// of an inner scope its place in the flat lists. Sibling scopes that declare the same thing share one place,
// because a value never outlives its scope; a name that hides an outer one, or repeats it with another shape,
// is made unique with an
// '@', which no PTX name contains.
#ifndef SOFTGPU_PTX_SCOPE_H_
#define SOFTGPU_PTX_SCOPE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/status.h"
#include "softgpu/ptx/module.h"

namespace softgpu::ptx {

// Not thread-safe; keeps views into the text and a pointer to the function, which must outlive it.
class ScopeStack {
 public:
  struct Entry {
    enum class Kind : uint8_t { kRegister, kRegisterVector, kVariable } kind;
    uint32_t index = 0;  // RegId, or where `unique` is kept
    uint32_t width = 1;  // of a vector: registers from `index` on
  };

  // Locals never hide one of `module_names`. `registers_left` is what all functions of the text may still
  // allocate.
  ScopeStack(Function* function, const std::unordered_map<std::string_view, bool>* module_names,
             uint64_t* registers_left)
      : function_(*function), module_names_(*module_names), registers_left_(*registers_left) {
    scopes_.emplace_back();
  }

  stasis::Status Push(uint32_t line);
  // Resolves the scope's labels; those not found wait for the enclosing scope. After the last Pop an
  // unresolved label is an error.
  stasis::Status Pop();
  bool empty() const { return scopes_.empty(); }

  // `count` registers name0.. (or one, `name`, when count is 0), of `width` elements each.
  stasis::Status AddRegisters(std::string_view name, uint64_t count, uint32_t width, Type type,
                              uint32_t line);
  // Adds the variable to Function::locals. Its name may change.
  stasis::Status AddVariable(std::string_view name, Variable variable);
  // A parameter, which stays where it is; its name may change.
  stasis::Status AddParam(std::string_view name, Variable* param);

  bool Find(std::string_view name, Entry* entry) const;
  const std::string& UniqueName(const Entry& entry) const { return unique_names_[entry.index]; }

  enum class LabelKind : uint8_t { kCode, kTargets };
  // Defines a label and returns its unique name.
  stasis::Status AddLabel(std::string_view name, LabelKind kind, uint32_t line, std::string* unique);
  // The operand's, or the target list's, name becomes the label's unique name when the label is known.
  void UseLabelInOperand(std::string_view name, LabelKind kind, uint32_t line, uint32_t instruction,
                         uint32_t operand);
  void UseLabelInTargets(std::string_view name, uint32_t line, const std::string& list, uint32_t element);

 private:
  struct Range {
    RegId base;
    uint64_t count;
  };
  struct Label {
    std::string unique;
    LabelKind kind;
  };
  struct LabelUse {
    std::string_view name;
    LabelKind kind;
    uint32_t line;
    uint32_t instruction;  // kInTargets: `list` instead
    uint32_t element;
    std::string list;
  };
  struct Scope {
    std::unordered_map<std::string_view, Entry> names;
    std::unordered_map<std::string_view, Range> ranges;  // by prefix
    std::unordered_map<std::string_view, Label> labels;
    std::vector<LabelUse> uses;
  };
  static constexpr uint32_t kInTargets = 0xffffffff;

  stasis::Status Declare(std::string_view name, const Entry& entry, uint32_t line);
  bool FindInRange(const Scope& scope, std::string_view name, size_t digits, Entry* entry) const;
  bool IsTaken(std::string_view name) const;
  bool RangeVisible(std::string_view prefix) const;
  std::string MakeUnique(std::string_view name);
  struct Shape {
    uint64_t count;  // as in AddRegisters
    uint32_t width;
    Type type;
    uint64_t Total() const { return (count == 0 ? 1 : count) * width; }
  };
  stasis::Status Allocate(std::string_view name, const Shape& shape, uint32_t line, RegId* base);
  stasis::Status ReuseOrAllocate(std::string_view name, const Shape& shape, bool visible, uint32_t line,
                                 RegId* base);
  uint32_t KeepName(std::string name);
  void Bind(const LabelUse& use, const Label& label);

  Function& function_;
  const std::unordered_map<std::string_view, bool>& module_names_;
  uint64_t& registers_left_;
  std::vector<Scope> scopes_;
  std::vector<std::string> unique_names_;
  // What ended scopes declared, by name and shape.
  std::unordered_map<std::string, RegId> free_registers_;
  std::unordered_map<std::string, uint32_t> free_variables_;
  std::unordered_set<std::string_view> used_variables_, used_labels_;
  bool prefix_ends_in_digit_ = false;
  uint32_t next_suffix_ = 0;
};

}  // namespace softgpu::ptx

#endif  // SOFTGPU_PTX_SCOPE_H_
