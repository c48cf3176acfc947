#include "ghost/request.h"

#include <iterator>

#include "base/files.h"

namespace stasis {
namespace {

constexpr const char* kVerbNames[] = {"status",  "pause",   "resume", "checkpoint",
                                      "restore", "migrate", "cancel"};
constexpr size_t kMaxOperation = 128;
constexpr uint64_t kMaxWaitMs = 24ull * 3600 * 1000;

bool FindVerb(const std::string& name, Verb* verb) {
  for (size_t i = 0; i < std::size(kVerbNames); ++i) {
    if (name != kVerbNames[i]) continue;
    *verb = static_cast<Verb>(i);
    return true;
  }
  return false;
}

void ReadPace(JsonFields& fields, Request* request) {
  request->deadline = std::chrono::milliseconds(fields.NumberOr("deadline_ms", 30000, kMaxWaitMs));
  request->patience = std::chrono::milliseconds(fields.NumberOr("patience_ms", 600000, kMaxWaitMs));
}

void ReadWaitLow(JsonFields& fields, Request* request) {
  request->wait_low = std::chrono::milliseconds(fields.NumberOr("wait_low_ms", 0, kMaxWaitMs));
}

void ReadSnapshot(JsonFields& fields, Request* request) {
  if (!FindSnapshotMode(fields.StringOr("snapshot", "auto", 16), &request->snapshot)) {
    fields.Fail("has an unknown snapshot; there are auto, device, host and off");
  }
  if (!FindDeviceHashMode(fields.StringOr("device_hash", "auto", 16), &request->device_hash)) {
    fields.Fail("has an unknown device_hash; there are auto, on and off");
  }
  request->snapshot_host_percent = static_cast<unsigned>(fields.NumberOr("snapshot_host_percent", 50, 100));
}

void ReadJob(JsonFields& fields, Request* request) {
  JsonFields job(fields.Object("job"), "a job");
  JobRank rank;
  rank.job = job.String("name", 255);
  rank.rank = static_cast<int>(job.Number("rank", kMaxJobRanks));
  rank.ranks = static_cast<int>(job.Number("ranks", kMaxJobRanks));
  if (job.ok() && rank.rank >= rank.ranks) job.Fail("has no such rank");
  if (Status status = job.FinishStrictly(); !status.ok())
    fields.Fail("has: " + std::string(status.message()));
  request->job = std::move(rank);
}

void ReadPauseProtocol(JsonFields& fields, Request* request) {
  std::string protocol = fields.StringOr("pause_protocol", "cut", 16);
  request->pause_protocol = protocol == "cut" ? PauseProtocol::kCut : PauseProtocol::kTimeout;
  if (protocol != "cut" && protocol != "timeout")
    fields.Fail("has an unknown pause_protocol; there are cut and timeout");
}

void ReadInDoubt(JsonFields& fields, Request* request) {
  std::string choice = fields.StringOr("in_doubt", "", 16);
  if (choice == "go-on") {
    request->in_doubt = InDoubt::kGoOn;
  } else if (choice == "give-up") {
    request->in_doubt = InDoubt::kGiveUp;
  } else if (!choice.empty()) {
    fields.Fail("has an unknown in_doubt; there are go-on and give-up");
  }
}

void ReadPeers(JsonFields& fields, Request* request) {
  for (const Json* element : fields.Objects("peers", kMaxPeers, true)) {
    JsonFields peer(*element, "a peer");
    request->peers.push_back({peer.String("task", 255), peer.String("image", 16)});
    if (!IsPlainName(request->peers.back().task)) peer.Fail("is no task");
    if (Status status = peer.FinishStrictly(); !status.ok())
      fields.Fail("has: " + std::string(status.message()));
  }
}

void ReadVerbFields(JsonFields& fields, Request* request) {
  switch (request->verb) {
    case Verb::kStatus:
      return;
    case Verb::kPause:
      ReadPace(fields, request);
      ReadPauseProtocol(fields, request);
      ReadWaitLow(fields, request);
      request->freeze = fields.BoolOr("freeze", true);
      if (!FindResidency(fields.StringOr("residency", "device", 16), &request->residency)) {
        fields.Fail("has an unknown residency; there are device, host and disk");
      }
      return;
    case Verb::kCheckpoint:
      ReadPace(fields, request);
      ReadPauseProtocol(fields, request);
      ReadWaitLow(fields, request);
      ReadSnapshot(fields, request);
      request->stop = fields.BoolOr("stop", false);
      return;
    case Verb::kRestore:
      request->image = fields.StringOr("image", "", 255);
      ReadPeers(fields, request);
      ReadPace(fields, request);
      request->gpus = fields.Ordinals("gpus", true);
      return;
    case Verb::kResume:
      ReadPace(fields, request);
      ReadInDoubt(fields, request);
      request->gpus = fields.Ordinals("gpus", true);
      return;
    case Verb::kMigrate:
      ReadPace(fields, request);
      ReadPauseProtocol(fields, request);
      request->gpus = fields.Ordinals("gpus", false);
      if (request->gpus.empty()) fields.Fail("names no device in 'gpus'");
      return;
    case Verb::kCancel: {
      std::string what = fields.StringOr("what", "task", 16);
      request->whole_task = what == "task";
      if (what != "task" && what != "operation") fields.Fail("can cancel 'task' or 'operation'");
      request->grace = std::chrono::milliseconds(fields.NumberOr("grace_ms", 5000, kMaxWaitMs));
      return;
    }
  }
}

}  // namespace

const char* VerbName(Verb verb) { return kVerbNames[static_cast<size_t>(verb)]; }

Result<Request> ParseRequest(std::string_view text) {
  Result<Json> json = ParseJsonObject(text);
  if (!json.ok()) return Status(StatusCode::kInvalidArgument, "the request is no JSON object");
  JsonFields fields(*json, "the request");
  Request request;
  std::string verb = fields.String("verb", 64);
  if (fields.ok() && !FindVerb(verb, &request.verb)) fields.Fail("has an unknown verb '" + verb + "'");
  if (fields.ok()) ReadVerbFields(fields, &request);
  if (request.verb != Verb::kStatus) request.operation = fields.StringOr("operation", "", kMaxOperation);
  if (fields.ok() && json->contains("job") && request.verb != Verb::kStatus) ReadJob(fields, &request);
  Status status = fields.FinishStrictly();
  if (status.ok()) return request;
  return Status(StatusCode::kInvalidArgument, std::string(status.message()));
}

Json ResultJson(const std::string& verb, const Status& status, const Answer& answer) {
  Json result = status.ok() ? answer.fields : Json::object();
  result["ok"] = status.ok();
  result["verb"] = verb;
  if (!answer.notes.empty() || !status.ok()) result["notes"] = answer.notes;
  if (status.ok()) return result;
  result["code"] = StatusCodeName(status.code());
  result["message"] = std::string(status.message());
  result["remedy"] = answer.remedy;
  result["left"] = answer.left;
  result["blockers"] = Json::array();
  for (const Blocker& blocker : answer.blockers) {
    result["blockers"].push_back(
        {{"pid", blocker.pid}, {"tid", blocker.tid}, {"call", blocker.call}, {"stack", blocker.stack}});
  }
  return result;
}

}  // namespace stasis
