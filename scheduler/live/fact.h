// What has happened to a cluster, as it is kept on stable storage: the same facts in the same order give the
// same cluster. Decisions are facts, too, so that another version of a policy does not change the past.
#ifndef SCHEDULER_LIVE_FACT_H_
#define SCHEDULER_LIVE_FACT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"
#include "scheduler/types.h"

namespace stasis::scheduler {

// What a user has submitted. Checked by who makes a fact of it.
struct JobRequest {
  std::string name;
  std::string tenant;
  std::vector<std::string> argv;
  std::vector<std::string> environment;
  std::string folder;
  std::string device = "auto";
  int gpus = 1;
  int ranks = 0;
  int priority = 0;
  double weight = 1;
  Time estimate = 0;  // of its run time; 0: not told
  int min_gpus = 0, max_gpus = 0;
  Time checkpoint_interval = 0;
  int max_restarts = 0;
  int64_t memory = 0;      // of each device that it needs at most; 0: not told, and it shares with nobody
  double utilization = 0;  // how busy it keeps its devices, up to 1; 0: not told
  bool operator==(const JobRequest&) const = default;
};

struct TenantSet {
  std::string name;
  double weight = 1;
  bool operator==(const TenantSet&) const = default;
};

struct NodeJoined {
  std::string name, address;
  int devices = 0;
  std::string agent_id = {}, kind = {};  // of its devices that jobs get
  int64_t device_bytes = 0;              // memory of the smallest of them; 0: not known
  bool operator==(const NodeJoined&) const = default;
};

// Whether it can be reached, and whether it is to be left alone.
struct NodeChanged {
  std::string name;
  bool reachable = true;
  bool draining = false;
  std::string reason;
  Time deadline = 0;  // of one that drains: when it will be gone, in milliseconds since 1970; 0: not known
  bool operator==(const NodeChanged&) const = default;
};

// When it is to be empty and left alone, in milliseconds since 1970; 0, 0: never.
struct MaintenanceSet {
  std::string name;
  Time start = 0, end = 0;
  bool operator==(const MaintenanceSet&) const = default;
};

struct JobSubmitted {
  JobRequest request;
  std::string key = {};  // idempotency key; "": none
  bool operator==(const JobSubmitted&) const = default;
};

struct PlacedDevices {
  std::string node;
  DeviceMask devices = 0;
  bool operator==(const PlacedDevices&) const = default;
};

// A step of a decision. Each is the beginning of an order, whose number is that of the fact.
struct Decided {
  ActionKind kind = ActionKind::kStart;
  std::string job;
  std::vector<PlacedDevices> to;
  std::string with;
  bool operator==(const Decided&) const = default;
};

// An order has been carried out, or it has not: then the job is as it was before it.
struct OrderEnded {
  uint64_t order = 0;
  bool ok = true;
  std::string message;
  bool image = false;  // of a pause: it is an image of the node now and no paused program
  bool late = false;   // of a pause that is not ok: it took too long and was given up
  bool operator==(const OrderEnded&) const = default;
};

struct JobEnded {
  std::string job;
  bool ok = true;
  int exit_code = 0;
  std::string message;
  bool operator==(const JobEnded&) const = default;
};

// What it was doing is gone with its node, or its program has failed and is to be started again; it comes
// back from the image of `image_node`, or from the beginning where that is "".
struct JobLost {
  std::string job;
  std::string image_node;
  std::string message;
  bool program_failed = false;
  bool planned = false;  // it was made an image, and nothing of what it has done is gone
  bool operator==(const JobLost&) const = default;
};

// Another node than its own has an image of the job, and gets its newer ones, too.
struct ImageKept {
  std::string job, node;
  Time made = 0;      // when, in milliseconds since 1970; 0: not known
  Time took = 0;      // to copy it; 0: not known
  bool last = false;  // the job has done nothing since: it was ended by this image
  bool operator==(const ImageKept&) const = default;
};

struct JobCancelled {
  std::string job;
  bool operator==(const JobCancelled&) const = default;
};

// How fast it advances, alone on its devices or beside the job that shares them.
struct RateMeasured {
  std::string job;
  double rate = 0;  // a second
  std::string unit;
  std::string beside;  // "": alone
  bool operator==(const RateMeasured&) const = default;
};

// Jobs that have ended before then are not on record any more.
struct JobsForgotten {
  Time before = 0;
  bool operator==(const JobsForgotten&) const = default;
};

// The turn of the job has come to be saved from the node, which will be gone.
struct SaveBegun {
  std::string job, node;
  bool operator==(const SaveBegun&) const = default;
};

// What has become of a job of a node that will be gone: nothing of its work is only there any more, or there
// was no more time.
struct SaveEnded {
  std::string job, node;
  bool saved = true;
  std::string message;  // why not
  Time image = 0;  // of one that is not saved: when its newest image elsewhere was made; 0: there is none
  bool operator==(const SaveEnded&) const = default;
};

using Fact =
    std::variant<TenantSet, NodeJoined, NodeChanged, JobSubmitted, Decided, OrderEnded, JobEnded, JobLost,
                 JobCancelled, MaintenanceSet, ImageKept, RateMeasured, JobsForgotten, SaveBegun, SaveEnded>;

// One JSON object.
std::string FactText(const Fact& fact);
// kCorrupt for anything else than what FactText() writes.
Result<Fact> ParseFact(std::string_view text);

}  // namespace stasis::scheduler

#endif  // SCHEDULER_LIVE_FACT_H_
