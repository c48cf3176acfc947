#include "base/placement_line.h"

namespace stasis {
namespace {

std::string Hex(const std::string& bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) text += {kDigits[byte >> 4], kDigits[byte & 15]};
  return text;
}

}  // namespace

std::string PlacementLine(const std::string& uuid, int ordinal, const std::string& now) {
  return Hex(uuid) + " " + std::to_string(ordinal) + (now.empty() ? "" : " ") + Hex(now) + "\n";
}

}  // namespace stasis
