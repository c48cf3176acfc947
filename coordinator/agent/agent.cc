#include "coordinator/agent/agent.h"

#include <utility>

#include "base/log/log.h"
#include "coordinator/agent/image_copy.h"
#include "coordinator/agent/kinds.h"
#include "coordinator/agent/migration.h"
#include "coordinator/agent/peer_link.h"
#include "coordinator/agent/schedule_rules.h"
#include "coordinator/agent/schema.h"
#include "proto/rpc/call_observer.h"

namespace stasis {
namespace {

constexpr int kReaders = 4, kWriters = 4;
constexpr size_t kMostWaiting = 1024;
// For answers that are on their way when everything else has ended.
constexpr auto kLastAnswers = std::chrono::seconds(2);

}  // namespace

Result<std::unique_ptr<Agent>> Agent::Start(const AgentConfig& config, const Site& site) {
  std::unique_ptr<Agent> agent(new Agent(config, site));
  RETURN_IF_ERROR(agent->Begin());
  return agent;
}

Status Agent::Begin() {
  RETURN_IF_ERROR(BeginState());
  RETURN_IF_ERROR(BeginOperations());
  RETURN_IF_ERROR(BeginServer());
  RETURN_IF_ERROR(BeginMembership());
  if (config_.metrics.empty()) return Status();
  ASSIGN_OR_RETURN(metrics_address_, metrics_.Serve(config_.metrics));
  return Status();
}

Status Agent::BeginState() {
  ASSIGN_OR_RETURN(database_, Database::Open(site_.folders.state + "/agent.db", SchemaSteps()));
  audit_ = std::make_unique<Audit>(*database_);
  ASSIGN_OR_RETURN(fence_, Fence::Load(*database_));
  std::vector<Endpoint> clear;
  for (const Endpoint& endpoint : config_.listen) {
    if (RpcServer::IsClear(endpoint, config_.tls)) clear.push_back(endpoint);
  }
  ASSIGN_OR_RETURN(doors_, Doors::Open(clear));
  gate_.emplace(*doors_);
  ASSIGN_OR_RETURN(registry_, Registry::Start(site_));
  ASSIGN_OR_RETURN(std::vector<DbRow> id, database_->Query("SELECT value FROM meta WHERE key = 'agent_id'"));
  if (id.size() != 1) return Status(StatusCode::kCorrupt, "the agent's database does not say whose it is");
  node_.emplace(site_, config_.node_name, config_.peer_address, id[0].Text(0));
  return Status();
}

Status Agent::SetSchedule(const std::string& job, const v1::Schedule& rules) {
  v1::Schedule wanted = rules;
  wanted.set_job(job);
  return schedules_.Set(wanted).status();
}

Result<std::unique_ptr<PeerLink>> Agent::ConnectTo(const std::string& address) const {
  ASSIGN_OR_RETURN(Endpoint endpoint, ParseEndpoint(address));
  return ConnectPeer(endpoint, config_.tls);
}

// Of what another node has taken back.
Status Agent::EndJob(const std::string& job) {
  v1::CancelRequest request;
  request.set_job(job);
  const Actor actor{"peer", Role::kAgent};
  ASSIGN_OR_RETURN(v1::Operation cancel,
                   operations_->Submit({"cancel", job, request.SerializeAsString(), "", actor}));
  ASSIGN_OR_RETURN(cancel, operations_->Await(cancel.id()));
  if (cancel.state() == v1::OPERATION_STATE_SUCCEEDED) return Status();
  JobPicture now = registry_->Find(job);
  if (now == nullptr || !now->live()) return Status();
  return Status(StatusCode::kUnavailable, job + " does not end: " + cancel.result_json());
}

Operations::Kinds Agent::MakeOperationKinds() {
  KindOptions options;
  options.site = site_;
  options.set_schedule = [this](const std::string& job, const v1::Schedule& schedule, const Actor&) {
    return SetSchedule(job, schedule);
  };
  options.set_moved_to = [registry = registry_.get()](const std::string& job, const std::string& node) {
    registry->SetMovedTo(job, node);
  };
  MigrationOptions migration;
  migration.site = site_;
  migration.registry = registry_.get();
  migration.node = node_->Info().name();
  migration.agent_id = node_->Info().agent_id();
  migration.connect = [this](const std::string& node) { return ConnectTo(node); };
  migration.reclaim = [this](const Reclaim& reclaim) { return reclaims_->Add(reclaim); };
  migration.schedule_of = [this](const std::string& job) -> std::optional<v1::Schedule> {
    std::vector<v1::Schedule> schedules = schedules_.List(job);
    if (schedules.empty()) return std::nullopt;
    return RulesOf(schedules[0]);
  };
  options.image_copy = MakeImageCopy(migration);
  options.node_migration = MakeNodeMigration(std::move(migration));
  return MakeKinds(std::move(options));
}

Status Agent::BeginOperations() {
  reclaims_ = std::make_unique<Reclaims>(
      *database_, [this](const std::string& address) { return ConnectTo(address); }, node_->Info().name());
  ASSIGN_OR_RETURN(operations_, Operations::Start(*database_, *registry_, MakeOperationKinds()));
  counted_ = operations_->Subscribe(
      "", [this](const v1::Operation& operation) { metrics_.OperationChanged(operation); });
  ScheduleOptions options;
  options.folders = site_.folders;
  options.default_mtbf_ms = config_.mtbf_ms;
  ASSIGN_OR_RETURN(std::unique_ptr<Schedules> schedules,
                   Schedules::Start(*database_, *registry_, *operations_, options));
  schedules_.Fill(std::move(schedules));
  ASSIGN_OR_RETURN(incoming_, Incoming::Start(
                                  site_, *database_, *registry_,
                                  [this](const std::string& job, const v1::Schedule& rules) {
                                    return SetSchedule(job, rules);
                                  },
                                  [this](const std::string& job) { return EndJob(job); }));
  return Status();
}

Status Agent::BeginServer() {
  readers_.emplace(kReaders, kMostWaiting);
  writers_.emplace(kWriters, kMostWaiting);
  watches_.emplace(*registry_);
  ASSIGN_OR_RETURN(logs_, LogHub::Start(site_, *registry_, *readers_));
  progress_.emplace(*registry_, [this](const v1::Rank& rank) { return AskProgress(site_.folders, rank); });
  service_.emplace(AgentParts{site_, &*gate_, audit_.get(), fence_.get(), registry_.get(), operations_.get(),
                              &schedules_, &*node_, &*progress_, &*watches_, logs_.get(), &*readers_,
                              &*writers_});
  v1::NodeInfo info = node_->Info();
  v1::HelloReply hello;
  hello.set_api(info.api());
  hello.set_agent_id(info.agent_id());
  hello.set_node(info.name());
  hello.set_version(info.version());
  peers_.emplace(*gate_, *audit_, *incoming_, std::move(hello));
  RpcServer::Options options;
  options.endpoints = config_.listen;
  options.tls = config_.tls;
  options.services = {&*service_, &*peers_};
  options.observer = std::make_unique<CallObserver>(
      *gate_, *audit_, [this](const std::string& method, int code, double seconds) {
        metrics_.CallEnded(method, code, seconds);
      });
  options.refused = [this](const Status& why) {
    metrics_.TurnedAway();
    audit_->Record({"", "", "", "connect", "", "", why});
  };
  ASSIGN_OR_RETURN(server_, RpcServer::Start(std::move(options), *doors_));
  metrics_.SetSources(
      {registry_.get(), [this] { return watches_->streams(); }, [this] { return audit_->dropped(); }});
  return Status();
}

Status Agent::BeginMembership() {
  if (config_.join.empty()) return Status();
  Membership::Options options;
  ASSIGN_OR_RETURN(options.scheduler, ParseEndpoint(config_.join));
  options.tls = config_.tls;
  v1::NodeInfo info = node_->Info();
  options.request.set_address(config_.peer_address.empty() ? server_->endpoints().front().Target()
                                                           : config_.peer_address);
  options.request.set_node(info.name());
  options.request.set_agent_id(info.agent_id());
  ASSIGN_OR_RETURN(membership_, Membership::Begin(std::move(options)));
  return Status();
}

void Agent::Stop() {
  membership_.reset();
  node_->SetDraining();
  doors_->Stop();
  watches_->Stop();
  logs_->Stop();
  schedules_.Empty();
  incoming_->Stop();
  // Who watches an operation is told its end by the server, which is still there.
  operations_->Stop(config_.patience);
  server_->Stop(kLastAnswers);
  metrics_.Stop();
}

}  // namespace stasis
