#include <cstring>

#include "softgpu/ptx/parser_testing.h"

namespace softgpu::ptx {
namespace {

Variable ParseVariable(const std::string& text, const std::string& prefix = "") {
  const Module module = ParseModule(prefix + text);
  return module.variables.empty() ? Variable() : module.variables.back();
}

template <typename T>
std::vector<T> InitOf(const Variable& variable) {
  std::vector<T> values(variable.init.size() / sizeof(T));
  std::memcpy(values.data(), variable.init.data(), values.size() * sizeof(T));
  return values;
}

TEST(ParserDataTest, ReadsLinkageAttributesAndShape) {
  const Variable variable =
      ParseVariable(".visible .weak .global .attribute(.managed) .align 32 .b8 x[2][3][4];");
  EXPECT_EQ(variable.name, "x");
  EXPECT_TRUE(variable.is_visible && variable.is_weak && variable.managed && variable.is_array);
  EXPECT_EQ(variable.align, 32u);
  EXPECT_EQ(variable.size, 24u);
  EXPECT_EQ(variable.line, 4u);
  EXPECT_EQ(ParseVariable(".const .v2 .f64 c;").align, 16u);
  EXPECT_TRUE(ParseVariable(".common .global .u32 c;").is_common);
  EXPECT_EQ(ParseVariable(".global .attribute(.unified(19, 95)) .f32 f;").size, 4u);
  EXPECT_EQ(ParseVariable(".extern .shared .align 16 .b8 s[];").size, 0u);
  EXPECT_EQ(ParseVariable(".global .u32 a, b[2];").size, 8u);
  EXPECT_EQ(ParseVariable(".shared .u32 a[4*WARP_SZ];").size, 512u);
}

TEST(ParserDataTest, ReadsScalarsAndLists) {
  EXPECT_EQ(InitOf<int32_t>(ParseVariable(".global .u32 x = -5;")), std::vector<int32_t>{-5});
  EXPECT_EQ(InitOf<int32_t>(ParseVariable(".global .u32 x = {5};")), std::vector<int32_t>{5});
  EXPECT_EQ(InitOf<int16_t>(ParseVariable(".global .s16 x[4] = {1, -2, 0x10, (1+2)};")),
            (std::vector<int16_t>{1, -2, 16, 3}));
  const Variable shorter = ParseVariable(".global .align 1 .b8 $str$1[12] = {104, 105, 0};");
  EXPECT_EQ(shorter.size, 12u);
  EXPECT_EQ(shorter.init, (std::vector<uint8_t>{104, 105, 0}));
  EXPECT_EQ(InitOf<uint64_t>(ParseVariable(".global .b64 x[1] = {0xFFFFFFFFFFFFFFFF};")),
            std::vector<uint64_t>{~uint64_t{0}});
}

TEST(ParserDataTest, ReadsFloats) {
  EXPECT_EQ(InitOf<float>(ParseVariable(".const .f32 x[4] = {0f3F800000, 1.5, -2, 0d4000000000000000};")),
            (std::vector<float>{1, 1.5, -2, 2}));
  EXPECT_EQ(InitOf<double>(ParseVariable(".const .f64 x[3] = {0d3FF0000000000000, -0.5, 0f40000000};")),
            (std::vector<double>{1, -0.5, 2}));
  EXPECT_EQ(InitOf<uint32_t>(ParseVariable(".const .b32 x = 0f3F800000;")),
            std::vector<uint32_t>{0x3f800000});
}

TEST(ParserDataTest, NestedListsFillTheirOwnRow) {
  EXPECT_EQ(InitOf<int32_t>(ParseVariable(".global .s32 x[2][3] = {{1, 2}, {4, 5, 6}};")),
            (std::vector<int32_t>{1, 2, 0, 4, 5, 6}));
  EXPECT_EQ(InitOf<int32_t>(ParseVariable(".global .s32 x[2][2] = {1, 2, 3};")),
            (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(InitOf<float>(ParseVariable(".global .v2 .f32 x[2] = {{1.0, 2.0}, {3.0, 4.0}};")),
            (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(ParseVariable(".global .s32 x[][3] = {{1, 2, 3}, {4}};").size, 24u);
  EXPECT_EQ(ParseVariable(".global .b8 x[] = {1, 2, 3};").size, 3u);
}

TEST(ParserDataTest, AddressesBecomeRelocations) {
  const Variable variable = ParseVariable(".global .u64 x[5] = {7, generic(a)+8, f, generic(a+-4), a-2};",
                                          ".global .u32 a[4];\n.func f;\n");
  EXPECT_EQ(variable.init.size(), 40u);
  EXPECT_EQ(variable.init[0], 7);
  ASSERT_EQ(variable.relocations.size(), 4u);
  const Variable::Relocation& first = variable.relocations[0];
  EXPECT_EQ(first.offset, 8u);
  EXPECT_EQ(first.size, 8u);
  EXPECT_EQ(first.symbol, "a");
  EXPECT_EQ(first.addend, 8);
  EXPECT_TRUE(first.generic);
  EXPECT_EQ(variable.relocations[1].symbol, "f");
  EXPECT_FALSE(variable.relocations[1].generic);
  EXPECT_EQ(variable.relocations[2].addend, -4);
  EXPECT_EQ(variable.relocations[3].addend, -2);
}

TEST(ParserDataTest, AddressesMayComeLater) {
  const Module module = ParseModule(".global .u64 x = generic(y);\n.global .u64 y = x;\n");
  EXPECT_EQ(module.variables.at(0).relocations.at(0).symbol, "y");
}

TEST(ParserDataTest, MasksTakeOneByteOfAnAddress) {
  const Variable variable =
      ParseVariable(".global .b8 x[6] = {0xFF(generic(a)), 0xFF00(generic(a)+2), 0xff00000000000000(a), 9};",
                    ".global .u32 a;\n");
  ASSERT_EQ(variable.relocations.size(), 3u);
  EXPECT_EQ(variable.relocations[0].size, 1u);
  EXPECT_EQ(variable.relocations[0].shift, 0);
  EXPECT_EQ(variable.relocations[1].shift, 8);
  EXPECT_EQ(variable.relocations[1].addend, 2);
  EXPECT_EQ(variable.relocations[1].offset, 1u);
  EXPECT_EQ(variable.relocations[2].shift, 56);
  EXPECT_EQ(variable.init.at(3), 9);
}

TEST(ParserDataTest, ADefinitionReplacesItsExternalDeclaration) {
  const Module module =
      ParseModule(".extern .global .u32 x;\n.visible .global .u32 x = 3;\n.extern .global .u32 x;");
  ASSERT_EQ(module.variables.size(), 1u);
  EXPECT_FALSE(module.variables[0].is_extern);
  EXPECT_EQ(module.variables[0].init.at(0), 3);
}

}  // namespace
}  // namespace softgpu::ptx
