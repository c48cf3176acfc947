#include "coordinator/node/ghost_client.h"

#include <poll.h>

#include <cerrno>
#include <chrono>

#include "coordinator/ghost_start.h"
#include "coordinator/moved_mark.h"

namespace stasis {
namespace {

constexpr uint32_t kRequest = 1, kEvent = 2, kResult = 3;
constexpr auto kSendTime = std::chrono::seconds(10);
// Each is another process that ended; so many in a row are no coincidence.
constexpr int kMaxDyingGhosts = 4;

Result<Json> ParseObject(const Message& message) {
  auto* text = reinterpret_cast<const char*>(message.payload.data());
  Json object = Json::parse(text, text + message.payload.size(), nullptr, /*allow_exceptions=*/false);
  if (!object.is_object())
    return Status(StatusCode::kCorrupt, "the ghost sent something that is no JSON object");
  return object;
}

}  // namespace

Result<GhostClient> GhostClient::Connect(const TaskPaths& paths, const Site& site) {
  GhostPlace place{paths.name, site.folders.state, site.folders.run, site.files.ghost, {}};
  ASSIGN_OR_RETURN(Fd socket, ReachGhost(place));
  return GhostClient(std::move(socket));
}

Status GhostClient::Send(const Json& request) {
  std::string text = request.dump(-1, ' ', false, Json::error_handler_t::replace);
  Message message;
  message.type = kRequest;
  message.request_id = next_id_++;
  auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  message.payload.assign(bytes, bytes + text.size());
  return SendMessage(socket_.get(), std::move(message), Deadline::After(kSendTime));
}

// True when the result of request `id` has come. A ghost says that it has taken a request before it begins.
Result<bool> GhostClient::TakeMessages(uint64_t id, const EventHandler& on_event, Json* result) {
  for (;;) {
    ASSIGN_OR_RETURN(bool complete, ReceiveSome(socket_.get(), decoder_));
    if (!complete) return false;
    Message message = decoder_.Take();
    ASSIGN_OR_RETURN(Json object, ParseObject(message));
    if (message.request_id != id) continue;  // the answer to a request to undo
    taken_ = true;
    if (message.type == kEvent) on_event(object);
    if (message.type != kResult) continue;
    *result = std::move(object);
    return true;
  }
}

Result<Json> GhostClient::Call(const Json& request, Interrupt& interrupt, const EventHandler& on_event) {
  uint64_t id = next_id_;
  taken_ = false;
  RETURN_IF_ERROR(Send(request));
  bool asked_to_undo = false;
  for (;;) {
    pollfd waits[] = {{socket_.get(), POLLIN, 0}, {interrupt.fd(), POLLIN, 0}};
    if (poll(waits, 2, -1) < 0 && errno != EINTR) return ErrnoStatus(errno, "poll");
    if (waits[1].revents != 0 && interrupt.Take()) {
      if (asked_to_undo) {
        return Status(StatusCode::kCancelled, "no longer waiting; the ghost finishes what it does by itself");
      }
      asked_to_undo = true;
      RETURN_IF_ERROR(Send({{"verb", "cancel"}, {"what", "operation"}}));
    }
    Json result;
    Result<bool> done = TakeMessages(id, on_event, &result);
    if (!done.ok()) return std::move(done).status().WithContext("the ghost went away");
    if (*done) return result;
  }
}

// In the form of the ghost's own refusals; null: it has not moved, or the request does not make it run.
static Json RefuseIfMoved(const TaskPaths& paths, const Json& request) {
  const std::string verb = TextField(request, "verb");
  if (verb != "restore" && verb != "resume") return nullptr;
  std::string remedy;
  Status here = RefuseMoved(paths.name, paths.folder, &remedy);
  if (here.ok()) return nullptr;
  return {{"ok", false},
          {"verb", verb},
          {"code", StatusCodeName(here.code())},
          {"message", std::string(here.message())},
          {"remedy", remedy},
          {"left", "unchanged"}};
}

Result<Json> AskGhost(const TaskPaths& paths, const Site& site, const Json& request, Interrupt& interrupt,
                      const GhostClient::EventHandler& on_event) {
  if (Json moved = RefuseIfMoved(paths, request); !moved.is_null()) return moved;
  for (int tries = 1;; ++tries) {
    ASSIGN_OR_RETURN(GhostClient ghost, GhostClient::Connect(paths, site));
    Result<Json> result = ghost.Call(request, interrupt, on_event);
    bool died = !result.ok() && result.status().code() == StatusCode::kPeerDied;
    if (!died || ghost.taken() || tries == kMaxDyingGhosts) return result;
  }
}

}  // namespace stasis
