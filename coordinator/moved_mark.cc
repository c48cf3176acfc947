#include "coordinator/moved_mark.h"

#include <unistd.h>

#include <cerrno>

#include "base/files.h"
#include "dedup/json.h"

namespace stasis {
namespace {

constexpr size_t kMaxMark = 64 << 10;

std::string PathOf(const std::string& task_folder) { return task_folder + "/moved.json"; }

}  // namespace

Status MarkMoved(const std::string& task_folder, const std::string& node) {
  Json mark = {{"version", 1}, {"node", node}};
  return WriteFileAtomically(PathOf(task_folder), mark.dump(-1, ' ', false, Json::error_handler_t::replace));
}

Status UnmarkMoved(const std::string& task_folder) {
  if (unlink(PathOf(task_folder).c_str()) != 0 && errno != ENOENT)
    return ErrnoStatus(errno, "remove " + PathOf(task_folder));
  return Status();
}

std::string MovedTo(const std::string& task_folder) {
  Result<std::string> text = ReadFile(PathOf(task_folder), kMaxMark);
  if (text.status().code() == StatusCode::kNotFound) return "";
  // A mark that cannot be read is one.
  if (!text.ok()) return "another one";
  Json mark = Json::parse(*text, nullptr, false);
  if (!mark.is_object()) return "another one";
  auto node = mark.find("node");
  return node != mark.end() && node->is_string() ? node->get<std::string>() : "another one";
}

Status RefuseMoved(const std::string& task, const std::string& task_folder, std::string* remedy) {
  const std::string node = MovedTo(task_folder);
  if (node.empty()) return Status();
  *remedy = "let it run there; only where that node is gone for good, remove " + PathOf(task_folder);
  return Status(StatusCode::kFailedPrecondition, task + " has been handed over to node " + node);
}

}  // namespace stasis
