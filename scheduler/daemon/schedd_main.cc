// stasis-schedd: the scheduler of a cluster. Parses, starts it, waits for a signal, ends it.
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/service_manager.h"
#include "base/worker_pool.h"
#include "proto/rpc/audit.h"
#include "proto/rpc/call_observer.h"
#include "proto/rpc/daemon.h"
#include "proto/rpc/doors.h"
#include "proto/rpc/fencing.h"
#include "proto/rpc/gate.h"
#include "proto/rpc/server.h"
#include "scheduler/daemon/attendance.h"
#include "scheduler/daemon/config.h"
#include "scheduler/daemon/core.h"
#include "scheduler/daemon/driver.h"
#include "scheduler/daemon/event_hub.h"
#include "scheduler/daemon/metrics.h"
#include "scheduler/daemon/service.h"
#include "scheduler/daemon/steady_time.h"
#include "scheduler/daemon/web/page.h"

namespace stasis::scheduler {
namespace {

constexpr int kReaders = 4, kWriters = 4;
constexpr size_t kMostWaiting = 1024;
// A service manager is not to start it again (scripts/systemd/stasis-schedd.service).
constexpr int kExitFencedOff = 3;
// For answers that are on their way when everything else has ended.
constexpr auto kLastAnswers = std::chrono::seconds(2);

// Why the process ends: a signal, or something that it cannot go on after.
class End {
 public:
  Status Begin() {
    ASSIGN_OR_RETURN(EndSignals signals, EndSignals::Take());
    signals_ = std::move(signals);
    failed_.Reset(eventfd(0, EFD_CLOEXEC));
    return failed_.valid() ? Status() : ErrnoStatus(errno, "eventfd");
  }
  void Fail(const Status& why) {
    {
      std::lock_guard lock(mutex_);
      if (why_.ok()) why_ = why;
    }
    const uint64_t one = 1;
    while (write(failed_.get(), &one, sizeof one) < 0 && errno == EINTR) {
    }
  }
  // OK: by a signal.
  Status Await() {
    pollfd waits[] = {{signals_->fd(), POLLIN, 0}, {failed_.get(), POLLIN, 0}};
    for (;;) {
      if (poll(waits, 2, -1) < 0) continue;
      if (waits[1].revents != 0) break;
      if (signals_->Read() != 0) break;
    }
    std::lock_guard lock(mutex_);
    return why_;
  }

 private:
  std::optional<EndSignals> signals_;
  Fd failed_;
  std::mutex mutex_;
  Status why_;
};

class Scheduler {
 public:
  // In the order in which they begin; they end in the other.
  static Result<std::unique_ptr<Scheduler>> Start(const SchedulerConfig& config, End& end) {
    std::unique_ptr<Scheduler> scheduler(new Scheduler);
    RETURN_IF_ERROR(scheduler->Begin(config, end));
    return scheduler;
  }
  // Who asks for metrics looks at the others.
  ~Scheduler() { metrics_.Stop(); }
  void Stop() {
    page_.reset();
    metrics_.Stop();
    events_->Stop();
    attendance_.Stop();
    server_->Stop(kLastAnswers);
  }
  const std::vector<Endpoint>& endpoints() const { return server_->endpoints(); }
  // "": none.
  std::string page() const { return page_ == nullptr ? "" : page_->address(); }
  const std::string& metrics_address() const { return metrics_address_; }  // "": none
  const SchedulerCore& core() const { return *core_; }

