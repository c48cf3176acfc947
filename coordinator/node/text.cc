#include "coordinator/node/text.h"

#include <fmt/format.h>

#include <iterator>

namespace stasis {

std::string SizeText(uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1023.95 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    unit++;
  }
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string MillisecondsText(double milliseconds) {
  if (milliseconds >= 1000) return fmt::format("{:.2f} s", milliseconds / 1000);
  return fmt::format("{:.{}f} ms", milliseconds, milliseconds < 10 ? 1 : 0);
}

std::string Printable(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text;
}

std::string AgeText(int64_t seconds) {
  if (seconds < 0) return "-";
  if (seconds < 60) return fmt::format("{} s", seconds);
  if (seconds < 3600) return fmt::format("{} min", seconds / 60);
  if (seconds < 86400) return fmt::format("{} h", seconds / 3600);
  return fmt::format("{} d", seconds / 86400);
}

}  // namespace stasis
