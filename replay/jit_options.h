// The options of a call that loads or links code, kept for the next time.
#ifndef REPLAY_JIT_OPTIONS_H_
#define REPLAY_JIT_OPTIONS_H_

#include <cuda.h>

#include <string>
#include <vector>

#include "base/status.h"

namespace stasis::replay {

// Only values that say what code to make; the program's buffers for logs and times were filled once.
class JitOptions {
 public:
  JitOptions() = default;
  JitOptions(unsigned count, const CUjit_option* options, void* const* values);
  // kUnsupported, naming the option, when one was given that cannot be given again.
  Status Check() const;

  unsigned count() const { return static_cast<unsigned>(options_.size()); }
  CUjit_option* options() { return options_.data(); }
  void** values() { return values_.data(); }

 private:
  std::vector<CUjit_option> options_;
  std::vector<void*> values_;
  std::string unsupported_;
};

}  // namespace stasis::replay

#endif  // REPLAY_JIT_OPTIONS_H_
