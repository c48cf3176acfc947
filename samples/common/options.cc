#include "options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <utility>

#include "fail.h"

namespace sample {
namespace {

std::string FormatReal(double value) {
  char text[32];
  snprintf(text, sizeof(text), "%g", value);
  return text;
}

bool ParseInteger(const std::string& text, long long* value) {
  char* end = nullptr;
  errno = 0;
  *value = strtoll(text.c_str(), &end, 10);
  return !text.empty() && *end == '\0' && errno == 0;
}

bool ParseReal(const std::string& text, double* value) {
  char* end = nullptr;
  errno = 0;
  *value = strtod(text.c_str(), &end);
  return !text.empty() && *end == '\0' && errno == 0;
}

std::string Join(const std::vector<std::string>& words) {
  std::string joined;
  for (const std::string& word : words) joined += (joined.empty() ? "" : ", ") + word;
  return joined;
}

}  // namespace

void Options::Add(const char* name, const char* help, std::string initial, bool takes_value,
                  std::function<std::string(const std::string&)> set) {
  options_.push_back({name, help, std::move(initial), takes_value, std::move(set)});
}

void Options::Integer(const char* name, int* value, int min, int max, const char* help) {
  Add(name, help, std::to_string(*value), true, [=](const std::string& text) -> std::string {
    long long parsed = 0;
    if (!ParseInteger(text, &parsed) || parsed < min || parsed > max) {
      return "expected a whole number from " + std::to_string(min) + " to " + std::to_string(max);
    }
    *value = static_cast<int>(parsed);
    return "";
  });
}

void Options::Seed(const char* name, uint64_t* value, const char* help) {
  Add(name, help, std::to_string(*value), true, [=](const std::string& text) -> std::string {
    long long parsed = 0;
    if (!ParseInteger(text, &parsed) || parsed < 0) return "expected a whole number, not negative";
    *value = static_cast<uint64_t>(parsed);
    return "";
  });
}

void Options::Real(const char* name, double* value, double min, double max, const char* help) {
  Add(name, help, FormatReal(*value), true, [=](const std::string& text) -> std::string {
    double parsed = 0;
    if (!ParseReal(text, &parsed) || !(parsed >= min && parsed <= max)) {
      return "expected a number from " + FormatReal(min) + " to " + FormatReal(max);
    }
    *value = parsed;
    return "";
  });
}

void Options::Text(const char* name, std::string* value, const char* help) {
  Add(name, help, *value, true, [=](const std::string& text) -> std::string {
    if (text.empty()) return "expected a non-empty value";
    *value = text;
    return "";
  });
}

void Options::Choice(const char* name, std::string* value, const std::vector<std::string>& choices,
                     const char* help) {
  Add(name, help, *value, true, [=](const std::string& text) -> std::string {
    if (std::find(choices.begin(), choices.end(), text) == choices.end()) {
      return "expected one of " + Join(choices);
    }
    *value = text;
    return "";
  });
}

void Options::Flag(const char* name, bool* value, const char* help) {
  Add(name, help, "", false, [=](const std::string&) -> std::string {
    *value = true;
    return "";
  });
}

const Options::Option& Options::Find(const std::string& name) const {
  for (const Option& option : options_) {
    if (option.name == name) return option;
  }
  Fail(kExitUsage, "unknown option '%s'; --help lists them", name.c_str());
}

void Options::PrintHelp() const {
  printf("%s: %s\n\n", program_invocation_short_name, summary_.c_str());
  for (const Option& option : options_) {
    const std::string left = option.name + (option.takes_value ? " VALUE" : "");
    const std::string initial = option.initial.empty() ? "" : " [" + option.initial + "]";
    printf("  %-22s %s%s\n", left.c_str(), option.help.c_str(), initial.c_str());
  }
  printf("  %-22s print this text\n", "--help");
}

void Options::Parse(int argc, char** argv) const {
  setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--help") {
      PrintHelp();
      exit(0);
    }
    const size_t equals = argument.find('=');
    const Option& option = Find(argument.substr(0, equals));
    const bool inline_value = equals != std::string::npos;
    if (inline_value && !option.takes_value) {
      Fail(kExitUsage, "option %s takes no value", option.name.c_str());
    }
    if (option.takes_value && !inline_value && i + 1 == argc) {
      Fail(kExitUsage, "option %s needs a value", option.name.c_str());
    }
    std::string value;
    if (option.takes_value) value = inline_value ? argument.substr(equals + 1) : argv[++i];
    const std::string problem = option.set(value);
    if (!problem.empty()) {
      Fail(kExitUsage, "option %s '%s': %s", option.name.c_str(), value.c_str(), problem.c_str());
    }
  }
}

}  // namespace sample
