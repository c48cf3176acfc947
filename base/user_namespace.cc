#include "base/user_namespace.h"

#include <cstdint>
#include <sstream>

#include "base/files.h"

namespace stasis {

bool IsWholeIdMap(const std::string& map) {
  std::istringstream text(map);
  uint64_t inside = 1, outside = 1, count = 0;
  text >> inside >> outside >> count;
  return text && inside == 0 && outside == 0 && count == UINT32_MAX;
}

bool InUserNamespace() {
  Result<std::string> map = ReadFile("/proc/self/uid_map", 4096);
  return map.ok() && !IsWholeIdMap(*map);
}

}  // namespace stasis
