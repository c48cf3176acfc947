// Tells subscribers of operations that have changed, from one thread: state at once, progress in rounds.
#ifndef COORDINATOR_AGENT_OPERATION_NOTIFIER_H_
#define COORDINATOR_AGENT_OPERATION_NOTIFIER_H_

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "coordinator/agent/operations.h"

namespace stasis {

class OperationNotifier {
 public:
  using Changed = std::function<void(const v1::Operation&)>;
  using Read = std::function<v1::Operation()>;

  OperationNotifier();
  ~OperationNotifier();

  std::unique_ptr<Operations::Subscription> Subscribe(const std::string& id, Changed changed);
  // `read` gives what is newest when it is told; the one that was set last counts.
  void Post(const std::string& id, bool urgent, Read read);

 private:
  struct Subscriber {
    std::string id;
    Changed changed;
    std::recursive_mutex running;  // while it is called
    bool ended = false;            // guarded by running
  };
  class Handle;

  void Run();
  void Tell(const std::map<std::string, Read>& changed);

  std::mutex mutex_;
  std::condition_variable wake_;
  std::map<std::string, Read> posted_;
  bool urgent_ = false, stopping_ = false;
  std::vector<std::weak_ptr<Subscriber>> subscribers_;
  std::thread thread_;
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_OPERATION_NOTIFIER_H_
