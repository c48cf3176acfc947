#include "softgpu/ptx/lexer.h"

#include <array>

#include "softgpu/ptx/literal.h"

namespace softgpu::ptx {
namespace {

using stasis::Status;
using stasis::StatusCode;

constexpr uint8_t kSpace = 1, kStart = 2, kFollow = 4, kDigit = 8, kHex = 16;

constexpr std::array<uint8_t, 256> MakeClasses() {
  std::array<uint8_t, 256> classes{};
  for (int c = 'a'; c <= 'z'; ++c) classes[c] = classes[c - 'a' + 'A'] = kStart | kFollow;
  for (int c = '0'; c <= '9'; ++c) classes[c] = kDigit | kFollow | kHex;
  for (int c = 'a'; c <= 'f'; ++c) classes[c] |= kHex, classes[c - 'a' + 'A'] |= kHex;
  classes['_'] = classes['$'] = kStart | kFollow;
  classes['%'] = kStart;
  for (char c : {' ', '\t', '\r', '\f', '\v'}) classes[static_cast<uint8_t>(c)] = kSpace;
  return classes;
}
constexpr std::array<uint8_t, 256> kClasses = MakeClasses();

bool Is(char c, uint8_t mask) { return (kClasses[static_cast<uint8_t>(c)] & mask) != 0; }

size_t RunLength(std::string_view text, size_t from, uint8_t mask) {
  size_t i = from;
  while (i < text.size() && Is(text[i], mask)) ++i;
  return i - from;
}

// Length of the word after a dot: letters, digits and '::'.
size_t WordLength(std::string_view text, size_t from) {
  size_t i = from;
  while (i < text.size()) {
    if (Is(text[i], kFollow)) {
      ++i;
    } else if (text.substr(i, 2) == "::") {
      i += 2;
    } else {
      break;
    }
  }
  return i - from;
}

// Length of the decimal digits, fraction and exponent at the front.
size_t DecimalLength(std::string_view text) {
  size_t length = RunLength(text, 0, kDigit);
  if (length < text.size() && text[length] == '.') length += 1 + RunLength(text, length + 1, kDigit);
  if (length < text.size() && (text[length] == 'e' || text[length] == 'E')) {
    size_t exponent = length + 1;
    if (exponent < text.size() && (text[exponent] == '+' || text[exponent] == '-')) ++exponent;
    const size_t digits = RunLength(text, exponent, kDigit);
    if (digits != 0) length = exponent + digits;
  }
  return length;
}

size_t NumberLength(std::string_view text) {
  const char base = text.size() > 1 && text[0] == '0' ? static_cast<char>(text[1] | 0x20) : '\0';
  const bool prefixed = base == 'x' || base == 'f' || base == 'd' || base == 'b';
  size_t length = prefixed ? 2 + RunLength(text, 2, kHex) : DecimalLength(text);
  if (length < text.size() && text[length] == 'U') ++length;
  return length;
}

}  // namespace

void Cursor::Take(Token::Kind kind, size_t length) {
  token_.kind = kind;
  token_.text = text_.substr(at_, length);
  at_ += length;
}

// Steps over one comment; false when there is none. An unclosed one ends the text.
bool Cursor::SkipComment() {
  const std::string_view mark = text_.substr(at_, 2);
  if (mark == "//") {
    const size_t end = text_.find('\n', at_);
    at_ = end == std::string_view::npos ? text_.size() : end;
    return true;
  }
  if (mark != "/*") return false;
  size_t end = text_.find("*/", at_ + 2);
  end = end == std::string_view::npos ? text_.size() : end + 2;
  for (; at_ < end; ++at_) line_ += text_[at_] == '\n';
  return true;
}

void Cursor::SkipSpace() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == '\n') {
      ++line_;
      ++at_;
    } else if (Is(c, kSpace)) {
      ++at_;
    } else if (c != '/' || !SkipComment()) {
      return;
    }
  }
}

void Cursor::LexNumber() {
  const size_t length = NumberLength(text_.substr(at_));
  const bool runs_on = at_ + length < text_.size() && Is(text_[at_ + length], kFollow);
  Take(runs_on ? Token::Kind::kBad : Token::Kind::kNumber, length);
}

void Cursor::LexString() {
  const size_t end = text_.find_first_of("\"\n", at_ + 1);
  if (end == std::string_view::npos || text_[end] != '"') return Take(Token::Kind::kBad, 1);
  Take(Token::Kind::kString, end + 1 - at_);
  token_.text = token_.text.substr(1, token_.text.size() - 2);
}

void Cursor::LexPunct() {
  static constexpr std::string_view kPairs[] = {"<<", ">>", "<=", ">=", "==", "!=", "&&", "||"};
  for (std::string_view pair : kPairs) {
    if (text_.substr(at_, 2) == pair) return Take(Token::Kind::kPunct, 2);
  }
  const char c = text_[at_];
  Take(c > ' ' && c < 0x7f ? Token::Kind::kPunct : Token::Kind::kBad, 1);
}

void Cursor::Advance() {
  const size_t before = at_;
  SkipSpace();
  token_.glued = at_ == before;
  token_.line = line_;
  if (at_ >= text_.size()) return Take(Token::Kind::kEnd, 0);
  const char c = text_[at_];
  // A '%' that begins no name is the remainder operator.
  if (c == '%' && RunLength(text_, at_ + 1, kFollow) == 0) return LexPunct();
  if (Is(c, kStart)) return Take(Token::Kind::kName, 1 + RunLength(text_, at_ + 1, kFollow));
  if (Is(c, kDigit)) return LexNumber();
  if (c == '"') return LexString();
  const size_t word = c == '.' ? WordLength(text_, at_ + 1) : 0;
  if (word == 0) return LexPunct();
  Take(Token::Kind::kDot, 1 + word);
  token_.text.remove_prefix(1);
}

bool Cursor::Accept(char punct) {
  if (!At(punct)) return false;
  Advance();
  return true;
}

bool Cursor::AcceptDot(std::string_view word) {
  if (!AtDot(word)) return false;
  Advance();
  return true;
}

Status Cursor::Expect(char punct) {
  if (Accept(punct)) return Status();
  return Error(std::string("expected '") + punct + "'");
}

Status Cursor::ExpectName(std::string_view* name) {
  if (!AtName()) return Error("expected a name");
  *name = token_.text;
  Advance();
  return Status();
}

Status Cursor::ExpectCount(uint64_t limit, uint64_t* value) {
  Literal literal;
  if (!AtNumber() || !ParseLiteral(token_.text, &literal) || literal.kind != Literal::Kind::kInt) {
    return Error("expected a number");
  }
  if (literal.bits > limit) return Error("expected a smaller number");
  *value = literal.bits;
  Advance();
  return Status();
}

Status Cursor::Error(std::string_view expectation) const {
  // Long enough to find the place by, short enough for one line of a log.
  constexpr size_t kShown = 60;
  std::string message(expectation);
  if (AtEnd()) {
    message += ", found the end of the text";
  } else if (token_.kind == Token::Kind::kBad) {
    message += ", found what is no token of PTX";
  } else {
    message.append(", found '").append(AtDot() ? "." : "").append(token_.text.substr(0, kShown)).append("'");
  }
  return ErrorAt(token_.line, message);
}

Status Cursor::ErrorAt(uint32_t line, std::string_view message) {
  return Status(StatusCode::kCorrupt, "line " + std::to_string(line) + ": " + std::string(message));
}

}  // namespace softgpu::ptx
