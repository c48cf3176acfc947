#include "softgpu/ptx/exec/format.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

namespace softgpu::exec {
namespace {

// Guards against formats that ask for gigabytes.
constexpr int kMaxField = 1 << 16;
// What one call prints at most; the rest is cut off.
constexpr size_t kMaxText = 16 << 20;

struct Conversion {
  std::string flags;
  int width = -1, precision = -1;
  std::string length;
  char letter = 0;
};

class Formatter {
 public:
  Formatter(std::string_view format, FormatArguments* arguments, std::string* text)
      : format_(format), arguments_(arguments), text_(text) {}

  bool Run(unsigned* count) {
    while (at_ < format_.size() && text_->size() < kMaxText) {
      char c = format_[at_];
      if (c != '%') {
        text_->push_back(c);
        ++at_;
        continue;
      }
      size_t begin = at_++;
      Conversion conversion;
      if (!Parse(&conversion)) return false;
      if (conversion.letter == '%') {
        text_->push_back('%');
      } else if (!IsKnown(conversion.letter)) {
        text_->append(format_.substr(begin, at_ - begin));
      } else if (!Convert(conversion)) {
        return false;
      }
    }
    *count = count_;
    return true;
  }

 private:
  static bool IsKnown(char c) { return c != 0 && std::strchr("diouxXcspaAeEfFgG", c) != nullptr; }

  char Peek() const { return at_ < format_.size() ? format_[at_] : 0; }

  bool Number(int* value) {
    if (Peek() == '*') {
      ++at_;
      uint64_t bits;
      if (!Next(4, &bits)) return false;
      *value = static_cast<int32_t>(bits);
      return true;
    }
    int number = 0;
    for (; Peek() >= '0' && Peek() <= '9'; ++at_) number = std::min(number * 10 + (Peek() - '0'), kMaxField);
    *value = number;
    return true;
  }

  bool Parse(Conversion* c) {
    while (Peek() != 0 && std::strchr("-+ #0", Peek())) c->flags.push_back(format_[at_++]);
    if (Peek() == '*' || (Peek() >= '1' && Peek() <= '9')) {
      if (!Number(&c->width)) return false;
      if (c->width < 0) {
        c->flags.push_back('-');
        c->width = c->width == INT32_MIN ? kMaxField : -c->width;
      }
      c->width = std::min(c->width, kMaxField);
    }
    if (Peek() == '.') {
      ++at_;
      if (!Number(&c->precision)) return false;
      c->precision = std::min(c->precision, kMaxField);
    }
    while (Peek() != 0 && std::strchr("hljztL", Peek())) c->length.push_back(format_[at_++]);
    c->letter = Peek();
    if (at_ < format_.size()) ++at_;
    return true;
  }

  bool Next(unsigned bytes, uint64_t* value) {
    offset_ = (offset_ + bytes - 1) / bytes * bytes;
    if (!arguments_->Read(offset_, bytes, value)) return false;
    offset_ += bytes;
    ++count_;
    return true;
  }

  // The host's printf does the work, with the format rebuilt from what was understood.
  template <typename T>
  void Print(const Conversion& c, const char* length, T value) {
    std::string format = "%" + c.flags;
    if (c.width >= 0) format += std::to_string(c.width);
    if (c.precision >= 0) format += "." + std::to_string(c.precision);
    format += length;
    format += c.letter;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-security"
    int size = std::snprintf(nullptr, 0, format.c_str(), value);
    if (size < 0) return;
    std::vector<char> buffer(static_cast<size_t>(size) + 1);
    std::snprintf(buffer.data(), buffer.size(), format.c_str(), value);
#pragma GCC diagnostic pop
    text_->append(buffer.data(), static_cast<size_t>(size));
  }

  bool Convert(const Conversion& c) {
    uint64_t bits;
    switch (c.letter) {
      case 's': {
        std::string string;
        if (!Next(8, &bits)) return false;
        if (bits != 0 && !arguments_->ReadString(bits, &string)) return false;
        Print(c, "", bits == 0 ? "(null)" : string.c_str());
        return true;
      }
      case 'p':
        if (!Next(8, &bits)) return false;
        Print(c, "", reinterpret_cast<void*>(bits));
        return true;
      case 'c':
        if (!Next(4, &bits)) return false;
        Print(c, "", static_cast<int>(bits));
        return true;
      case 'd':
      case 'i':
      case 'o':
      case 'u':
      case 'x':
      case 'X':
        return Integer(c);
      default: {
        if (!Next(8, &bits)) return false;
        double value;
        std::memcpy(&value, &bits, sizeof value);
        Print(c, "", value);
        return true;
      }
    }
  }

  bool Integer(const Conversion& c) {
    bool wide = c.length.find_first_of("ljzt") != std::string::npos;
    uint64_t bits;
    if (!Next(wide ? 8 : 4, &bits)) return false;
    if (wide) {
      Print(c, "ll", static_cast<long long>(bits));
    } else {
      Print(c, c.length == "hh" ? "hh" : c.length == "h" ? "h" : "", static_cast<int>(bits));
    }
    return true;
  }

  std::string_view format_;
  FormatArguments* arguments_;
  std::string* text_;
  size_t at_ = 0;
  uint64_t offset_ = 0;
  unsigned count_ = 0;
};

}  // namespace

bool FormatText(std::string_view format, FormatArguments* arguments, std::string* text, unsigned* count) {
  return Formatter(format, arguments, text).Run(count);
}

}  // namespace softgpu::exec
