// What a Watch stream still has to tell, in the order of revisions.
#ifndef COORDINATOR_AGENT_WATCH_QUEUE_H_
#define COORDINATOR_AGENT_WATCH_QUEUE_H_

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/agent/registry.h"
#include "stasis/v1/agent.pb.h"

namespace stasis {

// At most two pictures of each job wait: as it was at the start, and its newest. Not thread-safe.
class WatchQueue {
 public:
  // `name` as in WatchRequest.
  explicit WatchQueue(std::string name) : name_(std::move(name)) {}

  // What there is to be told first, and the registry's revision at that time, or before. `complete`: these
  // are all jobs.
  void Begin(const std::vector<JobPicture>& jobs, uint64_t revision, bool complete);
  // A change; one that is not newer than Begin()'s revision is passed over, unless `late`: the registry had
  // it when the stream began, and nobody knew of it yet.
  void Add(const JobPicture& job, bool late = false);
  // What is to be told next; nothing: all has been told.
  std::optional<v1::WatchEvent> Next();
  size_t size() const { return waiting_.size(); }

 private:
  using Place = std::pair<uint64_t, std::string>;  // revision and name

  const std::string name_;
  std::map<Place, JobPicture> waiting_;
  std::map<std::string, Place> newest_;  // by name, of those that wait and came by Add()
  uint64_t begun_ = 0;
  bool complete_ = false;
  bool caught_up_ = false;
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_WATCH_QUEUE_H_
