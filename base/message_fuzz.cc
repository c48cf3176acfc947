// Fuzz target: the receiving half of messages. The first byte of the input says how the rest is cut into
// reads; every read may bring descriptors along.
#include <fcntl.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/message.h"
#include "base/payload.h"

namespace {

void ReadPayload(const stasis::Message& message) {
  stasis::PayloadReader reader(message.payload);
  (void)reader.U8();
  (void)reader.String(100);
  for (uint32_t i = 0, count = reader.Count(4); i < count; i++) (void)reader.U32();
  (void)reader.F64();
  (void)reader.Finish();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  size_t step = 1 + data[0] % 64;
  stasis::MessageDecoder decoder(stasis::MessageLimits{1u << 20, 600});
  for (size_t at = 1; at < size;) {
    std::span<std::byte> window = decoder.Window();
    size_t part = std::min({window.size(), size - at, step});
    std::memcpy(window.data(), data + at, part);
    std::vector<stasis::Fd> fds;
    // Every 16th value of a read's first byte stands for descriptors that came with it.
    for (int i = data[at] % 16 == 15 ? data[at] / 16 : 0; i > 0; i--) {
      fds.emplace_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
    }
    at += part;
    if (!decoder.Commit(part, std::move(fds)).ok()) return 0;
    if (decoder.complete()) ReadPayload(decoder.Take());
  }
  return 0;
}
