#include "replay/link_record.h"

#include <utility>

#include "replay/code_image.h"
#include "vmm/real_driver.h"

namespace stasis::replay {

void LinkRecord::AddInput(const void* data, size_t size) {
  const std::byte* bytes = static_cast<const std::byte*>(data);
  std::lock_guard lock(mutex_);
  inputs_.emplace_back(bytes, bytes + size);
}

void LinkRecord::AddInputFile(const char* path) {
  std::vector<std::byte> bytes = ReadCodeFile(path);
  std::lock_guard lock(mutex_);
  inputs_.push_back(std::move(bytes));
}

std::span<std::byte> LinkRecord::Complete(const void* image, size_t size) {
  const std::byte* bytes = static_cast<const std::byte*>(image);
  std::lock_guard lock(mutex_);
  if (image_.empty()) {
    image_.assign(bytes, bytes + size);
    RememberLinked(image_, std::move(inputs_));
    inputs_.clear();
  }
  return image_;
}

Status LinkRecord::Check() {
  std::lock_guard lock(mutex_);
  if (!image_.empty()) return {};
  return Errorf(StatusCode::kUnsupported, "%s (cuLinkCreate) is not complete yet", Name().c_str());
}

Status LinkRecord::Destroy() {
  return DriverStatus(Driver().cuLinkDestroy(reinterpret_cast<CUlinkState>(real())), "cuLinkDestroy");
}

}  // namespace stasis::replay
