#include "cli/node_choice.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cstdlib>
#include <cstring>

#include "base/fd.h"
#include "proto/rpc/endpoint.h"

namespace stasis {
namespace {

bool Answers(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return false;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return socket.valid() && connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
}

}  // namespace

std::string NamedNode(const Options& options) {
  if (options.embedded) return "";
  if (!options.node.empty()) return options.node;
  const char* node = std::getenv("STASIS_NODE");
  return node == nullptr ? "" : node;
}

std::string LocalNode(const Folders& folders) { return "unix:" + folders.run + "/stasisd.sock"; }

bool AnswersLocally(const Folders& folders) { return Answers(folders.run + "/stasisd.sock"); }

Result<std::string> ChooseNode(const Options& options, const Folders& folders) {
  if (options.embedded && !options.node.empty()) {
    return Status(StatusCode::kInvalidArgument, "--node with --embedded: which of them?");
  }
  std::string named = NamedNode(options);
  if (!named.empty()) {
    RETURN_IF_ERROR(ParseEndpoint(named).status());
    return named;
  }
  if (options.embedded || EmbeddedOption(options) != nullptr || !AnswersLocally(folders)) {
    return std::string();
  }
  return LocalNode(folders);
}

std::string NamedScheduler(const Options& options) {
  if (!options.scheduler.empty()) return options.scheduler;
  if (options.embedded || !options.node.empty()) return "";
  const char* scheduler = std::getenv("STASIS_SCHEDULER");
  return scheduler == nullptr ? "" : scheduler;
}

Result<std::string> ChooseScheduler(const Options& options, const Folders& folders) {
  if (!options.scheduler.empty() && (options.embedded || !options.node.empty())) {
    return Errorf(StatusCode::kInvalidArgument, "--scheduler with %s: which of them?",
                  options.embedded ? "--embedded" : "--node");
  }
  std::string named = NamedScheduler(options);
  if (!named.empty()) {
    RETURN_IF_ERROR(ParseEndpoint(named).status());
    return named;
  }
  std::string local = folders.run + "/schedd.sock";
  if (Answers(local)) return "unix:" + local;
  return Status(StatusCode::kUnavailable, "no scheduler runs here");
}

const char* EmbeddedOption(const Options& options) {
  if (!options.nodes.empty()) return "--nodes";
  if (options.again) return "--again";
  if (options.forget) return "--rm";
  if (!options.checkpoint_on.empty()) return "--checkpoint-on";
  if (options.verb == "restore" && options.target.starts_with('/')) return "the path of an image";
  return nullptr;
}

}  // namespace stasis
