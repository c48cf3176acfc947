#include "cli/signal_list.h"

#include <algorithm>
#include <csignal>
#include <iterator>
#include <utility>

namespace stasis {
namespace {

constexpr std::pair<std::string_view, int> kSignals[] = {{"HUP", SIGHUP},   {"INT", SIGINT},
                                                         {"QUIT", SIGQUIT}, {"TERM", SIGTERM},
                                                         {"USR1", SIGUSR1}, {"USR2", SIGUSR2}};

}  // namespace

Result<std::vector<int>> ParseSignals(std::string_view text) {
  std::vector<int> signals;
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find(',', begin), text.size());
    std::string name(text.substr(begin, end - begin));
    auto found = std::find_if(std::begin(kSignals), std::end(kSignals),
                              [&](const auto& signal) { return signal.first == name; });
    if (found == std::end(kSignals)) {
      return Errorf(StatusCode::kInvalidArgument, "'%.20s' is none of HUP, INT, QUIT, TERM, USR1, USR2",
                    name.c_str());
    }
    signals.push_back(found->second);
    begin = end + 1;
  }
  return signals;
}

}  // namespace stasis
