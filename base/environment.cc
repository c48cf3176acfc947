#include "base/environment.h"

#include <algorithm>

extern char** environ;

namespace stasis {
namespace {

std::string KeyOf(const std::string& entry) { return entry.substr(0, entry.find('=')); }

}  // namespace

std::vector<std::string> OwnEnvironment() {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; entry++) result.emplace_back(*entry);
  return result;
}

std::vector<std::string> ChangeEnvironment(std::vector<std::string> base,
                                           const std::vector<std::string>& changes) {
  for (const std::string& change : changes) {
    std::erase_if(base, [&](const std::string& entry) { return KeyOf(entry) == KeyOf(change); });
    if (change.find('=') != std::string::npos) base.push_back(change);
  }
  return base;
}

std::vector<std::string> EnvironmentWithoutLoader(const std::vector<std::string>& changes) {
  std::vector<std::string> result = OwnEnvironment();
  std::erase_if(result, [](const std::string& entry) { return entry.compare(0, 3, "LD_") == 0; });
  return ChangeEnvironment(std::move(result), changes);
}

std::string EnvironmentValue(const std::vector<std::string>& environment, const std::string& key) {
  for (const std::string& entry : environment) {
    if (KeyOf(entry) == key && entry.size() > key.size()) return entry.substr(key.size() + 1);
  }
  return "";
}

std::vector<char*> PointersOf(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace stasis
