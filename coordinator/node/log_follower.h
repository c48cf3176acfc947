// The output of a task, copied as it grows.
#ifndef COORDINATOR_NODE_LOG_FOLLOWER_H_
#define COORDINATOR_NODE_LOG_FOLLOWER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/status.h"

namespace stasis {

// Writes all of `bytes`, also to somebody's non-blocking pipe. False: nobody reads `out` any more.
Result<bool> WriteOutput(int out, std::string_view bytes);

// Copies a growing file to a descriptor.
class LogFollower {
 public:
  // Begins at byte `offset`. kNotFound: no such file.
  static Result<LogFollower> Open(const std::string& path, uint64_t offset);

  // Copies what is there now to `out`, also when the file was cut shorter meanwhile (then from its new end
  // on). False once nobody reads `out` any more: nothing is copied from then on.
  Result<bool> Pump(int out);
  // The same, given piece by piece to a function that returns as WriteOutput does.
  using Sink = std::function<Result<bool>(std::string_view)>;
  Result<bool> Pump(const Sink& sink);
  uint64_t offset() const { return offset_; }
  void set_offset(uint64_t offset) { offset_ = offset; }

 private:
  LogFollower(Fd file, uint64_t offset) : file_(std::move(file)), offset_(offset) {}

  Fd file_;
  uint64_t offset_;
  bool reader_gone_ = false;
};

}  // namespace stasis

#endif  // COORDINATOR_NODE_LOG_FOLLOWER_H_
