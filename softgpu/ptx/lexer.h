// PTX text to tokens, one at a time and without copying: PTX ISA 9.0, chapter 4.
#ifndef SOFTGPU_PTX_LEXER_H_
#define SOFTGPU_PTX_LEXER_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace softgpu::ptx {

struct Token {
  enum class Kind : uint8_t {
    kEnd,
    kName,    // identifier, with its leading % or $
    kDot,     // ".word"; text is without the dot, '::' belongs to the word
    kNumber,  // any literal, without sign, as written
    kString,  // text is without the quotes
    kPunct,   // one character, or one of << >> <= >= == != && ||
    kBad,     // no token of the language begins here
  };
  Kind kind = Kind::kEnd;
  bool glued = false;  // nothing stands between this token and the one before
  uint32_t line = 1;
  std::string_view text;
};

// A position in a PTX text: the current token, and the usual questions about it. The text must outlive the
// cursor and every token's text.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) { Advance(); }

  const Token& now() const { return token_; }
  uint32_t line() const { return token_.line; }
  bool AtEnd() const { return token_.kind == Token::Kind::kEnd; }
  bool AtName() const { return token_.kind == Token::Kind::kName; }
  bool AtDot() const { return token_.kind == Token::Kind::kDot; }
  bool AtNumber() const { return token_.kind == Token::Kind::kNumber; }
  bool At(char punct) const {
    return token_.kind == Token::Kind::kPunct && token_.text.size() == 1 && token_.text[0] == punct;
  }
  bool AtDot(std::string_view word) const { return AtDot() && token_.text == word; }

  void Advance();
  // Steps over the token when it is this one.
  bool Accept(char punct);
  bool AcceptDot(std::string_view word);
  // The same, but anything else is an error.
  stasis::Status Expect(char punct);
  stasis::Status ExpectName(std::string_view* name);
  // A number between 0 and `limit`.
  stasis::Status ExpectCount(uint64_t limit, uint64_t* value);

  // kCorrupt: "line N: <expectation>, found 'token'".
  stasis::Status Error(std::string_view expectation) const;
  // kCorrupt: "line N: <message>" for a token already passed.
  static stasis::Status ErrorAt(uint32_t line, std::string_view message);

 private:
  void SkipSpace();
  bool SkipComment();
  void Take(Token::Kind kind, size_t length);
  void LexNumber();
  void LexString();
  void LexPunct();

  std::string_view text_;
  size_t at_ = 0;
  uint32_t line_ = 1;
  Token token_;
};

}  // namespace softgpu::ptx

#endif  // SOFTGPU_PTX_LEXER_H_
