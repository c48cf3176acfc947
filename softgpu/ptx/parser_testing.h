// Shared by the parser's tests: short texts to modules.
#ifndef SOFTGPU_PTX_PARSER_TESTING_H_
#define SOFTGPU_PTX_PARSER_TESTING_H_

#include <gtest/gtest.h>

#include <string>

#include "softgpu/ptx/parser.h"

namespace softgpu::ptx {

inline constexpr char kHeader[] = ".version 9.0\n.target sm_75\n.address_size 64\n";  // three lines

// A module of the header and `text`, which begins on line 4. Fails the test when it does not parse.
inline Module ParseModule(const std::string& text) {
  stasis::Result<Module> module = Parse(kHeader + text);
  EXPECT_TRUE(module.ok()) << module.status().ToString() << "\n" << text;
  return module.ok() ? std::move(*module) : Module();
}

// The first function with a body of a module that has `prefix` in front of "entry k" with the body (from line
// 6 on when there is no prefix). Registers: %r<10> .b32, %rd<10> .b64, %p<10> .pred, %f<10> .f32.
inline Function ParseBodyOf(const std::string& body, const std::string& prefix = "") {
  Module module =
      ParseModule(prefix +
                  ".entry k(.param .u64 in, .param .u32 n)\n{ .reg .b32 %r<10>; .reg .b64 %rd<10>; "
                  ".reg .pred %p<10>; .reg .f32 %f<10>;\n" +
                  body + "\n}\n");
  for (Function& function : module.functions) {
    if (!function.is_declaration) return std::move(function);
  }
  return Function();
}

// The only instruction of such a body.
inline Instruction ParseInstruction(const std::string& text, const std::string& prefix = "") {
  Function function = ParseBodyOf(text, prefix);
  EXPECT_EQ(function.instructions.size(), 1u) << text;
  if (!function.instructions.empty()) return function.instructions[0];
  Instruction none;
  none.operands.resize(8);  // so that a failed test goes on
  return none;
}

// The message for a text that must not parse.
inline std::string ErrorOf(const std::string& text) {
  const stasis::Result<Module> module = Parse(text);
  EXPECT_FALSE(module.ok()) << text;
  if (module.ok()) return "";
  EXPECT_EQ(module.status().code(), stasis::StatusCode::kCorrupt);
  return std::string(module.status().message());
}

}  // namespace softgpu::ptx

#endif  // SOFTGPU_PTX_PARSER_TESTING_H_
