#include "scheduler/policies.h"

#include <string>

namespace stasis::scheduler {

namespace {

struct Row {
  std::string_view name;
  std::unique_ptr<Policy> (*make)();
};
constexpr Row kPolicies[] = {{"fifo", &MakeFifo},     {"srtf", &MakeSrtf},       {"las", &MakeLas},
                             {"themis", &MakeThemis}, {"astraea", &MakeAstraea}, {"gandiva", &MakeGandiva}};

}  // namespace

const std::vector<std::string_view>& PolicyNames() {
  static const std::vector<std::string_view>* const names = [] {
    auto* all = new std::vector<std::string_view>;
    for (const Row& row : kPolicies) all->push_back(row.name);
    return all;
  }();
  return *names;
}

std::string PolicyList() {
  std::string known;
  for (const Row& row : kPolicies) known += (known.empty() ? "" : ", ") + std::string(row.name);
  return known;
}

Result<std::unique_ptr<Policy>> MakePolicy(std::string_view name) {
  for (const Row& row : kPolicies) {
    if (row.name == name) return row.make();
  }
  return Errorf(StatusCode::kInvalidArgument, "no policy '%.*s'; there are %s", static_cast<int>(name.size()),
                name.data(), PolicyList().c_str());
}

}  // namespace stasis::scheduler
