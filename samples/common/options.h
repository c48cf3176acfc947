// Command-line options of the sample programs: `--name value` or `--name=value`, and flags without a value.
#pragma once

#include <stdint.h>

#include <functional>
#include <string>
#include <vector>

namespace sample {

// Options are declared with the variable that they set, whose value at that time is the default shown by
// --help.
class Options {
 public:
  explicit Options(std::string summary) : summary_(std::move(summary)) {}

  void Integer(const char* name, int* value, int min, int max, const char* help);
  void Seed(const char* name, uint64_t* value, const char* help);
  void Real(const char* name, double* value, double min, double max, const char* help);
  void Text(const char* name, std::string* value, const char* help);
  void Choice(const char* name, std::string* value, const std::vector<std::string>& choices,
              const char* help);
  void Flag(const char* name, bool* value, const char* help);

  // Sets the variables. Prints the help and exits 0 on --help; exits 2 with one clear line on anything
  // unknown. Also makes stdout line buffered, so that a log in a file or a pipe is whole up to the last line
  // printed.
  void Parse(int argc, char** argv) const;

 private:
  struct Option {
    std::string name;
    std::string help;
    std::string initial;
    bool takes_value;
    std::function<std::string(const std::string&)> set;  // returns what is wrong with the value, or ""
  };

  void Add(const char* name, const char* help, std::string initial, bool takes_value,
           std::function<std::string(const std::string&)> set);
  const Option& Find(const std::string& name) const;
  void PrintHelp() const;

  std::string summary_;
  std::vector<Option> options_;
};

}  // namespace sample
