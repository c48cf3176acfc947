// The Agent service: checks who calls and what is asked, then hands on to the part that does it.
#ifndef COORDINATOR_AGENT_SERVICE_H_
#define COORDINATOR_AGENT_SERVICE_H_

#include <string>

#include "coordinator/agent/gate.h"
#include "coordinator/agent/node_facts.h"
#include "coordinator/agent/registry.h"
#include "coordinator/agent/worker_pool.h"
#include "stasis/v1/agent.grpc.pb.h"

namespace stasis {

// What the service hands on to. All outlive it.
struct AgentParts {
  Site site;
  Gate* gate = nullptr;
  Registry* registry = nullptr;
  NodeFacts* node = nullptr;
  WorkerPool* pool = nullptr;
};

class AgentService final : public v1::Agent::CallbackService {
 public:
  explicit AgentService(const AgentParts& parts) : parts_(parts) {}

  using Context = grpc::CallbackServerContext;
  using Reactor = grpc::ServerUnaryReactor;
  Reactor* Info(Context* context, const v1::InfoRequest* request, v1::NodeInfo* response) override;
  Reactor* Devices(Context* context, const v1::DevicesRequest* request,
                   v1::DevicesResponse* response) override;
  Reactor* List(Context* context, const v1::ListRequest* request, v1::ListResponse* response) override;

 private:
  const AgentParts parts_;
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_SERVICE_H_
