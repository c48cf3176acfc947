// The page's files, as they were when it was built.
#ifndef SCHEDULER_DAEMON_WEB_ASSETS_H_
#define SCHEDULER_DAEMON_WEB_ASSETS_H_

#include <cstddef>
#include <span>
#include <string_view>

namespace stasis::scheduler {

struct Asset {
  std::string_view name;
  const unsigned char* data = nullptr;
  size_t size = 0;

  std::string_view text() const { return {reinterpret_cast<const char*>(data), size}; }
};
std::span<const Asset> Assets();

}  // namespace stasis::scheduler

#endif  // SCHEDULER_DAEMON_WEB_ASSETS_H_
