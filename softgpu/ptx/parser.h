// PTX text to Module.
#ifndef SOFTGPU_PTX_PARSER_H_
#define SOFTGPU_PTX_PARSER_H_

#include <memory>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "softgpu/ptx/module.h"

namespace softgpu::ptx {

// Parses one translation unit. Syntax, names and operand shapes are checked; whether an opcode is known is the
// executor's business. Errors are kCorrupt and begin with "line N: ". Never allocates more than a fixed multiple of
// text.size() plus the declared register count, which is bounded (1 Mi registers a function); recursion is bounded.
stasis::Result<Module> Parse(std::string_view text);

// Links several units (relocatable device code) into one: resolves .extern functions and variables, keeps one of the
// .weak/.common duplicates, renames non-visible names that clash between units. kInvalidArgument names a symbol that
// is defined twice; unresolved externs stay extern (the loader knows vprintf, malloc, free, __assertfail ...).
stasis::Result<Module> Link(std::vector<Module> units);

}  // namespace softgpu::ptx

#endif  // SOFTGPU_PTX_PARSER_H_
