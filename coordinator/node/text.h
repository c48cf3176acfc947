// Values as people read them.
#ifndef COORDINATOR_NODE_TEXT_H_
#define COORDINATOR_NODE_TEXT_H_

#include <cstdint>
#include <string>

namespace stasis {

// "1.5 GiB"; "17 B".
std::string SizeText(uint64_t bytes);
// "1.25 s", "340 ms".
std::string MillisecondsText(double milliseconds);
// The text without characters that a terminal would obey.
std::string Printable(std::string text);
// "3 min": in the largest fitting unit; "-" when negative.
std::string AgeText(int64_t seconds);
}  // namespace stasis

#endif  // COORDINATOR_NODE_TEXT_H_
