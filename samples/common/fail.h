// One-line failure messages of the sample programs, all of the form "program: what went wrong".
#pragma once

namespace sample {

constexpr int kExitFailure = 1;  // the work could not be done: CUDA error, unreadable file, wrong result
constexpr int kExitUsage = 2;    // the command line makes no sense

// Prints "program: message" on stderr and exits with `code`.
[[noreturn, gnu::format(printf, 2, 3)]] void Fail(int code, const char* format, ...);

}  // namespace sample
