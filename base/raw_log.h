// RawLog: the logger for places where nothing else may be touched: inside other people's processes, in signal
// handlers, after fork. One line = one write(2) from a buffer on the stack, at most 1 KiB, longer ones end in
// "...". It takes no lock, allocates nothing, uses neither stdio nor the locale, and keeps errno. Thread-safe
// and async-signal-safe throughout.
#ifndef BASE_RAW_LOG_H_
#define BASE_RAW_LOG_H_

#include <cstdarg>
#include <cstddef>

namespace stasis {

enum class LogLevel : int { kOff = 0, kError, kWarning, kInfo, kDebug };

// Lines above `level` are dropped. kWarning unless set.
void SetRawLogLevel(LogLevel level);
LogLevel RawLogLevel();
// Where lines go; 2 unless set. A negative descriptor drops everything. Not owned.
void SetRawLogFd(int fd);
// The word in front of every line; "stasis" unless set. Must live as long as the program (a literal).
void SetRawLogName(const char* name);

// Writes "name[pid:tid] L text\n" with L one of E, W, I, D. Of printf's format it knows the conversions
// d i u x X p s c %, the lengths hh h l ll z j t, the flags - and 0, a width, and a precision (also *) for
// strings. From an unknown conversion on, the format is written as it stands.
void RawLog(LogLevel level, const char* format, ...) __attribute__((format(printf, 2, 3)));

// The formatter alone: writes at most `size` bytes including the final NUL, with "..." at the end if it did
// not fit. Returns the length of what was written. `size` must be at least 4.
size_t RawFormat(char* buffer, size_t size, const char* format, ...) __attribute__((format(printf, 3, 4)));
size_t RawFormatV(char* buffer, size_t size, const char* format, va_list args)
    __attribute__((format(printf, 3, 0)));

}  // namespace stasis

#endif  // BASE_RAW_LOG_H_
