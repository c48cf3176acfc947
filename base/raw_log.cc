#include "base/raw_log.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>

namespace stasis {
namespace {

// Set at most a few times at start and read for every line; no other memory depends on them, so relaxed is
// enough.
constinit std::atomic<int> level_limit{static_cast<int>(LogLevel::kWarning)};
constinit std::atomic<int> log_fd{STDERR_FILENO};
constinit std::atomic<const char*> log_name{"stasis"};

// Appends to a buffer of fixed size and remembers whether everything fitted.
class Sink {
 public:
  Sink(char* buffer, size_t size) : buffer_(buffer), room_(size - 1) {}

  void Put(char c) {
    if (length_ < room_) {
      buffer_[length_++] = c;
    } else {
      truncated_ = true;
    }
  }
  void Put(const char* text, size_t length) {
    for (size_t i = 0; i < length; i++) Put(text[i]);
  }
  size_t Finish() {
    if (truncated_) memcpy(buffer_ + length_ - 3, "...", 3);
    buffer_[length_] = '\0';
    return length_;
  }

 private:
  char* buffer_;
  size_t room_;
  size_t length_ = 0;
  bool truncated_ = false;
};

struct Spec {
  bool left = false;
  bool zero = false;
  int width = 0;
  int precision = -1;  // strings only
  int size = 4;        // bytes of an integer argument
  char conversion = '\0';
};

// A va_list cannot be passed by reference portably; inside a struct it can.
struct Arguments {
  va_list list;
};

void Pad(Sink& sink, char with, int count) {
  for (int i = 0; i < count; i++) sink.Put(with);
}

void PutPadded(Sink& sink, const Spec& spec, const char* prefix, const char* text, int length) {
  int prefix_length = static_cast<int>(strlen(prefix));
  int padding = spec.width - length - prefix_length;
  if (!spec.left && !spec.zero) Pad(sink, ' ', padding);
  sink.Put(prefix, static_cast<size_t>(prefix_length));
  if (!spec.left && spec.zero) Pad(sink, '0', padding);
  sink.Put(text, static_cast<size_t>(length));
  if (spec.left) Pad(sink, ' ', padding);
}

void PutNumber(Sink& sink, const Spec& spec, const char* prefix, uint64_t value, unsigned base) {
  const char* digits = spec.conversion == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
  char text[20];  // a 64-bit value in decimal
  char* end = text + sizeof text;
  char* begin = end;
  do {
    *--begin = digits[value % base];
    value /= base;
  } while (value != 0);
  PutPadded(sink, spec, prefix, begin, static_cast<int>(end - begin));
}

// Narrow arguments were promoted to int by the caller; they are cut back to their own width here.
int64_t SignedArgument(Arguments& args, int size) {
  if (size == 8) return va_arg(args.list, int64_t);
  int value = va_arg(args.list, int);
  if (size == 1) return static_cast<signed char>(value);
  if (size == 2) return static_cast<int16_t>(value);
  return value;
}

uint64_t UnsignedArgument(Arguments& args, int size) {
  if (size == 8) return va_arg(args.list, uint64_t);
  unsigned value = va_arg(args.list, unsigned);
  if (size == 1) return static_cast<unsigned char>(value);
  if (size == 2) return static_cast<uint16_t>(value);
  return value;
}

void PutSigned(Sink& sink, const Spec& spec, int64_t value) {
  // Negated as unsigned: the smallest value has no positive counterpart.
  uint64_t magnitude = value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  PutNumber(sink, spec, value < 0 ? "-" : "", magnitude, 10);
}

void PutString(Sink& sink, Spec spec, const char* text) {
  if (text == nullptr) text = "(null)";
  size_t length = spec.precision < 0 ? strlen(text) : strnlen(text, static_cast<size_t>(spec.precision));
  spec.zero = false;
  PutPadded(sink, spec, "", text, static_cast<int>(length));
}

// False if the conversion is not one of ours; nothing was taken from `args` then.
bool PutConversion(Sink& sink, const Spec& spec, Arguments& args) {
  switch (spec.conversion) {
    case 'd':
    case 'i':
      PutSigned(sink, spec, SignedArgument(args, spec.size));
      return true;
    case 'u':
      PutNumber(sink, spec, "", UnsignedArgument(args, spec.size), 10);
      return true;
    case 'x':
    case 'X':
      PutNumber(sink, spec, "", UnsignedArgument(args, spec.size), 16);
      return true;
    case 'p':
      PutNumber(sink, spec, "0x", reinterpret_cast<uintptr_t>(va_arg(args.list, void*)), 16);
      return true;
    case 's':
      PutString(sink, spec, va_arg(args.list, const char*));
      return true;
    case 'c':
      sink.Put(static_cast<char>(va_arg(args.list, int)));
      return true;
    case '%':
      sink.Put('%');
      return true;
    default:
      return false;
  }
}

int ParseNumber(const char*& at) {
  int value = 0;
  while (*at >= '0' && *at <= '9') {
    int digit = *at++ - '0';
    // Wider than any line is as good as wide.
    if (value < 4096) value = value * 10 + digit;
  }
  return value;
}

int ParseLength(const char*& at) {
  int size = 4;
  if (*at == 'h') {
    size = *++at == 'h' ? (++at, 1) : 2;
  } else if (*at == 'l') {
    size = 8;
    if (*++at == 'l') ++at;
  } else if (*at == 'z' || *at == 'j' || *at == 't') {
    size = 8;
    ++at;
  }
  return size;
}
static_assert(sizeof(long) == 8 && sizeof(size_t) == 8);

// `at` is behind the '%'; afterwards behind the conversion.
Spec ParseSpec(const char*& at, Arguments& args) {
  Spec spec;
  for (; *at == '-' || *at == '0'; ++at) (*at == '-' ? spec.left : spec.zero) = true;
  spec.width = ParseNumber(at);
  if (*at == '.') {
    ++at;
    if (*at == '*') {
      ++at;
      spec.precision = va_arg(args.list, int);
    } else {
      spec.precision = ParseNumber(at);
    }
  }
  spec.size = ParseLength(at);
  if (*at != '\0') spec.conversion = *at++;
  return spec;
}

void FormatInto(Sink& sink, const char* format, Arguments& args) {
  for (const char* at = format; *at != '\0';) {
    if (*at != '%') {
      sink.Put(*at++);
      continue;
    }
    const char* start = at++;
    Spec spec = ParseSpec(at, args);
    if (PutConversion(sink, spec, args)) continue;
    // The types of the arguments behind an unknown conversion are unknown too: the rest is written as it
    // stands.
    sink.Put(start, strlen(start));
    return;
  }
}

char LevelLetter(LogLevel level) {
  constexpr char kLetters[] = "-EWID";
  return kLetters[static_cast<int>(level)];
}

}  // namespace

void SetRawLogLevel(LogLevel level) { level_limit.store(static_cast<int>(level), std::memory_order_relaxed); }

LogLevel RawLogLevel() { return static_cast<LogLevel>(level_limit.load(std::memory_order_relaxed)); }

void SetRawLogFd(int fd) { log_fd.store(fd, std::memory_order_relaxed); }

void SetRawLogName(const char* name) { log_name.store(name, std::memory_order_relaxed); }

size_t RawFormatV(char* buffer, size_t size, const char* format, va_list args) {
  Sink sink(buffer, size);
  Arguments arguments;
  va_copy(arguments.list, args);
  FormatInto(sink, format, arguments);
  va_end(arguments.list);
  return sink.Finish();
}

size_t RawFormat(char* buffer, size_t size, const char* format, ...) {
  va_list args;
  va_start(args, format);
  size_t length = RawFormatV(buffer, size, format, args);
  va_end(args);
  return length;
}

void RawLog(LogLevel level, const char* format, ...) {
  int fd = log_fd.load(std::memory_order_relaxed);
  if (fd < 0 || level == LogLevel::kOff || level > RawLogLevel()) return;
  int saved = errno;
  char line[1024];
  // The ids come from the kernel each time: a cached one would be wrong after fork.
  size_t length =
      RawFormat(line, sizeof line / 2, "%s[%ld:%ld] %c ", log_name.load(std::memory_order_relaxed),
                syscall(SYS_getpid), syscall(SYS_gettid), LevelLetter(level));
  va_list args;
  va_start(args, format);
  length += RawFormatV(line + length, sizeof line - length, format, args);
  va_end(args);
  line[length++] = '\n';  // over the final NUL
  // A log line that cannot be written has nowhere to be reported.
  ssize_t written [[maybe_unused]] = write(fd, line, length);
  errno = saved;
}

}  // namespace stasis
