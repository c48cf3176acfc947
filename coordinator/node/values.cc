#include "coordinator/node/values.h"

#include <algorithm>
#include <charconv>

namespace stasis {
namespace {

constexpr int kMaxOrdinal = 1023;

Status Bad(const char* what, std::string_view text, const char* expected) {
  return Errorf(StatusCode::kInvalidArgument, "'%.*s' is no %s: expected %s",
                static_cast<int>(std::min<size_t>(text.size(), 100)), text.data(), what, expected);
}

}  // namespace

Result<std::vector<int>> ParseGpuList(std::string_view text) {
  Status bad = Bad("list of GPUs", text, "ordinals as 0 or 2,0, each once");
  std::vector<int> gpus;
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find(',', begin), text.size());
    int gpu = -1;
    auto [rest, error] = std::from_chars(text.data() + begin, text.data() + end, gpu);
    if (error != std::errc() || rest != text.data() + end || gpu < 0 || gpu > kMaxOrdinal) return bad;
    if (std::find(gpus.begin(), gpus.end(), gpu) != gpus.end()) return bad;
    gpus.push_back(gpu);
    begin = end + 1;
  }
  return gpus;
}

std::string GpuListText(const std::vector<int>& gpus) {
  std::string text;
  for (int gpu : gpus) text += (text.empty() ? "" : ",") + std::to_string(gpu);
  return text;
}

}  // namespace stasis
