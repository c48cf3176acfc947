// What comes over the ghost's socket from the coordinator of a job, and to it. The first byte says which.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ghost/meet.h"

namespace {

template <typename T>
void ExpectOneSpelling(std::span<const std::byte> payload,
                       stasis::Result<T> (*decode)(std::span<const std::byte>)) {
  stasis::Result<T> value = decode(payload);
  if (!value.ok()) return;
  const std::vector<std::byte> again = stasis::Encode(*value);
  if (!std::equal(again.begin(), again.end(), payload.begin(), payload.end())) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::span<const std::byte> payload(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  if (data[0] % 2 == 0) {
    ExpectOneSpelling(payload, stasis::DecodeQuestion);
  } else {
    ExpectOneSpelling(payload, stasis::DecodeQuestionAnswer);
  }
  return 0;
}
