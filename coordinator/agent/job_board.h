// The pictures of all jobs as they were read last, and who is told of changes. Memory only. Thread-safe.
#ifndef COORDINATOR_AGENT_JOB_BOARD_H_
#define COORDINATOR_AGENT_JOB_BOARD_H_

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "coordinator/agent/registry.h"

namespace stasis {

class JobBoard {
 public:
  // Revisions begin after `revision`. `queued` is called when Deliver() has something to do.
  JobBoard(uint64_t revision, std::function<void()> queued)
      : revision_(revision), queued_(std::move(queued)) {}

  std::vector<JobPicture> List() const;
  JobPicture Find(const std::string& name) const;
  uint64_t revision() const;
  std::vector<std::string> Notes() const;

  // What was read of a job; operation and moved_to are set here. No change unless something differs.
  void Put(v1::Job job);
  void Remove(const std::string& name);
  // Why a job cannot be read; it stays as it was. Until the next Put() or Remove().
  void PutNote(const std::string& name, const std::string& sentence);
  void SetOperation(const std::string& name, const std::string& operation);
  void SetMovedTo(const std::string& name, const std::string& node);

  std::unique_ptr<Registry::Subscription> Subscribe(std::function<void(const JobPicture&)> changed);
  // Tells the subscribers what has changed since the last call. From one thread.
  void Deliver();

 private:
  class Subscriber;
  struct Entry {
    v1::Job read;  // without what is added here
    JobPicture shown;
  };
  void Show(Entry* entry);
  void Queue(const JobPicture& picture);

  mutable std::mutex mutex_;
  std::map<std::string, Entry> jobs_;
  std::map<std::string, std::string> operations_;  // by job
  std::map<std::string, std::string> moved_to_;    // by job
  std::map<std::string, std::string> notes_;       // by job
  std::deque<JobPicture> queue_;
  uint64_t revision_;
  const std::function<void()> queued_;

  // Held while subscribers are called; they may end subscriptions meanwhile. Taken before mutex_.
  std::recursive_mutex delivery_mutex_;
  std::set<Subscriber*> subscribers_;
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_JOB_BOARD_H_
