#include "softgpu/ptx/parser_testing.h"

namespace softgpu::ptx {
namespace {

struct Case {
  const char* text;  // behind the header, from line 4 on
  const char* message;
};

TEST(ParserErrorTest, HeadersMustBeThere) {
  EXPECT_EQ(ErrorOf(""), "line 1: expected .version, found the end of the text");
  EXPECT_EQ(ErrorOf("hello"), "line 1: expected .version, found 'hello'");
  EXPECT_EQ(ErrorOf("\n.version x"), "line 2: expected a version, found 'x'");
  EXPECT_EQ(ErrorOf(".version 9"), "line 1: expected a version, found '9'");
  EXPECT_EQ(ErrorOf(".version 9.0\n"), "line 2: expected .target, found the end of the text");
  EXPECT_EQ(ErrorOf(".version 9.0\n.target debug\n"),
            "line 3: expected an architecture before this, found the end of the text");
  EXPECT_EQ(ErrorOf(".version 9.0\n.target sm_x;"),
            "line 2: expected an architecture before this, found ';'");
  EXPECT_EQ(ErrorOf(".version 9.0\n.target sm_75\n.address_size 32"), "line 3: addresses have 64 bits");
  EXPECT_EQ(ErrorOf(std::string(".version 9.0\n.target sm_75\0x", 28)),
            "line 2: unknown directive at module scope, found what is no token of PTX")
      << "a NUL is no space";
}

TEST(ParserErrorTest, ModuleScope) {
  const Case cases[] = {
      {"foo", "line 4: unknown directive at module scope, found 'foo'"},
      {"\n.reg .u32 x;", "line 5: unknown directive at module scope, found '.reg'"},
      {".global x;", "line 4: expected a type, found 'x'"},
      {".global .foo x;", "line 4: unknown word in a declaration, found '.foo'"},
      {".global .u32 .u32 x;", "line 4: second type in a declaration, found '.u32'"},
      {".global .pred x;", "line 4: a predicate lives in a register only, found 'x'"},
      {".global .u32 x", "line 4: expected ';', found the end of the text"},
      {".global .align 3 .u32 x;", "line 4: alignment is no power of two, found '.u32'"},
      {".global .u32 x;\n.global .u32 x;", "line 5: 'x' is declared twice"},
      {".global .u32 x[1099511627776];", "line 4: variable is too large, found ';'"},
      {".global .u32 x[99999999999999];", "line 4: bad dimension, found ']'"},
      {".global .u32 x[2][];", "line 4: only the first dimension may be left out, found ';'"},
      {".global .u32 x<4>;", "line 4: only registers can be parametrised"},
      {".global .attribute(.foo) .u32 x;", "line 4: expected an attribute, found '.foo'"},
      {".func f;\n.global .u32 f;", "line 5: 'f' is declared twice"},
      {".global .u32 f;\n.func f;", "line 5: 'f' is declared as a variable"},
      {".func f() { ret; }\n.func f() { ret; }", "line 5: function 'f' is defined twice"},
      {".extern .func f() { ret; }", "line 4: an external function has no body, found '{'"},
      {".entry f(.param .u32) { ret; }", "line 4: expected a name, found ')'"},
      {".entry f(.u32 x) { ret; }", "line 4: expected .param or .reg, found '.u32'"},
      {".entry f() .maxntid x { ret; }", "line 4: expected a number, found 'x'"},
      {".entry f() .maxntid 4294967296 { ret; }", "line 4: expected a smaller number, found '4294967296'"},
      {".entry f() .foo { ret; }", "line 4: expected '{', found '.foo'"},
      {".file 1 x", "line 4: expected a string, found 'x'"},
      {".file 1 \"x\n\"", "line 4: expected a string, found what is no token of PTX"},
      {".section .debug { .b8 1", "line 4: expected '}', found the end of the text"},
      {".func f;\n.alias f, g;", "line 5: alias of an undefined function"},
      {".func g() { ret; }\n.alias f, g;",
       "line 5: an alias must be a function that is declared and not defined"},
      {"/* open", "line 4: "},
  };
  for (const Case& one : cases) {
    const std::string text = std::string(kHeader) + one.text;
    if (std::string(one.message) == "line 4: ") {
      EXPECT_TRUE(Parse(text).ok()) << "an unclosed comment ends the text";
      continue;
    }
    EXPECT_EQ(ErrorOf(text), one.message) << one.text;
  }
}

TEST(ParserErrorTest, Initialisers) {
  const Case cases[] = {
      {".global .u32 x = y;", "line 4: unknown name 'y'"},
      {".shared .u32 x = 1;", "line 4: a variable of this kind has no initialiser, found '1'"},
      {".extern .global .u32 x = 1;", "line 4: a variable of this kind has no initialiser, found '1'"},
      {".global .u32 x[2] = {1, 2, 3};", "line 4: too many initial values, found '3'"},
      {".global .u32 x[2] = {{1}};", "line 4: initialiser is nested too deeply, found '{'"},
      {".global .u32 x[1][1] = {{1}, {2}};", "line 4: too many initial values, found '{'"},
      {".global .u32 x[2] = 1;", "line 4: expected '{', found '1'"},
      {".global .u32 x = 1 / 0;", "line 4: division by zero, found ';'"},
      {".global .u32 x = ~1.5;", "line 4: operator needs an integer, found ';'"},
      {".global .u32 x = 1.5 & 1;", "line 4: operator needs integers, found ';'"},
      {".global .u32 x = 09;", "line 4: malformed number, found '09'"},
      {".global .u32 x = 0f12;", "line 4: malformed number, found '0f12'"},
      {".global .u32 x = 12abc;", "line 4: expected a constant, found what is no token of PTX"},
      {".global .u16 x = y;", "line 4: an address needs 4 or 8 bytes, found 'y'"},
      {".global .b8 x[1] = {0xFE(y)};", "line 4: mask is not one byte, found '0xFE'"},
      {".global .b8 x[1] = {0xFF0(y)};", "line 4: mask is not one byte, found '0xFF0'"},
      {".global .u32 x = 0xFF(y);", "line 4: mask needs elements of one byte, found '0xFF'"},
      {".global .b8 x[2][1000000] = {{1},{2}};",
       "line 4: initialiser is larger than its text can fill, found '}'"},
      {".global .u64 x = {generic(1)};", "line 4: expected a name, found '1'"},
  };
  for (const Case& one : cases) EXPECT_EQ(ErrorOf(std::string(kHeader) + one.text), one.message) << one.text;
}

TEST(ParserErrorTest, Bodies) {
  const Case cases[] = {
      {"add.s32 %r1, %r1", "line 6: expected ';', found '}'"},
      {"add.s32 %r1, %q1, 1;", "line 5: unknown name, found '%q1'"},
      {"add.s32 %r1, %r4, 1;", "line 5: unknown name, found '%r4'"},
      {"add.s32 %r1, %r01, 1;", "line 5: unknown name, found '%r01'"},
      {"ld.u32 %r1, [nowhere];", "line 5: unknown name, found 'nowhere'"},
      {"ld.u32 %r1, [%rd1;", "line 5: expected ']', found ';'"},
      {"ld.u32 %r1, [%tid.x];", "line 5: expected an address"},
      {"ld.u32 %r1, [!%p1];", "line 5: expected a whole register"},
      {"ld.u32 %r1, [%r1.b0];", "line 5: expected a whole register"},
      {"ld.u32 %r1, [5, {%r1}];", "line 5: expected ']', found ','"},
      {"ld.u32 %r1, [%r1+1.5];", "line 5: expected an integer, found ']'"},
      {"mov.u32 %r1, %tid.q;", "line 5: unknown component, found '.q'"},
      {"mov.b64 %r1, {%r1, %r2;", "line 5: expected '}', found ';'"},
      {"mov.b64 %r1, {{%r1}, %r2};", "line 5: expected a constant, found '{'"},
      {"mov.u32 %r1, ;", "line 5: expected a constant, found ';'"},
      {"mov.u32 %r1, !%tid.x;", "line 5: only a predicate register can be negated"},
      {"@%r1 bra L; L:", "line 5: the guard is no predicate register"},
      {"@5 ret;", "line 5: expected a predicate, found '5'"},
      {"bra L;", "line 5: unknown label 'L'"},
      {"{ L: ret; } bra L;", "line 5: unknown label 'L'"},
      {"L: L: ret;", "line 5: label 'L' is defined twice"},
      {"T: .branchtargets T; bra T;", "line 5: label 'T' is of another kind"},
      {"brx.idx %r1, L; L: ret;", "line 5: label 'L' is of another kind"},
      {"call nothing;", "line 5: unknown name, found 'nothing'"},
      {"call 5;", "line 5: expected a function, found '5'"},
      {"call in;", "line 5: the callee is no function"},
      {"call (%r1);", "line 5: expected ',', found ';'"},
      {"F: .calltargets nothing;", "line 5: unknown name 'nothing'"},
      {".reg .u32 a; .reg .u32 a;", "line 5: 'a' is declared twice"},
      {".reg .b32 %r<4>;", "line 5: '%r' is declared twice"},
      {".reg .b32 x<0>;", "line 5: expected a count above zero, found '>'"},
      {".reg .b32 x<1048577>;", "line 5: expected a smaller number, found '1048577'"},
      {".reg .b32 x<1048576>;", "line 5: too many registers"},
      {".reg .b32 x[4];", "line 5: registers have no dimensions"},
      {".reg .v8 .b32 x;", "line 5: a vector of registers has at most 4 elements"},
      {".local .b32 x<4>;", "line 5: only registers can be parametrised"},
      {".local .b32 in; .local .b32 in;", "line 5: 'in' is declared twice"},
      {".foo 5;", "line 5: unknown directive in a function, found '.foo'"},
      {".loc 1 2", "line 6: expected a number, found '}'"},
      {".loc 1 2 3, foo", "line 6: expected function_name or inlined_at before this, found '}'"},
      {"5;", "line 5: expected a statement, found '5'"},
      {"add.s32 %r1, %r1, 1; \x80", "line 5: expected a statement, found what is no token of PTX"},
      {"{ ret; ", "line 7: expected a statement, found the end of the text"},
  };
  for (const Case& one : cases) {
    const std::string text =
        std::string(kHeader) +
        ".entry k(.param .u64 in) { .reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .pred %p<4>;\n" + one.text +
        "\n}\n";
    EXPECT_EQ(ErrorOf(text), one.message) << one.text;
  }
}

TEST(ParserErrorTest, NestingIsBounded) {
  const std::string scopes(1000, '{'), parens(100000, '('), minus(100000, '-');
  EXPECT_EQ(ErrorOf(std::string(kHeader) + ".entry k() " + scopes), "line 4: scopes are nested too deeply");
  EXPECT_EQ(ErrorOf(std::string(kHeader) + ".global .u32 x = " + parens),
            "line 4: expression is nested too deeply, found '('");
  EXPECT_EQ(ErrorOf(std::string(kHeader) + ".global .u32 x = " + minus),
            "line 4: expression is nested too deeply, found '-'");
}

TEST(ParserErrorTest, ManyFunctionsCannotClaimManyRegisters) {
  std::string text = kHeader;
  for (int i = 0; i < 100; ++i) text += ".func f" + std::to_string(i) + "() { .reg .b32 r<1000000>; }\n";
  EXPECT_EQ(ErrorOf(text), "line 5: more registers are declared than the text can use");
}

}  // namespace
}  // namespace softgpu::ptx
