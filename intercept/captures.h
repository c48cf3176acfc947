// How many stream captures the program has begun and not ended. A pause waits for them: a capture cannot be
// carried, and a synchronising call of ours would spoil it. Thread-safe; nothing blocks but
// WaitForCaptures().
#ifndef INTERCEPT_CAPTURES_H_
#define INTERCEPT_CAPTURES_H_

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace stasis {

namespace internal {
extern std::atomic<uint32_t> g_captures;
}  // namespace internal

// A stream of the program has begun to capture, and has ended it by whatever way (end of capture, destroyed
// stream, reset context). Streams that join a capture do not count.
void CaptureBegan();
void CaptureEnded();
inline uint32_t CapturesInProgress() { return internal::g_captures.load(std::memory_order_acquire); }
// Waits until there is none; false when the deadline has passed.
bool WaitForCaptures(const Deadline& deadline);

}  // namespace stasis

#endif  // INTERCEPT_CAPTURES_H_
