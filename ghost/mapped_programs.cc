#include <map>

#include "ghost/proc.h"
#include "ghost/programs.h"

namespace stasis {

Result<std::vector<ManifestProgram>> ProgramsOf(const std::vector<pid_t>& tree, std::string* remedy) {
  std::map<std::string, ManifestProgram> programs;
  for (pid_t pid : tree) {
    ASSIGN_OR_RETURN(std::vector<ProcMap> maps, MapsOf(pid));
    for (const ProcMap& map : maps) {
      if (map.protection[2] != 'x' || !map.path.starts_with("/") || map.path.starts_with("/memfd:")) continue;
      if (map.path.ends_with(" (deleted)")) {
        *remedy = "start the program again: what runs is not the version on disk";
        return Status(StatusCode::kUnsupported, "process " + Named(pid) + ": " +
                                                    map.path.substr(0, map.path.size() - 10) +
                                                    " was replaced or removed while it is running");
      }
      if (programs.count(map.path)) continue;
      ASSIGN_OR_RETURN(programs[map.path], DescribeProgram(map.path));
    }
  }
  std::vector<ManifestProgram> list;
  for (auto& [path, program] : programs) list.push_back(std::move(program));
  return list;
}

}  // namespace stasis
