// An image of device code that was loaded, kept so that it can be loaded again.
#ifndef REPLAY_CODE_IMAGE_H_
#define REPLAY_CODE_IMAGE_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "replay/device_code.h"

namespace stasis::replay {

// Thread-compatible; read by the control thread while the gate is closed.
class CodeImage {
 public:
  // Keeps what a driver has just loaded from `data`: a copy, or only the address when it lies in a read-only
  // part of a loaded executable or library, as nvcc's own do. Never fails: see Check().
  static std::shared_ptr<CodeImage> Keep(const void* data);
  // The same of a file.
  static std::shared_ptr<CodeImage> KeepFile(const char* path);

  // What to give to the driver.
  const void* data() const { return owned_.empty() ? data_ : owned_.data(); }
  // kUnsupported, with the reason, when it cannot be loaded again, or holds what cannot be saved.
  Status Check();
  // After Check().
  const std::vector<std::string>& variables() const { return facts_.variables; }

 private:
  Status ReadFacts();

  const void* data_ = nullptr;
  size_t size_ = 0;  // 0: not known
  std::vector<std::byte> owned_;
  std::vector<std::byte> beginning_;  // of an image that is not copied
  bool facts_read_ = false;
  DeviceCodeFacts facts_;
};

// The contents of a file with a terminating NUL; empty when it cannot be read.
std::vector<std::byte> ReadCodeFile(const char* path);

// What cuLinkComplete handed out, when its form says nothing to us: it has the variables of what was linked.
// Kept for the life of the process, each content once.
void RememberLinked(std::span<const std::byte> image, std::vector<std::vector<std::byte>> inputs);

}  // namespace stasis::replay

#endif  // REPLAY_CODE_IMAGE_H_
