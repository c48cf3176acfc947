// The declarations of variables in PTX text. Not a parser: function bodies are skipped, and what is declared
// at module scope is all that counts.
#include <cctype>
#include <string>

#include "replay/device_code.h"

namespace stasis::replay {

namespace {

// Words (identifiers, directives, numbers) and single characters; comments and strings are left out.
class Tokens {
 public:
  explicit Tokens(std::string_view text) : text_(text) {}

  // Empty at the end.
  std::string_view Next() {
    SkipBlank();
    if (at_ >= text_.size()) return {};
    const size_t begin = at_;
    while (at_ < text_.size() && IsWord(text_[at_])) ++at_;
    if (at_ == begin) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  std::string_view Peek() {
    const size_t before = at_;
    const std::string_view token = Next();
    at_ = before;
    return token;
  }
  // Behind the bracket that closes one already read; false when it is never closed.
  bool SkipGroup(std::string_view open, std::string_view close) {
    for (size_t depth = 1; depth > 0;) {
      const std::string_view token = Next();
      if (token.empty()) return false;
      if (token == open) ++depth;
      if (token == close) --depth;
    }
    return true;
  }

 private:
  static bool IsWord(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%' || c == '.';
  }
  void SkipTo(std::string_view end) {
    const size_t found = text_.find(end, at_);
    at_ = found == std::string_view::npos ? text_.size() : found + end.size();
  }
  void SkipBlank() {
    while (at_ < text_.size()) {
      const std::string_view rest = text_.substr(at_);
      if (rest.starts_with("//")) {
        SkipTo("\n");
      } else if (rest.starts_with("/*")) {
        at_ += 2;
        SkipTo("*/");
      } else if (rest[0] == '"') {
        ++at_;
        SkipTo("\"");
      } else if (std::isspace(static_cast<unsigned char>(rest[0]))) {
        ++at_;
      } else {
        return;
      }
    }
  }

  const std::string_view text_;
  size_t at_ = 0;
};

// ".global" has been read: everything up to the semicolon.
bool ReadVariables(Tokens* tokens, DeviceCodeFacts* facts) {
  bool named = false;  // the name of this declarator has been read
  for (;;) {
    const std::string_view token = tokens->Next();
    if (token.empty()) return false;
    if (token == ";") return true;
    if (token == ",") {
      named = false;
    } else if (token == ".align") {
      tokens->Next();
    } else if (token == "(" || token == "[" || token == "{") {
      if (!tokens->SkipGroup(token, token == "(" ? ")" : token == "[" ? "]" : "}")) return false;
    } else if (!named && token[0] != '.') {
      facts->variables.emplace_back(token);
      named = true;
    }
  }
}

// ".func" has been read, of a function that is defined elsewhere.
bool ReadExternFunction(Tokens* tokens, DeviceCodeFacts* facts) {
  if (tokens->Peek() == "(") {
    tokens->Next();
    if (!tokens->SkipGroup("(", ")")) return false;
  }
  const std::string_view name = tokens->Next();
  if (IsHiddenStateFunction(name)) facts->hidden_state = name;
  return true;
}

}  // namespace

Result<DeviceCodeFacts> ReadPtx(std::string_view text) {
  DeviceCodeFacts facts;
  Tokens tokens(text);
  bool is_extern = false, whole = true;
  for (std::string_view token = tokens.Next(); whole && !token.empty(); token = tokens.Next()) {
    if (token == ".extern") {
      is_extern = true;
    } else if (token == ".global" || token == ".const") {
      whole = ReadVariables(&tokens, &facts);
      is_extern = false;
    } else if (token == ".func" && is_extern) {
      whole = ReadExternFunction(&tokens, &facts);
    } else if (token == ";") {
      is_extern = false;
    } else if (token == "{") {
      whole = tokens.SkipGroup("{", "}");
      is_extern = false;
    } else if (token == "(") {
      whole = tokens.SkipGroup("(", ")");
    }
  }
  if (!whole) return Errorf(StatusCode::kCorrupt, "PTX: the text ends inside of a declaration");
  MergeFacts({}, &facts);
  return facts;
}

}  // namespace stasis::replay
