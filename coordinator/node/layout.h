// Where the files of tasks are, and reading and replacing them. Paths only; nothing is created unless said.
#ifndef COORDINATOR_NODE_LAYOUT_H_
#define COORDINATOR_NODE_LAYOUT_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/status.h"
#include "base/task_name.h"

namespace stasis {

using Json = nlohmann::json;

// The two folders that everything lies in (docs/ghost-protocol.md, "Files").
struct Folders {
  std::string state;  // $STASIS_STATE_DIR; survives a reboot
  std::string run;    // $STASIS_RUN_DIR; sockets
};

// From the environment of this process, absolute.
Folders FindFolders();

// The files of one task.
struct TaskPaths {
  TaskPaths(const Folders& folders, std::string_view task_name);

  std::string name;
  std::string folder;      // in the state folder
  std::string old_images;  // of format version 1: folders
  std::string run;         // in the run folder
  std::string ctl;
  std::string ghost_socket;
  std::string File(std::string_view file) const { return folder + "/" + std::string(file); }
};

// Names of all tasks on record, sorted.
std::vector<std::string> ListTasks(const Folders& folders);

// kNotFound: no such file; kCorrupt: not one JSON object.
Result<Json> ReadJson(const std::string& path);
// Replaces `path` by rename, mode 0600.
Status WriteJson(const std::string& path, const Json& value);

// A field of an object from outside, or the fallback where it is missing or of another type.
std::string TextField(const Json& object, const char* key, std::string_view fallback = "");
int64_t IntegerField(const Json& object, const char* key, int64_t fallback = 0);
double NumberField(const Json& object, const char* key, double fallback = 0);
bool BoolField(const Json& object, const char* key, bool fallback = false);
std::vector<int> IntegersField(const Json& object, const char* key);
std::vector<std::string> TextsField(const Json& object, const char* key);

}  // namespace stasis

#endif  // COORDINATOR_NODE_LAYOUT_H_
