// `stasis ps`: jobs as a table and as a document.
#ifndef CLI_PS_TABLE_H_
#define CLI_PS_TABLE_H_

#include <string>
#include <vector>

#include "coordinator/node/layout.h"
#include "stasis/v1/agent.pb.h"

namespace stasis {

struct PsTable {
  Json tasks = Json::array();
  Json jobs = Json::array();
  std::string text;
};

// `all`: also those that have ended; `show_ranks`: rows for the ranks of jobs, too. `now`: seconds since
// 1970. The documents hold the ranks in any case.
PsTable MakePsTable(const std::vector<v1::Job>& jobs, bool all, bool show_ranks, int64_t now);

// "running (3 of 4)", "paused (host)", "exited (3)".
std::string JobStateText(const v1::Job& job);
// "0,1", "all", or "-" where the ranks differ.
std::string JobGpusText(const v1::Job& job);
// What is run, shortened to `width` characters.
std::string CommandText(const v1::Job& job, size_t width);

}  // namespace stasis

#endif  // CLI_PS_TABLE_H_
