#include <bit>

#include "softgpu/ptx/parser_testing.h"

namespace softgpu::ptx {
namespace {

using Kind = Operand::Kind;

TEST(ParserTest, ReadsTheHeader) {
  const stasis::Result<Module> module =
      Parse("// c\n.version 8.7\n.target sm_90a, debug\n.address_size 64\n");
  ASSERT_TRUE(module.ok()) << module.status().ToString();
  EXPECT_EQ(module->version_major, 8);
  EXPECT_EQ(module->version_minor, 7);
  EXPECT_EQ(module->target, "sm_90a");
  EXPECT_EQ(module->sm, 90);
  EXPECT_EQ(module->address_size, 64);
}

TEST(ParserTest, ReadsOpcodeWordsTypesAndLine) {
  const Instruction instruction = ParseInstruction("\n\n atom.global.shared::cta.add.u32 %r1, [%rd2], 5;");
  EXPECT_EQ(instruction.opcode, "atom");
  EXPECT_EQ(instruction.words, (std::vector<std::string>{"global", "shared::cta", "add", "u32"}));
  EXPECT_EQ(instruction.types, std::vector<Type>{Type::kU32});
  EXPECT_EQ(instruction.line, 8u);
  EXPECT_EQ(instruction.Mnemonic(), "atom.global.shared::cta.add.u32");
  EXPECT_TRUE(instruction.Has("add"));
  EXPECT_FALSE(instruction.Has("sub"));
}

TEST(ParserTest, SpaceMayStandBetweenTheWords) {
  EXPECT_EQ(ParseInstruction("ld .global\n.v2 .u32 {%r1, %r2}, [ %rd1 ] ;").Mnemonic(), "ld.global.v2.u32");
}

TEST(ParserTest, WordsMayBeginWithDigits) {
  const Instruction instruction = ParseInstruction("tcgen05.ld.16x64b.x1.b32 {%r1}, [%r2];");
  EXPECT_EQ(instruction.words, (std::vector<std::string>{"ld", "16x64b", "x1", "b32"}));
}

struct LiteralCase {
  const char* text;
  Kind kind;
  uint64_t bits;
};

TEST(ParserTest, ReadsLiterals) {
  const LiteralCase cases[] = {
      {"0", Kind::kInt, 0},
      {"42", Kind::kInt, 42},
      {"42U", Kind::kInt, 42},
      {"-1", Kind::kInt, ~uint64_t{0}},
      {"-0x10", Kind::kInt, static_cast<uint64_t>(-16)},
      {"0xFFU", Kind::kInt, 255},
      {"0XaB", Kind::kInt, 0xab},
      {"017", Kind::kInt, 15},
      {"0b101", Kind::kInt, 5},
      {"18446744073709551615", Kind::kInt, ~uint64_t{0}},
      {"WARP_SZ", Kind::kInt, 32},
      {"WARP_SZ - 1", Kind::kInt, 31},
      {"0f3F800000", Kind::kF32, 0x3f800000},
      {"0Fbf800000", Kind::kF32, 0xbf800000},
      {"-0f3F800000", Kind::kF32, 0xbf800000},
      {"0d3FF0000000000000", Kind::kF64, 0x3ff0000000000000},
      {"1.5", Kind::kF64, std::bit_cast<uint64_t>(1.5)},
      {"-2.5e-3", Kind::kF64, std::bit_cast<uint64_t>(-2.5e-3)},
      {"1e3", Kind::kF64, std::bit_cast<uint64_t>(1e3)},
      {"3.", Kind::kF64, std::bit_cast<uint64_t>(3.0)},
  };
  for (const LiteralCase& one : cases) {
    const Instruction instruction = ParseInstruction(std::string("mov.b64 %rd1, ") + one.text + ";");
    ASSERT_EQ(instruction.operands.size(), 2u) << one.text;
    EXPECT_EQ(instruction.operands[1].kind, one.kind) << one.text;
    EXPECT_EQ(instruction.operands[1].bits, one.bits) << one.text;
  }
}

TEST(ParserTest, EvaluatesConstantExpressions) {
  const std::pair<const char*, int64_t> cases[] = {
      {"1+2*3", 7},
      {"(1+2)*3", 9},
      {"-(1+2)", -3},
      {"~0", -1},
      {"!5", 0},
      {"!0", 1},
      {"1 << 4 | 3", 19},
      {"0xF0 & 0x3C ^ 1", 0x31},
      {"7 / 2 + 7 % 4", 6},
      {"-7 / 2", -3},
      {"-7 >> 1", -4},
      {"(.u64) -1 >> 63", 1},
      {"(.s64) 0xFFFFFFFFFFFFFFFF >> 1", -1},
      {"3 > 2 ? 10 : 20", 10},
      {"3 <= 2 ? 10 : 2 == 2 ? 30 : 40", 30},
      {"1 && 0 || 1", 1},
      {"-1 < 1", 1},
      {"-1 < 1U", 0},
      {"1 << 64", 0},
      {"(-9223372036854775807 - 1) / -1", INT64_MIN},
      {"(-9223372036854775807 - 1) % -1", 0},
      {"2.5 > 2", 1},
  };
  for (const auto& [text, value] : cases) {
    const Operand operand = ParseInstruction(std::string("mov.b64 %rd1, ") + text + ";").operands[1];
    EXPECT_EQ(operand.kind, Kind::kInt) << text;
    EXPECT_EQ(static_cast<int64_t>(operand.bits), value) << text;
  }
  const Operand real = ParseInstruction("mov.f64 %rd1, 1.5 * -2 + 1;").operands[1];
  EXPECT_EQ(real.kind, Kind::kF64);
  EXPECT_EQ(std::bit_cast<double>(real.bits), -2.0);
}

TEST(ParserTest, ResolvesRegisters) {
  const Function function = ParseBodyOf("add.s32 %r9, %r0, %r1;");
  const Instruction& add = function.instructions.at(0);
  EXPECT_EQ(function.registers[add.operands[0].reg].name, "%r9");
  EXPECT_EQ(function.registers[add.operands[1].reg].name, "%r0");
  EXPECT_EQ(function.registers[add.operands[0].reg].type, Type::kB32);
}

TEST(ParserTest, DeclaresSeveralRegistersAtOnce) {
  const Function function = ParseBodyOf(".reg .f64 a, b<2>, a1<3>; mov.f64 a, b1; mov.f64 a12, a10;");
  EXPECT_EQ(function.registers[function.instructions[0].operands[0].reg].name, "a");
  EXPECT_EQ(function.registers[function.instructions[0].operands[1].reg].name, "b1");
  EXPECT_EQ(function.registers[function.instructions[1].operands[0].reg].name, "a12");
  EXPECT_EQ(function.registers[function.instructions[1].operands[1].reg].type, Type::kF64);
}

TEST(ParserTest, ReadsSpecialRegisters) {
  for (const char* name : {"tid.x", "ctaid.z", "laneid", "clock64", "envreg31", "lanemask_lt", "pm3",
                           "pm3_64", "tid", "globaltimer_hi", "cluster_ctarank", "dynamic_smem_size"}) {
    const Operand operand = ParseInstruction(std::string("mov.u32 %r1, %") + name + ";").operands[1];
    EXPECT_EQ(operand.kind, Kind::kSpecial);
    EXPECT_EQ(operand.name, name);
  }
}

TEST(ParserTest, ReadsAddresses) {
  const Function function = ParseBodyOf(
      "ld.u32 %r1, [%rd1]; ld.u32 %r1, [%rd1+8]; ld.u32 %r1, [%rd1+-8]; ld.u32 %r1, [%rd1 - 8];"
      "ld.u32 %r1, [in]; ld.u32 %r1, [in+4]; ld.u32 %r1, [4096]; ld.u32 %r1, [table+0x10+4];",
      ".global .u32 table[10];\n");
  const int64_t offsets[] = {0, 8, -8, -8, 0, 4, 4096, 20};
  const char* names[] = {"", "", "", "", "in", "in", "", "table"};
  for (size_t i = 0; i < std::size(offsets); ++i) {
    const Operand& operand = function.instructions.at(i).operands.at(1);
    EXPECT_EQ(operand.kind, Kind::kAddress);
    EXPECT_EQ(static_cast<int64_t>(operand.bits), offsets[i]) << i;
    EXPECT_EQ(operand.name, names[i]) << i;
    EXPECT_EQ(operand.reg != kNoReg, i < 4) << i;
  }
}

TEST(ParserTest, ReadsSymbolsAsValues) {
  const Function function =
      ParseBodyOf("mov.u64 %rd1, table+4; mov.u64 %rd1, f; mov.u64 %rd1, buffer; .shared .b8 late[4];",
                  ".global .u32 table[10];\n.func f;\n.extern .shared .align 16 .b8 buffer[];\n");
  EXPECT_EQ(function.instructions[0].operands[1].kind, Kind::kSymbol);
  EXPECT_EQ(function.instructions[0].operands[1].name, "table");
  EXPECT_EQ(function.instructions[0].operands[1].bits, 4u);
  EXPECT_EQ(function.instructions[1].operands[1].name, "f");
  EXPECT_EQ(function.instructions[2].operands[1].name, "buffer");
}

TEST(ParserTest, ReadsVectorsWithDiscardsAndLiterals) {
  const Operand vector = ParseInstruction("st.v4.b32 [%rd1], {%r1, _, 0x7, 0f00000000};").operands[1];
  ASSERT_EQ(vector.kind, Kind::kVector);
  ASSERT_EQ(vector.elements.size(), 4u);
  EXPECT_EQ(vector.elements[0].kind, Kind::kReg);
  EXPECT_EQ(vector.elements[1].kind, Kind::kDiscard);
  EXPECT_EQ(vector.elements[2].bits, 7u);
  EXPECT_EQ(vector.elements[3].kind, Kind::kF32);
}

TEST(ParserTest, VectorRegistersBecomeTheirElements) {
  const Function function = ParseBodyOf(".reg .v2 .f32 v; mov.f32 v.y, v.r; ld.v2.f32 v, [%rd1];");
  EXPECT_EQ(function.registers[function.instructions[0].operands[0].reg].name, "v.y");
  EXPECT_EQ(function.registers[function.instructions[0].operands[1].reg].name, "v.x");
  const Operand& all = function.instructions[1].operands[0];
  ASSERT_EQ(all.kind, Kind::kVector);
  EXPECT_EQ(all.elements[1].reg, function.instructions[0].operands[0].reg);
}

TEST(ParserTest, ReadsSecondDestinations) {
  const Function function = ParseBodyOf(
      "setp.eq.and.s32 %p1|%p2, %r1, 3, !%p3; setp.ne.s32 %p1|_, %r1, 0; elect.sync _|%p1, -1; "
      "shfl.sync.up.b32 %r1|%p1, %r2, 1, 0, -1; setp.eq.s32 %p1, %r1, 0;");
  EXPECT_TRUE(function.instructions[0].second_dest);
  ASSERT_EQ(function.instructions[0].operands.size(), 5u);
  EXPECT_TRUE(function.instructions[0].operands[4].negated);
  EXPECT_EQ(function.instructions[1].operands[1].kind, Kind::kDiscard);
  EXPECT_EQ(function.instructions[2].operands[0].kind, Kind::kDiscard);
  EXPECT_EQ(function.instructions[3].operands.size(), 6u);
  EXPECT_FALSE(function.instructions[4].second_dest);
}

TEST(ParserTest, ReadsTextureOperands) {
  const Function function = ParseBodyOf(
      "tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd1, {%f1, %f2}]; tex.1d.v4.s32.s32 {%r1,_,_,_}, [t, {%r1}]; "
      "tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [t, s, {%f1, %f2}]; sust.b.2d.b32.trap [%rd1, {%r1, %r2}], {%r3};"
      "tex.1d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd1, %f1];"
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile [%r1], [%rd1, {%r1, %r2}], [%r3];",
      ".global .texref t;\n.global .samplerref s = { filter_mode = nearest };\n");
  const Operand& handle = function.instructions[0].operands[1];
  ASSERT_EQ(handle.kind, Kind::kTexture);
  EXPECT_EQ(handle.elements[0].kind, Kind::kReg);
  EXPECT_EQ(handle.elements[1].kind, Kind::kVector);
  EXPECT_EQ(function.instructions[1].operands[1].elements[0].name, "t");
  EXPECT_EQ(function.instructions[2].operands[1].elements.size(), 3u);
  EXPECT_EQ(function.instructions[3].operands[0].kind, Kind::kTexture);
  EXPECT_EQ(function.instructions[4].operands[1].elements[1].kind, Kind::kReg);
  EXPECT_EQ(function.instructions[5].operands[1].kind, Kind::kTexture);
  EXPECT_EQ(function.instructions[5].operands[2].kind, Kind::kAddress);
}

TEST(ParserTest, VideoSelectorsAndUnifiedAddressesAreKept) {
  const Instruction video = ParseInstruction("vadd.s32.u32.s32 %r1, %r2.b0, %r3.h1, %r4;");
  EXPECT_EQ(video.operands[1].name, "b0");
  EXPECT_EQ(video.operands[2].name, "h1");
  EXPECT_TRUE(ParseInstruction("ld.global.u32 %r1, [%rd1].unified;").Has("unified"));
}

TEST(ParserTest, GuardsStandOnAnyInstruction) {
  const Function function = ParseBodyOf("@%p1 add.s32 %r1, %r1, 1; @!%p2 bra L; L: @ ! %p3 ret;");
  EXPECT_EQ(function.registers[function.instructions[0].guard].name, "%p1");
  EXPECT_FALSE(function.instructions[0].guard_negated);
  EXPECT_TRUE(function.instructions[1].guard_negated);
  EXPECT_EQ(function.registers[function.instructions[2].guard].name, "%p3");
}

TEST(ParserTest, LabelsPointAtTheNextInstruction) {
  const Function function = ParseBodyOf("$L_a: mov.u32 %r1, 1; bra.uni end; $L_b: $L_c:\nret; end:");
  EXPECT_EQ(function.labels.at("$L_a"), 0u);
  EXPECT_EQ(function.labels.at("$L_b"), 2u);
  EXPECT_EQ(function.labels.at("$L_c"), 2u);
  EXPECT_EQ(function.labels.at("end"), 3u);
  EXPECT_EQ(function.instructions[1].operands[0].kind, Kind::kLabel);
  EXPECT_EQ(function.instructions[1].operands[0].name, "end");
}

TEST(ParserTest, ScopesHideNamesAndSiblingsShareRegisters) {
  const Function function = ParseBodyOf(
      "{ .reg .pred p; .reg .b32 t<2>; setp.eq.s32 p, %r1, 0; mov.b32 t1, 1; }\n"
      "{ .reg .pred p; .reg .b32 t<2>; setp.eq.s32 p, %r1, 0; { .reg .b32 p; mov.b32 p, t0; } @p ret; }\n"
      "{ .reg .b64 p; mov.b64 p, 1; { .reg .b32 %r<4>; mov.b32 %r1, 0; } }");
  const std::vector<Instruction>& code = function.instructions;
  const RegId first = code[0].operands[0].reg;
  EXPECT_EQ(code[2].operands[0].reg, first);  // a sibling of the same shape
  EXPECT_EQ(code[4].guard, first);
  EXPECT_NE(code[3].operands[0].reg, first);  // hides it
  EXPECT_EQ(function.registers[code[3].operands[0].reg].type, Type::kB32);
  EXPECT_EQ(function.registers[code[5].operands[0].reg].type, Type::kB64);  // another shape
  EXPECT_NE(code[6].operands[0].reg, code[0].operands[1].reg);              // a range hides the outer one
}

TEST(ParserTest, ManyScopesThatDeclareTheSameCostNothing) {
  std::string body;
  for (int i = 0; i < 20000; ++i) body += "{ .reg .b32 t<300>; mov.b32 t299, 0; }\n";
  EXPECT_EQ(ParseBodyOf(body).registers.size(), 340u);
}

TEST(ParserTest, LabelsBelongToTheirScope) {
  const Function function = ParseBodyOf(
      "{ bra DONE; DONE: ret; }\n{ @%p1 bra DONE; bra out; DONE: exit; }\n{ { bra out; } out: ret; }\nout: "
      "trap;");
  const auto target = [&](size_t i) { return function.labels.at(function.instructions[i].operands[0].name); };
  EXPECT_EQ(target(0), 1u);
  EXPECT_EQ(target(2), 4u);
  EXPECT_EQ(target(3), 7u);  // forward, out of the scope
  EXPECT_EQ(target(5), 6u);  // the nearer of two
}

TEST(ParserTest, CallsInAllForms) {
  const Function function = ParseBodyOf(
      "{ .param .b64 param0; .param .b32 retval0; st.param.b64 [param0+0], %rd1;\n call.uni (retval0), \n f, "
      "\n(\n "
      "param0\n);\n ld.param.b32 %r1, [retval0+0]; }\n"
      "{ .param .b64 param0; call.uni g, (param0); }\n call h;\n call.uni h, ();\n"
      "{ .param .b32 param0; proto : .callprototype (.param .b32 _) _ (.param .align 8 .b8 _[16]) "
      ".noreturn;\n"
      " call (param0), %rd1, (param0, 5), proto; call %rd1, proto; call (param0), %rd1; }",
      ".func (.param .b32 r) f(.param .b64 a);\n.func g(.param .b64 a);\n.func h;\n");
  std::vector<const Instruction*> calls;
  for (const Instruction& instruction : function.instructions) {
    if (instruction.opcode == "call") calls.push_back(&instruction);
  }
  ASSERT_EQ(calls.size(), 7u);
  const auto kinds = [&](size_t i) {
    std::vector<Kind> all;
    for (const Operand& operand : calls[i]->operands) all.push_back(operand.kind);
    return all;
  };
  EXPECT_EQ(kinds(0), (std::vector<Kind>{Kind::kList, Kind::kSymbol, Kind::kList}));
  EXPECT_EQ(calls[0]->operands[0].elements.at(0).name, "retval0");
  EXPECT_EQ(calls[0]->operands[2].elements.at(0).name, "param0");
  EXPECT_EQ(kinds(1), (std::vector<Kind>{Kind::kSymbol, Kind::kList}));
  EXPECT_EQ(calls[1]->operands[1].elements.at(0).name, "param0");  // shares the place of the first call's
  EXPECT_EQ(kinds(2), (std::vector<Kind>{Kind::kSymbol}));
  EXPECT_EQ(kinds(3), (std::vector<Kind>{Kind::kSymbol, Kind::kList}));
  EXPECT_EQ(kinds(4), (std::vector<Kind>{Kind::kList, Kind::kReg, Kind::kList, Kind::kLabel}));
  EXPECT_EQ(calls[4]->operands[2].elements.at(1).bits, 5u);
  EXPECT_EQ(kinds(5), (std::vector<Kind>{Kind::kReg, Kind::kLabel}));
  EXPECT_EQ(kinds(6), (std::vector<Kind>{Kind::kList, Kind::kReg}));
  // .b32 param0 of the last scope has another shape than the first ones.
  EXPECT_EQ(function.locals.size(), 3u);
  EXPECT_EQ(calls[4]->operands[0].elements.at(0).name, function.locals[2].name);
  EXPECT_NE(function.locals[2].name, "param0");
  ASSERT_EQ(function.prototypes.size(), 1u);
  EXPECT_EQ(function.prototypes[0].name, "proto");
  EXPECT_EQ(function.prototypes[0].params.at(0).size, 16u);
  EXPECT_EQ(function.prototypes[0].params.at(0).align, 8u);
  EXPECT_EQ(function.prototypes[0].results.at(0).type, Type::kB32);
}

TEST(ParserTest, ReadsTargetLists) {
  const Function function = ParseBodyOf(
      "ts: .branchtargets A, B, A;\n brx.idx %r1, ts;\n A: ret;\n B: exit;\n"
      "fs: .calltargets f, g;\n call %rd1, (), fs; call %rd1, (), table;",
      ".func f; .func g; .global .u64 table[2] = {f, g};\n");
  EXPECT_EQ(function.target_lists.at("ts"), (std::vector<std::string>{"A", "B", "A"}));
  EXPECT_EQ(function.target_lists.at("fs"), (std::vector<std::string>{"f", "g"}));
  EXPECT_EQ(function.instructions[0].operands[1].kind, Kind::kLabel);
  EXPECT_EQ(function.instructions[0].operands[1].name, "ts");
  EXPECT_EQ(function.instructions[3].operands[2].name, "fs");
  EXPECT_EQ(function.instructions[4].operands[2].kind, Kind::kSymbol);
  EXPECT_EQ(function.instructions[4].operands[2].name, "table");
}

TEST(ParserTest, ReadsFunctionHeadersAndDirectives) {
  const Module module = ParseModule(
      ".visible .entry a(.param .u64 .ptr .global .align 16 p, .param .align 8 .b8 s[24], .param .u8 f)\n"
      ".maxntid 128, 2, 1\n.minnctapersm 3 .maxnreg 40 .reqnctapercluster 2, 1, 1 .explicitcluster\n{ ret; "
      "}\n"
      ".weak .func (.param .align 4 .b8 r[12]) b(.param .b32 x) .noreturn ;\n.extern .func c\n;\n"
      ".entry d() .reqntid 64 .pragma \"x\", \"y\"; { .pragma \"nounroll\"; ret; }\n"
      ".func (.reg .u32 r) e(.reg .f64 x) { cvt.rzi.u32.f64 r, x; ret; }");
  ASSERT_EQ(module.functions.size(), 5u);
  const Function& a = module.functions[0];
  EXPECT_TRUE(a.is_entry && a.is_visible && !a.is_declaration);
  EXPECT_EQ(a.maxntid[0], 128u);
  EXPECT_EQ(a.maxntid[1], 2u);
  EXPECT_EQ(a.minnctapersm, 3u);
  EXPECT_EQ(a.maxnreg, 40u);
  ASSERT_EQ(a.params.size(), 3u);
  EXPECT_EQ(a.params[0].type, Type::kU64);
  EXPECT_EQ(a.params[0].align, 8u);  // .ptr's alignment is the pointee's
  EXPECT_EQ(a.params[1].size, 24u);
  EXPECT_EQ(a.params[2].size, 1u);
  const Function& b = module.functions[1];
  EXPECT_TRUE(b.is_weak && b.is_declaration && b.noreturn && !b.is_entry);
  EXPECT_EQ(b.results.at(0).size, 12u);
  EXPECT_TRUE(module.functions[2].is_extern && module.functions[2].is_declaration);
  EXPECT_EQ(module.functions[3].reqntid[0], 64u);
  EXPECT_EQ(module.functions[3].reqntid[2], 1u);
  EXPECT_EQ(module.functions[3].pragmas, (std::vector<std::string>{"x", "y"})) << "not those of the body";
  EXPECT_EQ(module.functions[4].params[0].space, Space::kReg);
  EXPECT_EQ(module.functions[4].registers.size(), 2u);
}

TEST(ParserTest, DebugDirectivesLeaveNothing) {
  const Module module = ParseModule(
      ".file 1 \"a.cu\"\n.file 2 \"b.h\", 1700000000, 42\n"
      ".visible .entry k()\n{\n.loc 1 10 0\n$L__func_begin0:\n.loc 1 11 5\nret;\n"
      ".loc 2 5 1, function_name $L__info_string0, inlined_at 1 12 3\n"
      ".loc 2 5 1, function_name $L__info_string0+16, inlined_at 1 12 "
      "3\nexit;\n$L__tmp0:\n$L__func_end0:\n}\n"
      ".section .debug_str\n{\n$L__info_string0:\n.b8 95,90\n.b32 $L__tmp0\n}\n.section .debug_macinfo { "
      "}\n");
  ASSERT_EQ(module.functions.size(), 1u);
  EXPECT_EQ(module.functions[0].instructions.size(), 2u);
  EXPECT_EQ(module.functions[0].labels.at("$L__func_end0"), 2u);
}

TEST(ParserTest, CommentsAreSpaceAndCountLines) {
  const Function function = ParseBodyOf("/* a\nb */ ret; // c ; d\n/**/trap;//");
  ASSERT_EQ(function.instructions.size(), 2u);
  EXPECT_EQ(function.instructions[0].line, 7u);
  EXPECT_EQ(function.instructions[1].line, 8u);
}

TEST(ParserTest, LocalVariablesOfAllSpaces) {
  const Function function = ParseBodyOf(
      ".local .align 16 .b8 __local_depot0[64]; .shared .align 4 .f32 tile[2][8]; .shared .v4 .f32 four; "
      ".global .u32 kept = 7; .extern .shared .b8 dynamic[]; mov.u64 %rd1, tile;");
  ASSERT_EQ(function.locals.size(), 5u);
  EXPECT_EQ(function.locals[0].space, Space::kLocal);
  EXPECT_EQ(function.locals[0].align, 16u);
  EXPECT_EQ(function.locals[1].size, 64u);
  EXPECT_EQ(function.locals[2].align, 16u);
  EXPECT_EQ(function.locals[2].size, 16u);
  EXPECT_EQ(function.locals[3].init, (std::vector<uint8_t>{7, 0, 0, 0}));
  EXPECT_TRUE(function.locals[4].is_extern && function.locals[4].is_array);
  EXPECT_EQ(function.locals[4].size, 0u);
}

TEST(ParserTest, LocalsNeverHideModuleNames) {
  const Function function = ParseBodyOf(
      "{ .param .b32 table; st.param.b32 [table], 1; } mov.u64 %rd1, table;", ".global .u32 table[10];\n");
  EXPECT_EQ(function.instructions[1].operands[1].name, "table");
  EXPECT_NE(function.instructions[0].operands[0].name, "table");
  EXPECT_EQ(function.instructions[0].operands[0].name, function.locals.at(0).name);
}

TEST(ParserTest, AliasesNameTheirAliasee) {
  const Module module = ParseModule(
      ".visible .func other();\n.visible .func real() { ret; }\n.alias other, real;\n.entry k() { call "
      "other, (); ret; }");
  ASSERT_EQ(module.functions.size(), 2u);
  EXPECT_EQ(module.functions[1].instructions[0].operands[0].name, "real");
  EXPECT_EQ(module.aliases.at(0).name, "other");
}

TEST(ParserTest, TypesAreConsistent) {
  for (int i = 1; i <= static_cast<int>(Type::kSurfref); ++i) {
    const Type type = static_cast<Type>(i);
    EXPECT_EQ(TypeFromName(NameOf(type)), type);
  }
  EXPECT_EQ(TypeFromName("u31"), Type::kNone);
  EXPECT_EQ(TypeFromName(""), Type::kNone);
  EXPECT_EQ(SizeOf(Type::kBF16x2), 4u);
  EXPECT_EQ(SizeOf(Type::kB128), 16u);
  EXPECT_EQ(SizeOf(Type::kE5M2x2), 2u);
  EXPECT_EQ(SizeOf(Type::kPred), 0u);
}

}  // namespace
}  // namespace softgpu::ptx
