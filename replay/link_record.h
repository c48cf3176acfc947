// The state of a link of device code (cuLinkCreate ... cuLinkDestroy).
#ifndef REPLAY_LINK_RECORD_H_
#define REPLAY_LINK_RECORD_H_

#include <cuda.h>

#include <cstddef>
#include <mutex>
#include <span>
#include <vector>

#include "replay/object_table.h"

namespace stasis::replay {

// A link in progress cannot be rebuilt, as half of it is in the driver. A completed one needs no driver any
// more: all it still has is the image, which is handed to the program from memory of our own so that its
// address outlives the driver.
class LinkRecord final : public Record {
 public:
  LinkRecord() : Record(ObjectKind::kLink) {}

  // An input that the driver has taken.
  void AddInput(const void* data, size_t size);
  void AddInputFile(const char* path);
  // The driver's image, of which a copy is kept; returns the copy, the same one each time.
  std::span<std::byte> Complete(const void* image, size_t size);

  Status Check() override;
  Status Destroy() override;
  Result<uint64_t> Rebuild() override { return 0; }

 private:
  std::mutex mutex_;  // guards the two below
  std::vector<std::vector<std::byte>> inputs_;
  std::vector<std::byte> image_;
};

}  // namespace stasis::replay

#endif  // REPLAY_LINK_RECORD_H_
