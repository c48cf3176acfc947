#include "cli/top_source.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include "cli/agent_client.h"

namespace stasis {
namespace {

constexpr auto kInterval = std::chrono::seconds(1);
constexpr int kOperations = 100;

Status Ask(AgentClient& client, TopNode* node) {
  ASSIGN_OR_RETURN(node->info, client.Call(&v1::Agent::Stub::Info, v1::InfoRequest()));
  v1::ListRequest list;
  ASSIGN_OR_RETURN(v1::ListResponse jobs, client.Call(&v1::Agent::Stub::List, list));
  node->jobs.assign(jobs.jobs().begin(), jobs.jobs().end());
  v1::ListOperationsRequest wanted;
  wanted.set_limit(kOperations);
  ASSIGN_OR_RETURN(v1::ListOperationsResponse operations,
                   client.Call(&v1::Agent::Stub::ListOperations, wanted));
  node->operations.assign(operations.operations().begin(), operations.operations().end());
  // Last, and no reason to know nothing else: a node may have none.
  Result<v1::DevicesResponse> devices = client.Call(&v1::Agent::Stub::Devices, v1::DevicesRequest());
  node->devices = devices.ok() ? *std::move(devices) : v1::DevicesResponse();
  return Status();
}

void Refresh(AgentClient& client, TopNode* node) {
  Status status = Ask(client, node);
  node->error = status.ok() ? "" : status.ToString();
}

}  // namespace

TopNode AskTopNode(const std::string& endpoint) {
  TopNode node;
  node.endpoint = endpoint;
  Result<AgentClient> client = AgentClient::Open(endpoint);
  if (client.ok())
    Refresh(*client, &node);
  else
    node.error = client.status().ToString();
  return node;
}

TopSource::TopSource(const std::vector<std::string>& endpoints)
    : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), nodes_(endpoints.size()) {
  for (size_t i = 0; i < endpoints.size(); i++) {
    nodes_[i].endpoint = endpoints[i];
    nodes_[i].error = "asking";
  }
  for (size_t i = 0; i < endpoints.size(); i++) threads_.emplace_back([this, i] { Run(i); });
}

TopSource::~TopSource() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void TopSource::Run(size_t index) {
  std::unique_lock lock(mutex_);
  TopNode node = nodes_[index];
  Result<AgentClient> client = AgentClient::Open(node.endpoint);
  if (!client.ok()) nodes_[index].error = client.status().ToString();
  while (client.ok() && !stopping_) {
    lock.unlock();
    Refresh(*client, &node);
    lock.lock();
    nodes_[index] = node;
    uint64_t one = 1;
    (void)!write(event_.get(), &one, sizeof one);
    stop_.wait_for(lock, kInterval, [this] { return stopping_; });
  }
}

std::vector<TopNode> TopSource::Take() {
  uint64_t count;
  (void)!read(event_.get(), &count, sizeof count);
  std::lock_guard lock(mutex_);
  return nodes_;
}

}  // namespace stasis
