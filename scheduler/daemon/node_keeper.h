// Keeps the connection to the agent of one node: meets it, follows what it tells, notices when it is gone.
#ifndef SCHEDULER_DAEMON_NODE_KEEPER_H_
#define SCHEDULER_DAEMON_NODE_KEEPER_H_

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/status.h"
#include "scheduler/daemon/agent_link.h"

namespace stasis::scheduler {

using Pictures = std::map<std::string, v1::Job>;  // by name

class NodeKeeper {
 public:
  // Told from the keeper's threads, one call at a time.
  class Host {
   public:
    virtual ~Host() = default;
    // The agent has answered, and these are all its jobs. An error: it is not to be used.
    virtual Status Met(const std::string& node, const v1::NodeInfo& info, const v1::DevicesResponse& devices,
                       const std::shared_ptr<AgentLink>& link, const Pictures& jobs) = 0;
    // A job of a node that was met has changed.
    virtual void Told(const std::string& node, const v1::Job& job) = 0;
    // What the processes of its running jobs have counted.
    virtual void Progressed(const std::string& node, const v1::ProgressResponse& progress) = 0;
    // What was met is not reached at the moment.
    virtual void Parted(const std::string& node) = 0;
    // It has not been reached for the timeout.
    virtual void Lost(const std::string& node) = 0;
  };
  struct Options {
    std::string node, address;
    std::string kind;   // of the devices that are asked for
    bool lost = false;  // that it is has been told already
    Duration timeout = std::chrono::seconds(30);
    Duration progress_window = std::chrono::seconds(30);
    ConnectAgent connect;
  };

  // `host` outlives the object.
  NodeKeeper(Options options, Host& host);
  ~NodeKeeper();
  NodeKeeper(const NodeKeeper&) = delete;
  NodeKeeper& operator=(const NodeKeeper&) = delete;

  const std::string& address() const { return options_.address; }

 private:
  void Loop();
  Status Session();
  Status Follow(const std::shared_ptr<AgentLink>& link);
  void WatchJobs(const std::shared_ptr<AgentLink>& link, const v1::NodeInfo& info,
                 const v1::DevicesResponse& devices);
  void AskProgress(AgentLink& link);
  void Heard();
  void TellIfLost();
  // False: the keeper ends.
  bool Pause(Duration longest);

  const Options options_;
  Host& host_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ending_ = false;
  bool session_over_ = false;
  std::atomic<bool> met_ = false;  // by this connection: until then nothing that it answers counts
  std::shared_ptr<AgentLink> link_;
  MonotonicTime heard_;
  bool lost_;
  std::thread thread_;
};

}  // namespace stasis::scheduler

#endif  // SCHEDULER_DAEMON_NODE_KEEPER_H_
