// Literals and constant expressions: PTX ISA 9.0, sections 4.5 and 4.6.
#ifndef SOFTGPU_PTX_LITERAL_H_
#define SOFTGPU_PTX_LITERAL_H_

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace softgpu::ptx {

class Cursor;

struct Literal {
  enum class Kind : uint8_t { kInt, kF32, kF64 };
  Kind kind = Kind::kInt;
  bool is_unsigned = false;  // of an integer: suffix U, or too large for a signed one
  uint64_t bits = 0;         // two's complement, or the IEEE pattern (single: the low 32 bits)
};

// One literal without sign, as a token holds it; false when it is malformed or does not fit 64 bits.
bool ParseLiteral(std::string_view text, Literal* literal);

// A constant expression at the cursor, evaluated as the standard lays down: 64-bit integers, signed unless an
// operand is unsigned, or double precision. Nesting is bounded.
stasis::Status ParseConstant(Cursor& in, Literal* value);
// The same without binary operators outside of parentheses: what may follow '+' or '-' in an address.
stasis::Status ParseUnaryConstant(Cursor& in, Literal* value);

}  // namespace softgpu::ptx

#endif  // SOFTGPU_PTX_LITERAL_H_
