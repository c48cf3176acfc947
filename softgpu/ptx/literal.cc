#include "softgpu/ptx/literal.h"

#include <bit>
#include <charconv>
#include <string>

#include "softgpu/ptx/lexer.h"

namespace softgpu::ptx {
namespace {

using stasis::Status;

constexpr int kMaxNesting = 64;
constexpr uint64_t kWarpSize = 32;

Literal Int(uint64_t bits, bool is_unsigned) { return {Literal::Kind::kInt, is_unsigned, bits}; }
Literal F64(double value) { return {Literal::Kind::kF64, false, std::bit_cast<uint64_t>(value)}; }
double ValueOf(const Literal& literal) { return std::bit_cast<double>(literal.bits); }

double AsDouble(const Literal& literal) {
  if (literal.kind == Literal::Kind::kF64) return ValueOf(literal);
  if (literal.kind == Literal::Kind::kF32) return std::bit_cast<float>(static_cast<uint32_t>(literal.bits));
  return literal.is_unsigned ? static_cast<double>(literal.bits)
                             : static_cast<double>(static_cast<int64_t>(literal.bits));
}

bool ParseBits(std::string_view digits, int base, uint64_t* bits) {
  const char* end = digits.data() + digits.size();
  const std::from_chars_result result = std::from_chars(digits.data(), end, *bits, base);
  return result.ec == std::errc() && result.ptr == end;
}

bool ParseDecimalFloat(std::string_view text, Literal* literal) {
  double value = 0;
  const char* end = text.data() + text.size();
  const std::from_chars_result result = std::from_chars(text.data(), end, value);
  if (result.ptr != end || result.ec != std::errc()) return false;
  *literal = F64(value);
  return true;
}

bool ParseInteger(std::string_view text, int base, Literal* literal) {
  const bool suffixed = !text.empty() && text.back() == 'U';
  if (suffixed) text.remove_suffix(1);
  literal->kind = Literal::Kind::kInt;
  if (!ParseBits(text, base, &literal->bits)) return false;
  literal->is_unsigned = suffixed || (literal->bits >> 63) != 0;
  return true;
}

bool ParsePattern(std::string_view digits, Literal::Kind kind, Literal* literal) {
  literal->kind = kind;
  return digits.size() == (kind == Literal::Kind::kF32 ? 8 : 16) && ParseBits(digits, 16, &literal->bits);
}

// Recursive descent by precedence. Depth counts parentheses and unary operators, the only ways to nest.
class Evaluator {
 public:
  explicit Evaluator(Cursor& in) : in_(in) {}

  Status Ternary(Literal* value) {
    RETURN_IF_ERROR(Binary(0, value));
    if (!in_.At('?')) return Status();
    RETURN_IF_ERROR(Enter());
    in_.Advance();
    Literal yes, no;
    RETURN_IF_ERROR(Ternary(&yes));
    RETURN_IF_ERROR(in_.Expect(':'));
    RETURN_IF_ERROR(Ternary(&no));
    *value = AsDouble(*value) != 0 ? yes : no;
    --depth_;
    return Status();
  }

  Status Unary(Literal* value);

 private:
  Status Enter() {
    if (++depth_ > kMaxNesting) return in_.Error("expression is nested too deeply");
    return Status();
  }

  Status Binary(int level, Literal* value);
  Status Apply(std::string_view op, const Literal& right, Literal* value);
  Status Primary(Literal* value);
  Status Parenthesised(Literal* value);

