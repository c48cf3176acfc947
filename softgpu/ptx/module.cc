#include "softgpu/ptx/module.h"

#include <algorithm>
#include <array>

namespace softgpu::ptx {
namespace {

struct TypeRow {
  std::string_view name;
  uint8_t size;
};

// In the order of the enumeration. References to textures, samplers and surfaces hold a 64-bit handle.
constexpr std::array<TypeRow, 31> kTypes = {{
    {"", 0},        {"u8", 1},    {"u16", 2},    {"u32", 4},    {"u64", 8},    {"s8", 1},
    {"s16", 2},     {"s32", 4},   {"s64", 8},    {"b8", 1},     {"b16", 2},    {"b32", 4},
    {"b64", 8},     {"b128", 16}, {"f16", 2},    {"f16x2", 4},  {"bf16", 2},   {"bf16x2", 4},
    {"tf32", 4},    {"f32", 4},   {"f64", 8},    {"pred", 0},   {"u16x2", 4},  {"s16x2", 4},
    {"e4m3", 1},    {"e5m2", 1},  {"e4m3x2", 2}, {"e5m2x2", 2}, {"texref", 8}, {"samplerref", 8},
    {"surfref", 8},
}};
static_assert(static_cast<size_t>(Type::kSurfref) + 1 == kTypes.size());

const TypeRow& RowOf(Type type) { return kTypes[static_cast<size_t>(type)]; }

}  // namespace

unsigned SizeOf(Type type) { return RowOf(type).size; }

std::string_view NameOf(Type type) { return RowOf(type).name; }

Type TypeFromName(std::string_view word) {
  if (word.size() < 2) return Type::kNone;
  for (size_t i = 1; i < kTypes.size(); ++i) {
    if (kTypes[i].name == word) return static_cast<Type>(i);
  }
  return Type::kNone;
}

bool Instruction::Has(std::string_view word) const {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::string Instruction::Mnemonic() const {
  std::string text = opcode;
  for (const std::string& word : words) text.append(".").append(word);
  return text;
}

}  // namespace softgpu::ptx
