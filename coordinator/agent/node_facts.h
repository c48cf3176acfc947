// What a node is: what Info and Devices tell.
#ifndef COORDINATOR_AGENT_NODE_FACTS_H_
#define COORDINATOR_AGENT_NODE_FACTS_H_

#include <atomic>
#include <map>
#include <mutex>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "coordinator/agent/registry.h"
#include "coordinator/node/device_choice.h"
#include "coordinator/node/site.h"
#include "stasis/v1/agent.pb.h"

namespace stasis {

// Thread-safe.
class NodeFacts {
 public:
  NodeFacts(Site site, std::string name, std::string peer_address, std::string agent_id);

  v1::NodeInfo Info() const;
  // No operation that changes something is taken any more.
  void SetDraining() { draining_ = true; }
  bool draining() const { return draining_; }

  // Blocks: drivers are opened in a child process. `jobs` is who is on the devices.
  Result<v1::DevicesResponse> Devices(const std::string& kind, const std::vector<JobPicture>& jobs);

 private:
  struct Probe {
    DeviceChoice choice;
    MonotonicTime at{};
  };
  Result<DeviceChoice> Choose(const std::string& kind);

  const Site site_;
  v1::NodeInfo info_;
  std::atomic<bool> draining_{false};
  std::mutex mutex_;
  std::map<std::string, Probe> probes_;  // by kind
};

// Puts the names of the jobs that are on them on the devices.
void PlaceJobs(const std::vector<JobPicture>& jobs, v1::DevicesResponse* devices);

}  // namespace stasis

#endif  // COORDINATOR_AGENT_NODE_FACTS_H_