  Cursor& in_;
  int depth_ = 0;
};

constexpr int kLevels = 10;

// 0 binds loosest; -1 is no binary operator.
int LevelOf(const Token& token) {
  if (token.kind != Token::Kind::kPunct) return -1;
  static constexpr std::string_view kOperators[kLevels] = {
      "|| ", "&& ", "| ", "^ ", "& ", "== != ", "< > <= >= ", "<< >> ", "+ - ", "* / % "};
  for (int level = 0; level < kLevels; ++level) {
    const std::string_view row = kOperators[level];
    for (size_t at = 0; at < row.size();) {
      const size_t end = row.find(' ', at);
      if (row.substr(at, end - at) == token.text) return level;
      at = end + 1;
    }
  }
  return -1;
}

Status Evaluator::Binary(int level, Literal* value) {
  RETURN_IF_ERROR(Unary(value));
  for (;;) {
    const int next = LevelOf(in_.now());
    if (next < level) return Status();
    const std::string_view op = in_.now().text;
    in_.Advance();
    Literal right;
    RETURN_IF_ERROR(Enter());
    RETURN_IF_ERROR(Binary(next + 1, &right));
    --depth_;
    RETURN_IF_ERROR(Apply(op, right, value));
  }
}

bool ApplyDouble(std::string_view op, double a, double b, Literal* value) {
  if (op == "+")
    *value = F64(a + b);
  else if (op == "-")
    *value = F64(a - b);
  else if (op == "*")
    *value = F64(a * b);
  else if (op == "/")
    *value = F64(a / b);
  else if (op == "<")
    *value = Int(a < b, false);
  else if (op == ">")
    *value = Int(a > b, false);
  else if (op == "<=")
    *value = Int(a <= b, false);
  else if (op == ">=")
    *value = Int(a >= b, false);
  else if (op == "==")
    *value = Int(a == b, false);
  else if (op == "!=")
    *value = Int(a != b, false);
  else
    return false;
  return true;
}

// Shifts by 64 or more give what shifting one bit at a time would.
uint64_t ShiftRight(uint64_t a, uint64_t count, bool is_unsigned) {
  if (count > 63) return is_unsigned || (a >> 63) == 0 ? 0 : ~uint64_t{0};
  return is_unsigned ? a >> count : static_cast<uint64_t>(static_cast<int64_t>(a) >> count);
}

// The caller has ruled out zero; -1 is taken apart because the most negative number has no opposite.
uint64_t Divide(uint64_t a, uint64_t b, bool is_unsigned, bool remainder) {
  if (is_unsigned) return remainder ? a % b : a / b;
  const int64_t x = static_cast<int64_t>(a), y = static_cast<int64_t>(b);
  if (y == -1) return remainder ? 0 : 0 - a;
  return static_cast<uint64_t>(remainder ? x % y : x / y);
}

bool ApplyBits(std::string_view op, uint64_t a, uint64_t b, bool is_unsigned, Literal* value) {
  const int64_t x = static_cast<int64_t>(a), y = static_cast<int64_t>(b);
  const bool less = is_unsigned ? a < b : x < y;
  if (op == "+")
    *value = Int(a + b, is_unsigned);
  else if (op == "-")
    *value = Int(a - b, is_unsigned);
  else if (op == "*")
    *value = Int(a * b, is_unsigned);
  else if (op == "&")
    *value = Int(a & b, is_unsigned);
  else if (op == "|")
    *value = Int(a | b, is_unsigned);
  else if (op == "^")
    *value = Int(a ^ b, is_unsigned);
  else if (op == "<")
    *value = Int(less, false);
  else if (op == ">=")
    *value = Int(!less, false);
  else if (op == ">")
    *value = Int(!less && a != b, false);
  else if (op == "<=")
    *value = Int(less || a == b, false);
  else if (op == "==")
    *value = Int(a == b, false);
  else if (op == "!=")
    *value = Int(a != b, false);
  else if (op == "&&")
    *value = Int(a != 0 && b != 0, false);
  else if (op == "||")
    *value = Int(a != 0 || b != 0, false);
  else
    return false;
  return true;
}

Status Evaluator::Apply(std::string_view op, const Literal& right, Literal* value) {
  const Literal left = *value;
  if (left.kind != Literal::Kind::kInt || right.kind != Literal::Kind::kInt) {
    if (ApplyDouble(op, AsDouble(left), AsDouble(right), value)) return Status();
    return in_.Error("operator needs integers");
  }
  if (op == "<<") {
    *value = Int(right.bits > 63 ? 0 : left.bits << right.bits, left.is_unsigned);
    return Status();
  }
  if (op == ">>") {
    *value = Int(ShiftRight(left.bits, right.bits, left.is_unsigned), left.is_unsigned);
    return Status();
  }
  const bool is_unsigned = left.is_unsigned || right.is_unsigned;
  if (ApplyBits(op, left.bits, right.bits, is_unsigned, value)) return Status();
  if (right.bits == 0) return in_.Error("division by zero");
  *value = Int(Divide(left.bits, right.bits, is_unsigned, op == "%"), is_unsigned);
  return Status();
}

Literal Negate(Literal value) {
  if (value.kind == Literal::Kind::kF32)
    value.bits ^= uint64_t{1} << 31;
  else if (value.kind == Literal::Kind::kF64)
    value.bits ^= uint64_t{1} << 63;
  else
    value.bits = 0 - value.bits;
  return value;
}

Status Evaluator::Unary(Literal* value) {
  const char op = in_.At('-') ? '-' : in_.At('+') ? '+' : in_.At('~') ? '~' : in_.At('!') ? '!' : '\0';
  if (op == '\0') return Primary(value);
  RETURN_IF_ERROR(Enter());
  in_.Advance();
  RETURN_IF_ERROR(Unary(value));
  --depth_;
  if (op == '-') *value = Negate(*value);
  if (op == '!') *value = Int(AsDouble(*value) == 0, false);
  if (op == '~' && value->kind != Literal::Kind::kInt) return in_.Error("operator needs an integer");
  if (op == '~') value->bits = ~value->bits;
  return Status();
}

Status Evaluator::Primary(Literal* value) {
  if (in_.At('(')) return Parenthesised(value);
  if (in_.AtName() && in_.now().text == "WARP_SZ") {
    *value = Int(kWarpSize, false);
    in_.Advance();
    return Status();
  }
  if (!in_.AtNumber()) return in_.Error("expected a constant");
  if (!ParseLiteral(in_.now().text, value)) return in_.Error("malformed number");
  in_.Advance();
  return Status();
}

// "(expression)", or a cast: "(.s64) x", "(.u64) x".
Status Evaluator::Parenthesised(Literal* value) {
  RETURN_IF_ERROR(Enter());
  in_.Advance();
  const bool to_unsigned = in_.AtDot("u64");
  const bool cast = to_unsigned || in_.AtDot("s64");
  if (cast) {
    in_.Advance();
    RETURN_IF_ERROR(in_.Expect(')'));
    RETURN_IF_ERROR(Unary(value));
    if (value->kind != Literal::Kind::kInt) return in_.Error("cast needs an integer");
    value->is_unsigned = to_unsigned;
  } else {
    RETURN_IF_ERROR(Ternary(value));
    RETURN_IF_ERROR(in_.Expect(')'));
  }
  --depth_;
  return Status();
}

}  // namespace

bool ParseLiteral(std::string_view text, Literal* literal) {
  *literal = Literal();
  if (text.empty()) return false;
  const char base = text.size() > 1 && text[0] == '0' ? static_cast<char>(text[1] | 0x20) : '\0';
  if (base == 'x') return ParseInteger(text.substr(2), 16, literal);
  if (base == 'b') return ParseInteger(text.substr(2), 2, literal);
  if (base == 'f') return ParsePattern(text.substr(2), Literal::Kind::kF32, literal);
  if (base == 'd') return ParsePattern(text.substr(2), Literal::Kind::kF64, literal);
  if (text.find_first_of(".eE") != std::string_view::npos) return ParseDecimalFloat(text, literal);
  return ParseInteger(text, text[0] == '0' && text != "0" && text != "0U" ? 8 : 10, literal);
}

Status ParseConstant(Cursor& in, Literal* value) { return Evaluator(in).Ternary(value); }

Status ParseUnaryConstant(Cursor& in, Literal* value) { return Evaluator(in).Unary(value); }

}  // namespace softgpu::ptx
