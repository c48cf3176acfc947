// What the parts of the parser share: the position in the text, the module so far, and the budgets that keep
// a hostile text from claiming more memory than it is worth.
#ifndef SOFTGPU_PTX_PARSE_CONTEXT_H_
#define SOFTGPU_PTX_PARSE_CONTEXT_H_

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/status.h"
#include "softgpu/ptx/lexer.h"
#include "softgpu/ptx/module.h"

namespace softgpu::ptx {

inline constexpr uint64_t kMaxRegistersOfFunction = uint64_t{1} << 20;

struct ParseContext {
  explicit ParseContext(std::string_view text)
      : in(text),
        registers_left(kMaxRegistersOfFunction + text.size()),
        init_bytes_left(4096 + 64 * uint64_t{text.size()}) {}

  Cursor in;
  Module module;
  // Names of module scope, and whether each is a function. Views into the text.
  std::unordered_map<std::string_view, bool> names;
  // Module-scope names used in initialisers, which may be declared later in the text.
  std::vector<std::pair<std::string_view, uint32_t>> used_names;
  // Names of variables inside bodies that an initialiser may use.
  std::unordered_set<std::string_view> body_names;
  uint64_t registers_left;   // that all functions together may still have
  uint64_t init_bytes_left;  // of initial contents
};

// The words before a state space: .extern, .visible, .weak, .common.
struct Linkage {
  bool is_extern = false, is_visible = false, is_weak = false, is_common = false;
};
Linkage ParseLinkage(Cursor& in);

// kNone when `word` (without the dot) names no space that a variable can be declared in.
Space SpaceFromName(std::string_view word);

// One declared name. `count` is the N of a parametrised name `prefix<N>`, else 0.
struct Declared {
  Variable variable;
  std::string_view name;  // as written
  uint64_t count = 0;
};

// What follows a state space, up to and with the ';': modifiers, type, then names with dimensions and
// initialisers.
stasis::Status ParseVariables(ParseContext& context, const Linkage& linkage, Space space,
                              std::vector<Declared>* out);
// "(.param .u64 a, ...)", the cursor at '('.
stasis::Status ParseParams(ParseContext& context, std::vector<Variable>* params);
// "= ..." of one variable, the cursor behind '='. `dims` are its dimensions, the vector width last; the first
// may be 0
// ("[]") and is then filled in.
stasis::Status ParseInitializer(ParseContext& context, std::vector<uint64_t> dims, Variable* variable);
// "{ ... }" of a function, the cursor at '{'.
stasis::Status ParseBody(ParseContext& context, Function* function);
// Directives that follow a function's parameters: .maxntid, .noreturn, ...
stasis::Status ParseFunctionDirectives(Cursor& in, Function* function);
// .file, .loc, .pragma and .section outside of a function's header: nothing of them is kept. *known is false when the cursor is at none of
// these.
stasis::Status SkipAnnotation(Cursor& in, bool* known);

}  // namespace softgpu::ptx

#endif  // SOFTGPU_PTX_PARSE_CONTEXT_H_