 private:
  Scheduler() = default;
  Status Begin(const SchedulerConfig& config, End& end) {
    ASSIGN_OR_RETURN(store_, Store::Open(config.state + "/schedd.db"));
    audit_ = std::make_unique<Audit>(store_->database());
    SchedulerCore::Options options;
    options.cluster.lease = config.lease;
    options.cluster.image_wait = config.image_wait;
    options.cluster.settle = config.settle;
    options.policy = config.policy;
    options.keep_ended = config.keep_ended;
    options.compact_after = config.compact_after;
    options.restless = [policy = config.policy] {
      Log(LogLevel::kError, "schedd", "decisions do not come to rest; none for a while",
          {{"policy", policy}});
    };
    options.not_compacted = [](const Status& why) {
      Log(LogLevel::kWarning, "schedd", "no snapshot", {{"why", why.ToString()}});
    };
    options.now = [this] { return time_.Now(); };
    options.broken = [&end](const Status& why) { end.Fail(why); };
    options.happens = [this](const Cluster& before, const StoredFact& fact) {
      metrics_.Happens(before, fact);
    };
    options.decided = [this](Duration took) { metrics_.Decided(took); };
    ASSIGN_OR_RETURN(core_, SchedulerCore::Open(*store_, std::move(options)));
    Driver::Options driver;
    driver.connect = [tls = config.tls](const std::string& address) { return ConnectToAgent(address, tls); };
    driver.node_timeout = config.node_timeout;
    driver.progress_window = std::chrono::milliseconds(config.settle) / 2;
    driver.checkpoint_interval = config.checkpoint_interval;
    driver.pause_timeout = config.pause_timeout;
    driver.fenced_off = [&end](const Status& why) { end.Fail(why); };
    driver_ = std::make_unique<Driver>(*core_, std::move(driver));
    return BeginServer(config);
  }
  Status BeginServer(const SchedulerConfig& config) {
    std::vector<Endpoint> clear;
    for (const Endpoint& endpoint : config.listen) {
      if (RpcServer::IsClear(endpoint, config.tls)) clear.push_back(endpoint);
    }
    ASSIGN_OR_RETURN(doors_, Doors::Open(clear));
    gate_.emplace(*doors_);
    readers_.emplace(kReaders, kMostWaiting);
    writers_.emplace(kWriters, kMostWaiting);
    events_.emplace(*core_);
    ServiceParts parts;
    parts.core = core_.get();
    parts.joining = driver_.get();
    parts.events = &*events_;
    parts.attendance = &attendance_;
    parts.gate = &*gate_;
    parts.audit = audit_.get();
    parts.readers = &*readers_;
    parts.writers = &*writers_;
    service_.emplace(parts);
    RpcServer::Options options;
    options.endpoints = config.listen;
    options.tls = config.tls;
    options.services = {&*service_};
    options.observer = std::make_unique<CallObserver>(
        *gate_, *audit_, [this](const std::string& method, int code, double seconds) {
          metrics_.CallEnded(method, code, seconds);
        });
    options.refused = [this](const Status& why) {
      metrics_.TurnedAway();
      audit_->Record({"", "", "", "connect", "", "", why});
    };
    ASSIGN_OR_RETURN(server_, RpcServer::Start(std::move(options), *doors_));
    metrics_.SetCore(core_.get());
    if (!config.metrics.empty()) {
      ASSIGN_OR_RETURN(metrics_address_, metrics_.Serve(config.metrics));
    }
    if (!config.web) return Status();
    ASSIGN_OR_RETURN(page_, WebPage::Start(*core_, *config.web));
    return Status();
  }

  std::string metrics_address_;
  SteadyTime time_{SteadyTime::Real()};
  SchedulerMetrics metrics_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Audit> audit_;
  std::unique_ptr<SchedulerCore> core_;
  std::unique_ptr<Driver> driver_;
  std::unique_ptr<Doors> doors_;
  std::optional<Gate> gate_;
  std::optional<WorkerPool> readers_, writers_;
  std::optional<EventHub> events_;
  Attendance attendance_;
  std::optional<SchedulerService> service_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<WebPage> page_;
};

Status Serve(const SchedulerConfig& config) {
  End end;
  RETURN_IF_ERROR(end.Begin());
  ASSIGN_OR_RETURN(std::unique_ptr<Scheduler> scheduler, Scheduler::Start(config, end));
  nlohmann::json listens = nlohmann::json::array();
  for (const Endpoint& endpoint : scheduler->endpoints()) listens.push_back(endpoint.Target());
  nlohmann::json facts = {{"listen", listens},
                          {"state", config.state},
                          {"cluster", scheduler->core().cluster_id()},
                          {"reign", scheduler->core().reign()},
                          {"policy", config.policy}};
  if (!scheduler->page().empty()) facts["web"] = scheduler->page();
  if (!scheduler->metrics_address().empty()) facts["metrics"] = scheduler->metrics_address();
  Log(LogLevel::kInfo, "schedd", "ready", facts);
  TellServiceManager("READY=1");
  const Status why = end.Await();
  Log(LogLevel::kInfo, "schedd", "ending");
  TellServiceManager("STOPPING=1");
  scheduler->Stop();
  scheduler.reset();
  if (why.ok()) Log(LogLevel::kInfo, "schedd", "ended");
  return why;
}

int Main(const std::vector<std::string>& arguments) {
  SchedulerConfig config;
  const ConfigOutcome outcome = ParseConfig(arguments, &config);
  if (outcome.done) return PrintOutcome(outcome);
  const Status served = RunDaemon("schedd", config.log_level, [&config] { return Serve(config); });
  if (served.ok()) return 0;
  return IsFencedOff(served) ? kExitFencedOff : 1;
}

}  // namespace
}  // namespace stasis::scheduler

int main(int argc, char** argv) {
  return stasis::scheduler::Main(std::vector<std::string>(argv + 1, argv + argc));
}
