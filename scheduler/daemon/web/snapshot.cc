#include "scheduler/daemon/web/snapshot.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <vector>

#include "scheduler/daemon/views.h"

namespace stasis::scheduler {
namespace {

constexpr size_t kMostLive = 500;
constexpr size_t kMostEnded = 100;
constexpr size_t kMostEvents = 2000;

std::string ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string text;
  bool written = google::protobuf::util::MessageToJsonString(message, &text, options).ok();
  return written ? text : "null";
}

template <typename Messages>
std::string ToArray(const Messages& messages) {
  std::string text = "[";
  for (const auto& message : messages) text += (text.size() > 1 ? "," : "") + ToJson(message);
  return text + "]";
}

// Those that live, in order of submission.
std::vector<JobId> LiveJobs(const State& state) {
  std::vector<JobId> jobs = state.running();
  for (TenantId tenant = 0; tenant < state.settings().tenants.size(); ++tenant) {
    jobs.insert(jobs.end(), state.waiting(tenant).begin(), state.waiting(tenant).end());
  }
  std::sort(jobs.begin(), jobs.end());
  return jobs;
}

// Those that were submitted last, the newest first.
std::vector<JobId> EndedJobs(const State& state) {
  std::vector<JobId> jobs;
  for (size_t id = state.jobs().size(); id-- > 0 && jobs.size() < kMostEnded;) {
    if (state.jobs()[id].phase == JobPhase::kDone) jobs.push_back(static_cast<JobId>(id));
  }
  return jobs;
}

struct Picture {
  v1::TenantsReply tenants;
  v1::NodesReply nodes;
  std::vector<v1::QueuedJob> jobs;
  size_t omitted = 0;
};

Picture PictureOf(const Cluster& cluster, Time now) {
  Picture picture;
  const Views views(cluster, now);
  picture.tenants = views.Tenants();
  picture.nodes = views.Nodes();
  std::vector<JobId> jobs = LiveJobs(cluster.state());
  picture.omitted = jobs.size() - std::min(jobs.size(), kMostLive);
  jobs.resize(jobs.size() - picture.omitted);
  const std::vector<JobId> ended = EndedJobs(cluster.state());
  jobs.insert(jobs.end(), ended.begin(), ended.end());
  for (JobId id : jobs) picture.jobs.push_back(views.JobOf(cluster.state().job(id).spec.name));
  return picture;
}

}  // namespace

std::string SnapshotJson(const SchedulerCore& core, uint64_t after) {
  Picture picture;
  Time now = 0;
  core.LookNow([&](const Cluster& cluster, Time at) {
    now = at;
    picture = PictureOf(cluster, at);
  });
  std::vector<v1::ClusterEvent> events = core.EventsAfter(after, SIZE_MAX);
  events.erase(events.begin(),
               events.end() - static_cast<std::ptrdiff_t>(std::min(events.size(), kMostEvents)));
  return "{\"now_ms\":" + std::to_string(now) + ",\"info\":" + ToJson(core.Info()) +
         ",\"nodes\":" + ToArray(picture.nodes.nodes()) +
         ",\"tenants\":" + ToArray(picture.tenants.tenants()) + ",\"jobs\":" + ToArray(picture.jobs) +
         ",\"omitted\":" + std::to_string(picture.omitted) + ",\"events\":" + ToArray(events) + "}";
}

std::string EventJson(const v1::ClusterEvent& event) { return ToJson(event); }

}  // namespace stasis::scheduler
