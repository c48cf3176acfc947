#include "coordinator/moved_mark.h"

#include <unistd.h>

#include <cerrno>

#include "base/files.h"
#include "dedup/json.h"

namespace stasis {
namespace {

constexpr size_t kMaxMark = 64 << 10;
// Of a mark that does not say it: it is one all the same.
constexpr char kUnknownNode[] = "(unknown)";

std::string PathOf(const std::string& task_folder) { return task_folder + "/moved.json"; }
std::string CamePathOf(const std::string& task_folder) { return task_folder + "/came.json"; }

Status Write(const std::string& path, const char* field, const std::string& value) {
  Json mark = {{"version", 1}, {field, value}};
  return WriteFileAtomically(path, mark.dump(-1, ' ', false, Json::error_handler_t::replace));
}

Status Remove(const std::string& path) {
  if (unlink(path.c_str()) != 0 && errno != ENOENT) return ErrnoStatus(errno, "remove " + path);
  return Status();
}

}  // namespace

Status MarkMoved(const std::string& task_folder, const std::string& node) {
  return Write(PathOf(task_folder), "node", node);
}

Status UnmarkMoved(const std::string& task_folder) { return Remove(PathOf(task_folder)); }

std::string MovedTo(const std::string& task_folder) {
  Result<std::string> text = ReadFile(PathOf(task_folder), kMaxMark);
  if (text.status().code() == StatusCode::kNotFound) return "";
  if (!text.ok()) return kUnknownNode;
  const Json mark = Json::parse(*text, nullptr, false);
  const auto node = mark.is_object() ? mark.find("node") : mark.end();
  const std::string name = node != mark.end() && node->is_string() ? node->get<std::string>() : "";
  return name.empty() ? kUnknownNode : name;
}

Status RefuseMoved(const std::string& task, const std::string& task_folder, std::string* remedy) {
  const std::string node = MovedTo(task_folder);
  if (node.empty()) return Status();
  *remedy =
      "let it run there; only where that node is gone for good, `stasis restore --take-back` brings it back "
      "here, or, without an agent, remove " +
      PathOf(task_folder);
  return Status(StatusCode::kFailedPrecondition, task + " has been handed over to node " + node);
}

Status MarkCame(const std::string& task_folder, const std::string& token) {
  return Write(CamePathOf(task_folder), "token", token);
}

Status UnmarkCame(const std::string& task_folder) { return Remove(CamePathOf(task_folder)); }

Result<std::string> CameBy(const std::string& task_folder) {
  Result<std::string> text = ReadFile(CamePathOf(task_folder), kMaxMark);
  if (text.status().code() == StatusCode::kNotFound) return std::string();
  if (!text.ok()) return text.status();
  const Json mark = Json::parse(*text, nullptr, false);
  const auto token = mark.is_object() ? mark.find("token") : mark.end();
  if (token == mark.end() || !token->is_string())
    return Status(StatusCode::kCorrupt, CamePathOf(task_folder) + " cannot be read");
  return token->get<std::string>();
}

}  // namespace stasis
