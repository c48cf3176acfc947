// What a task and its ghost, and the ranks of a job, tell each other. The first byte says which message.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/rank_protocol.h"
#include "base/task_protocol.h"

namespace {

using Payload = std::span<const std::byte>;

// What is accepted can be said again, and is the same then.
template <typename T>
void Try(Payload payload, stasis::Result<T> (*decode)(Payload)) {
  stasis::Result<T> value = decode(payload);
  if (!value.ok()) return;
  const std::vector<std::byte> again = stasis::Encode(*value);
  stasis::Result<T> second = decode(again);
  if (!second.ok() || stasis::Encode(*second) != again) __builtin_trap();
}

template <auto decode>
void TryOne(Payload payload) {
  Try(payload, decode);
}

constexpr void (*kMessages[])(Payload) = {
    TryOne<&stasis::DecodeTaskHello>,    TryOne<&stasis::DecodeTaskStatus>,
    TryOne<&stasis::DecodeTaskProgress>, TryOne<&stasis::DecodeTaskError>,
    TryOne<&stasis::DecodeTaskAttach>,   TryOne<&stasis::DecodeTaskExtents>,
    TryOne<&stasis::DecodeTaskRanges>,   TryOne<&stasis::DecodeTaskClose>,
    TryOne<&stasis::DecodeTaskQuiesced>, TryOne<&stasis::DecodeTaskResume>,
    TryOne<&stasis::DecodeCutReport>,    TryOne<&stasis::DecodeCutTargets>,
    TryOne<&stasis::DecodeTaskCut>,      TryOne<&stasis::DecodeCommReports>,
    TryOne<&stasis::DecodeCommRejoin>,
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  kMessages[data[0] % std::size(kMessages)](std::as_bytes(std::span(data + 1, size - 1)));
  return 0;
}
