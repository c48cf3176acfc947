// What the user sees: lines and progress bars for people, or one JSON document. Standard output carries
// results, standard error everything else. Not thread-safe.
#ifndef CLI_REPORT_H_
#define CLI_REPORT_H_

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "cli/exit_codes.h"
#include "coordinator/node/layout.h"
#include "coordinator/node/text.h"

namespace stasis {

// "[#####     ]", `width` characters between the brackets.
std::string BarText(uint64_t done, uint64_t total, int width);

class Reporter {
 public:
  struct Options {
    bool json = false;
    bool quiet = false;
    bool terminal = false;  // standard error is one
  };
  // `verb` and `task` (may be empty) are in every document.
  Reporter(Options options, std::string verb) : options_(options), verb_(std::move(verb)) {}

  bool json() const { return options_.json; }
  void set_task(std::string task) { task_ = std::move(task); }

  // A sentence the user should see: a line at once, or an entry of "notes" in the document.
  void Note(const std::string& sentence);
  // How far a phase is; bytes, total 0 where it has no size.
  void Progress(const std::string& phase, uint64_t done, uint64_t total);

  // Ends with success: `text` for people (may be empty), `fields` for the document.
  int Done(Json fields, const std::string& text);
  // The same, with an exit code that is not a failure of ours (the program's own).
  int DoneWith(int exit_code, Json fields, const std::string& text);
  // Ends with a failure. `exit_code` < 0: what belongs to the status.
  int Fail(const Status& status, const std::string& remedy = "", int exit_code = -1);
  // The same for a ghost's failure result (docs/ghost-protocol.md).
  int FailWith(const Json& result, int exit_code = -1);

 private:
  void ClearBar();
  void PrintDocument(Json document);
  void PrintFailure(const Json& failure);

  Options options_;
  std::string verb_;
  std::string task_;
  std::vector<std::string> notes_;
  std::string phase_;
  bool bar_shown_ = false;
  MonotonicTime bar_time_{};
  MonotonicTime phase_start_{};
};

}  // namespace stasis

#endif  // CLI_REPORT_H_
