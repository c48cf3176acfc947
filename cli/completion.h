// Shell completion made from the command line's own description, so that it cannot fall behind.
#ifndef CLI_COMPLETION_H_
#define CLI_COMPLETION_H_

#include <CLI/CLI.hpp>
#include <string>

namespace stasis {

// `shell`: bash, zsh or fish. Verbs, their options, the values of options that have a list of them, names of
// tasks, and programs behind `run`.
std::string CompletionScript(const CLI::App& app, const std::string& shell);

}  // namespace stasis

#endif  // CLI_COMPLETION_H_
