#include "base/task_name.h"

#include <algorithm>

namespace stasis {
namespace {

constexpr size_t kMaxTaskName = 48;  // the sockets below the run folder have paths of at most 107 bytes

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
         c == '.';
}

}  // namespace

Status CheckTaskName(std::string_view name) {
  bool good = !name.empty() && name.size() <= kMaxTaskName && name[0] != '.' && name[0] != '-' &&
              std::all_of(name.begin(), name.end(), IsNameCharacter);
  if (good) return Status();
  return Errorf(
      StatusCode::kInvalidArgument,
      "'%.*s' is no task name: 1 to %zu letters, digits, '-', '_' and '.', not beginning with '-' or '.'",
      static_cast<int>(std::min<size_t>(name.size(), 200)), name.data(), kMaxTaskName);
}

}  // namespace stasis
