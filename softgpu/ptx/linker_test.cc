#include <algorithm>

#include "softgpu/ptx/parser_testing.h"

namespace softgpu::ptx {
namespace {

stasis::Result<Module> LinkTexts(const std::vector<std::string>& texts) {
  std::vector<Module> units;
  for (const std::string& text : texts) units.push_back(ParseModule(text));
  return Link(std::move(units));
}

Module Linked(const std::vector<std::string>& texts) {
  stasis::Result<Module> module = LinkTexts(texts);
  EXPECT_TRUE(module.ok()) << module.status().ToString();
  return module.ok() ? std::move(*module) : Module();
}

template <typename List>
auto Named(const List& list, const std::string& name) {
  std::vector<typename List::value_type> found;
  std::copy_if(list.begin(), list.end(), std::back_inserter(found),
               [&](const auto& one) { return one.name == name; });
  return found;
}

TEST(LinkerTest, ExternalNamesMeetTheirDefinition) {
  for (bool swapped : {false, true}) {
    std::vector<std::string> texts = {
        ".extern .func f(.param .b32 x);\n.extern .global .u32 g;\n"
        ".visible .entry k() { .reg .b64 a; mov.u64 a, g; call f, (1); ret; }",
        ".visible .func f(.param .b32 x) { ret; }\n.visible .global .u32 g = 4;"};
    if (swapped) std::swap(texts[0], texts[1]);
    const Module module = Linked(texts);
    ASSERT_EQ(Named(module.functions, "f").size(), 1u);
    EXPECT_FALSE(Named(module.functions, "f")[0].is_declaration);
    ASSERT_EQ(Named(module.variables, "g").size(), 1u);
    EXPECT_FALSE(Named(module.variables, "g")[0].is_extern);
    EXPECT_EQ(module.functions.size(), 2u);
  }
}

TEST(LinkerTest, UnresolvedNamesStayExternalOnce) {
  const std::string text =
      ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n.extern .shared .align ";
  const Module module = Linked({text + "4 .b8 s[];", text + "16 .b8 s[];"});
  ASSERT_EQ(Named(module.functions, "vprintf").size(), 1u);
  EXPECT_TRUE(Named(module.functions, "vprintf")[0].is_extern);
  ASSERT_EQ(Named(module.variables, "s").size(), 1u);
  EXPECT_EQ(Named(module.variables, "s")[0].align, 16u);
}

TEST(LinkerTest, TwoStrongDefinitionsClash) {
  for (const char* text :
       {".visible .func f() { ret; }", ".visible .global .u32 f;", ".visible .entry f() { ret; }"}) {
    const stasis::Result<Module> module = LinkTexts({text, ".visible .func f() { ret; }"});
    ASSERT_FALSE(module.ok()) << text;
    EXPECT_EQ(module.status().code(), stasis::StatusCode::kInvalidArgument);
    EXPECT_EQ(module.status().message(), "symbol 'f' is defined twice");
  }
  EXPECT_EQ(Link({}).status().code(), stasis::StatusCode::kInvalidArgument);
}

TEST(LinkerTest, StrongBeatsWeakAndTheFirstWeakStays) {
  const std::string weak = ".weak .func f() { ret; }", strong = ".visible .func f() { trap; ret; }";
  for (const auto& texts : {std::vector{weak, strong}, std::vector{strong, weak}}) {
    const Module module = Linked(texts);
    ASSERT_EQ(module.functions.size(), 1u);
    EXPECT_EQ(module.functions[0].instructions.size(), 2u);
  }
  const Module module = Linked({".weak .global .u32 w = 1;", ".weak .global .u32 w = 2;"});
  ASSERT_EQ(module.variables.size(), 1u);
  EXPECT_EQ(module.variables[0].init.at(0), 1);
}

TEST(LinkerTest, TheLargestCommonStays) {
  const Module module =
      Linked({".common .global .b8 c[4];", ".common .global .b8 c[16];", ".common .global .b8 c[8];"});
  ASSERT_EQ(module.variables.size(), 1u);
  EXPECT_EQ(module.variables[0].size, 16u);
}

TEST(LinkerTest, PrivateNamesOfUnitsStayApart) {
  const std::string unit =
      ".global .u32 $str = 1;\n.global .u64 table[2] = {generic($str), helper};\n.func helper() { ret; }\n";
  const Module module =
      Linked({unit + ".visible .entry a() { .reg .b64 x; mov.u64 x, $str; call helper; ret; }",
              unit + ".visible .entry b() { .reg .b64 x; ld.u64 x, [$str+4]; call helper; l: .calltargets "
                     "helper; ret; }"});
  EXPECT_EQ(module.variables.size(), 4u);
  ASSERT_EQ(module.functions.size(), 4u);
  const Function b = Named(module.functions, "b").at(0);
  const std::string str = b.instructions[0].operands[1].name, helper = b.instructions[1].operands[0].name;
  EXPECT_EQ(Named(module.functions, "a")[0].instructions[0].operands[1].name, "$str");
  EXPECT_NE(str, "$str");
  EXPECT_NE(helper, "helper");
  EXPECT_EQ(Named(module.variables, str).size(), 1u);
  EXPECT_EQ(Named(module.functions, helper).size(), 1u);
  EXPECT_EQ(b.target_lists.at("l").at(0), helper);
  EXPECT_EQ(module.variables[3].relocations[0].symbol, str);
  EXPECT_EQ(module.variables[3].relocations[1].symbol, helper);
}

TEST(LinkerTest, PrivateNamesYieldToSharedOnes) {
  const Module module = Linked({".global .u32 x = 1;", ".visible .global .u32 x = 2;"});
  ASSERT_EQ(Named(module.variables, "x").size(), 1u);
  EXPECT_EQ(Named(module.variables, "x")[0].init.at(0), 2);
  EXPECT_EQ(module.variables.size(), 2u);
}

TEST(LinkerTest, LinkedModulesCanBeLinkedAgain) {
  const std::string unit = ".global .u32 x = 1;\n";
  std::vector<Module> again;
  again.push_back(Linked({unit, unit}));
  again.push_back(Linked({unit, unit}));
  const stasis::Result<Module> module = Link(std::move(again));
  ASSERT_TRUE(module.ok());
  ASSERT_EQ(module->variables.size(), 4u);
  for (const Variable& variable : module->variables)
    EXPECT_EQ(Named(module->variables, variable.name).size(), 1u);
}

TEST(LinkerTest, ALocalOfTheSameNameIsLeftAlone) {
  const Module module = Linked(
      {".global .u32 x;", ".entry k() { .local .b32 x; .reg .b64 a; mov.u64 a, x; }\n.global .u32 x;"});
  EXPECT_EQ(module.functions.at(0).instructions[0].operands[1].name, "x");
  EXPECT_NE(module.variables.at(1).name, "x");
}

TEST(LinkerTest, AliasesServeOtherUnits) {
  const Module module =
      Linked({".extern .func other();\n.visible .entry k() { call other, (); ret; }",
              ".visible .func other();\n.visible .func real() { ret; }\n.alias other, real;"});
  EXPECT_EQ(Named(module.functions, "k").at(0).instructions[0].operands[0].name, "real");
  EXPECT_TRUE(Named(module.functions, "other").empty());
}

TEST(LinkerTest, TheNewestVersionAndTargetHold) {
  std::vector<Module> units(2);
  units[0].version_major = 8, units[0].version_minor = 7, units[0].target = "sm_90", units[0].sm = 90;
  units[1].version_major = 9, units[1].version_minor = 0, units[1].target = "sm_75", units[1].sm = 75;
  const stasis::Result<Module> module = Link(units);
  ASSERT_TRUE(module.ok());
  EXPECT_EQ(module->version_major, 9);
  EXPECT_EQ(module->target, "sm_90");
}

}  // namespace
}  // namespace softgpu::ptx
