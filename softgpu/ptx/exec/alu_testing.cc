#include "softgpu/ptx/exec/alu_testing.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

namespace softgpu::exec {
namespace {

// Expands the first {a,b,...} of the pattern and, through itself, the others.
void Expand(const std::string& pattern, std::vector<std::string>* out) {
  size_t open = pattern.find('{');
  if (open == std::string::npos) {
    out->push_back(pattern);
    return;
  }
  size_t close = pattern.find('}', open);
  std::stringstream choices(pattern.substr(open + 1, close - open - 1) + ",");
  for (std::string choice; std::getline(choices, choice, ',');) {
    Expand(pattern.substr(0, open) + choice + pattern.substr(close + 1), out);
  }
}

}  // namespace

ptx::Instruction Mnemonic(std::string_view text, uint8_t lut) {
  ptx::Instruction i;
  std::stringstream words{std::string(text)};
  std::getline(words, i.opcode, '.');
  for (std::string word; std::getline(words, word, '.');) {
    i.words.push_back(word);
    ptx::Type type = ptx::TypeFromName(word);
    if (type != ptx::Type::kNone) i.types.push_back(type);
  }
  if (i.opcode == "lop3") {
    i.operands.resize(5);
    i.operands[4].kind = ptx::Operand::Kind::kInt;
    i.operands[4].bits = lut;
  }
  return i;
}

std::vector<std::string> AllMnemonics() {
  std::ifstream file(SOFTGPU_ALU_MNEMONICS);
  EXPECT_TRUE(file.good()) << SOFTGPU_ALU_MNEMONICS;
  std::set<std::string> all;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::stringstream words(line);
    std::string opcode, pattern;
    words >> opcode;
    opcode.pop_back();  // the colon
    while (words >> pattern) {
      std::vector<std::string> expanded;
      Expand(pattern, &expanded);
      for (const std::string& e : expanded) all.insert(opcode + e);
    }
  }
  return {all.begin(), all.end()};
}

std::vector<Isa> RunningIsas() {
  std::vector<Isa> isas;
  for (Isa isa : {Isa::kV2, Isa::kV3, Isa::kV4}) {
    if (IsaRuns(isa)) isas.push_back(isa);
  }
  return isas;
}

AluOp Resolved(std::string_view text, Isa isa, uint8_t lut) {
  stasis::Result<AluOp> op = FindAluForTest(Mnemonic(text, lut), isa);
  if (op.ok()) return *op;
  ADD_FAILURE() << text << ": " << op.status().ToString();
  AluOp none;
  none.lane = nullptr;
  return none;
}

std::vector<uint64_t> IntegerEdges(unsigned bits, unsigned random) {
  std::set<uint64_t> values = {
      0, 1, 2, 3, 5, 7, 31, 32, 33, 63, 64, 65, 127, 255, 0x5555555555555555, 0xaaaaaaaaaaaaaaaa};
  for (unsigned b : {7u, 8u, 15u, 16u, 24u, 31u, 32u, 47u, 62u, 63u}) {
    for (uint64_t delta : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}}) {
      values.insert((uint64_t{1} << b) + delta);
      values.insert(~((uint64_t{1} << b) + delta));
    }
  }
  values.insert(~uint64_t{0});
  std::mt19937_64 engine(bits);
  for (unsigned i = 0; i < random; ++i) values.insert(engine() >> (engine() % bits));
  std::set<uint64_t> cut;
  for (uint64_t v : values) cut.insert(bits == 64 ? v : v & ((uint64_t{1} << bits) - 1));
  return {cut.begin(), cut.end()};
}

std::vector<uint64_t> FloatEdges(unsigned bits, unsigned exponent_bits, unsigned random) {
  unsigned mantissa = bits - 1 - exponent_bits;
  uint64_t top = (uint64_t{1} << exponent_bits) - 1, bias = top >> 1, ones = (uint64_t{1} << mantissa) - 1;
  std::set<uint64_t> magnitudes;
  for (uint64_t exponent :
       {uint64_t{0}, uint64_t{1}, uint64_t{2}, uint64_t{24}, bias - 25, bias - 2,  bias - 1,  bias,
        bias + 1,    bias + 7,    bias + 8,    bias + 15,    bias + 23, bias + 24, bias + 31, bias + 32,
        bias + 62,   bias + 63,   bias + 64,   top - 2,      top - 1,   top}) {
    if (exponent > top) continue;
    for (uint64_t fraction :
         {uint64_t{0}, uint64_t{1}, ones >> 1, (ones >> 1) + 1, (ones >> 1) + 2, ones - 1, ones, ones / 3}) {
      magnitudes.insert(exponent << mantissa | (fraction & ones));
    }
  }
  std::mt19937_64 engine(bits + exponent_bits);
  for (unsigned i = 0; i < random; ++i) magnitudes.insert(engine() >> (65 - bits));
  std::vector<uint64_t> values;
  for (uint64_t m : magnitudes) {
    values.push_back(m);
    values.push_back(m | uint64_t{1} << (bits - 1));
  }
  return values;
}

}  // namespace softgpu::exec
