#include "coordinator/node/criu_program.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <iterator>
#include <sstream>

#include "base/bundled_criu.h"
#include "coordinator/node/program.h"

namespace stasis {
namespace {

constexpr auto kCriuTime = std::chrono::seconds(60);

int ParseVersion(std::string_view text, int factor) {
  int major = 0, minor = 0;
  auto [dot, error] = std::from_chars(text.data(), text.data() + text.size(), major);
  if (error != std::errc() || dot == text.data() + text.size() || *dot != '.') return 0;
  auto [rest, minor_error] = std::from_chars(dot + 1, text.data() + text.size(), minor);
  if (minor_error != std::errc() || major < 0 || minor < 0 || minor >= factor) return 0;
  return major * factor + minor;
}

}  // namespace

std::string FindCriu() {
  std::vector<std::string> environment = OwnEnvironment();
  std::string named = EnvironmentValue(environment, "STASIS_CRIU");
  if (!named.empty()) return named;
  std::string bundled = BundledCriu();
  if (!bundled.empty()) return bundled;
  Result<std::string> found =
      FindProgram("criu", EnvironmentValue(environment, "PATH") + ":/usr/sbin:/usr/local/sbin");
  if (found.ok()) return *found;
  std::string cache = EnvironmentValue(environment, "HOME") + "/.cache/stasis/criu/bin/criu";
  return access(cache.c_str(), X_OK) == 0 ? cache : "";
}

Result<SubprocessResult> RunCriu(const std::string& criu, const std::vector<std::string>& arguments) {
  SubprocessOptions options{{criu}, EnvironmentWithoutLoader({})};
  options.argv.insert(options.argv.end(), arguments.begin(), arguments.end());
  return RunSubprocess(options, Deadline::After(kCriuTime));
}

std::vector<std::string> CriuErrorsBesideNetwork(std::string_view output) {
  // Whose network it is not, may neither ask for the numbers of links nor put a connection into repair mode.
  constexpr std::string_view kOfNetwork[] = {"net: Unexpected error: -1(Operation not permitted)",
                                             "Can't turn TCP repair mode ON: Operation not permitted"};
  std::vector<std::string> errors;
  std::istringstream lines{std::string(output)};
  for (std::string line; std::getline(lines, line);) {
    const bool of_network = std::any_of(std::begin(kOfNetwork), std::end(kOfNetwork),
                                        [&](std::string_view text) { return line.ends_with(text); });
    if (line.starts_with("Error") && !of_network) errors.push_back(line);
  }
  return errors;
}

int ParseCriuVersion(std::string_view text) {
  constexpr std::string_view kLabel = "Version: ";
  size_t at = text.find(kLabel);
  return at == std::string_view::npos ? 0 : ParseVersion(text.substr(at + kLabel.size()), 100);
}

int ParseKernelVersion(std::string_view release) { return ParseVersion(release, 1000); }

}  // namespace stasis
