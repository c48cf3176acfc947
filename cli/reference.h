// The options of a program as data, from which its reference and its man pages are made.
#ifndef CLI_REFERENCE_H_
#define CLI_REFERENCE_H_

#include <CLI/CLI.hpp>
#include <nlohmann/json_fwd.hpp>

namespace stasis {

// An object: "name", "what", "footer", "program" (it ends with a program's command line), "options" and
// "verbs", each of which is such an object. Of an option: "names" (-x, --long; of an argument by position its
// one name), "argument" (what follows it, with the values that it may have; "": a flag), "what", "required",
// "position", "many". What --help does not list is not in it.
nlohmann::json DescribeProgram(const CLI::App& app);

}  // namespace stasis

#endif  // CLI_REFERENCE_H_
