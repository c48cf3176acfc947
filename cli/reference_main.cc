// Prints what the command and the daemons take on their command lines, as one JSON document: the source of
// build/PRESET/docs. Not installed.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/command_line.h"
#include "cli/reference.h"
#include "coordinator/agent/config.h"
#include "scheduler/daemon/config.h"

int main() {
  nlohmann::json programs = nlohmann::json::array();
  auto add = [&programs](const CLI::App& app) { programs.push_back(stasis::DescribeProgram(app)); };
  add(stasis::CommandLine().app());
  stasis::VisitCommandLine(add);
  stasis::scheduler::VisitCommandLine(add);
  std::puts(programs.dump(1).c_str());
  return 0;
}
