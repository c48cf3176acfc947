// An operation that waits or runs. Thread-safe.
#ifndef COORDINATOR_AGENT_LIVE_OPERATION_H_
#define COORDINATOR_AGENT_LIVE_OPERATION_H_

#include <atomic>
#include <functional>
#include <mutex>
#include <string>

#include "base/fd.h"
#include "coordinator/agent/operation_table.h"
#include "coordinator/agent/operation_trace.h"
#include "coordinator/agent/operations.h"

namespace stasis {

class OperationInterrupt final : public Interrupt {
 public:
  OperationInterrupt();
  int fd() const override { return count_.get(); }
  bool Take() override;
  // To give up; more than once is as once.
  void Ask();
  // Ask(), and once more: not to wait for it.
  void Abandon();
  bool asked() const { return asked_; }
  bool abandoned() const { return abandoned_; }

 private:
  void Add();

  Fd count_;
  std::atomic<bool> asked_{false}, abandoned_{false};
};

class LiveOperation final : public OperationContext {
 public:
  struct Hooks {
    std::function<void(bool urgent)> changed;
    std::function<void(const std::string& job)> job_set;  // what it runs on, beside the job() before
    std::function<std::string()> overruled_by;
    std::function<void(const Status& why, const std::string& remedy)> refuse_others;
  };
  // `recovers`: it was running when the agent was killed.
  LiveOperation(OperationRow row, bool recovers, OperationTable& table, Hooks hooks);

  int64_t number() const { return row_.number; }
  bool recovers() const { return recovers_; }
  std::string verb() const { return row_.operation.verb(); }
  OperationInterrupt& stop() { return interrupt_; }
  v1::Operation Snapshot(bool spans) const;
  // Durable when it returns.
  Status Begin();
  // With its spans, as it is from now on. `*written`: whether it is durable.
  v1::Operation End(const Json& result, Status* written);

  // OperationContext
  const std::string& id() const override { return row_.operation.id(); }
  const std::string& token() const override { return token_; }
  std::string job() const override;
  const Actor& actor() const override { return actor_; }
  const std::string& request() const override { return row_.request; }
  Interrupt& interrupt() override { return interrupt_; }
  void SetJob(const std::string& name) override;
  std::string overruled_by() const override { return hooks_.overruled_by(); }
  void RefuseOthers(const Status& why, const std::string& remedy) override {
    hooks_.refuse_others(why, remedy);
  }
  void Progress(const std::string& phase, uint64_t done, uint64_t total) override;
  void Note(const std::string& sentence) override;
  uint32_t BeginSpan(std::string_view name, uint32_t parent, std::string_view rank) override;
  void EndSpan(uint32_t span, uint64_t bytes) override;
  void TakeEvent(const std::string& rank, const Json& event) override;
  Status Remember(const Json& state) override;
  Json remembered() const override;

 private:
  void Changed(bool urgent);

  OperationTable& table_;
  const Hooks hooks_;
  const bool recovers_;
  const Actor actor_;
  const std::string token_;
  OperationTrace trace_;
  OperationInterrupt interrupt_;

  mutable std::mutex mutex_;
  OperationRow row_;  // guarded by mutex_, but for what never changes: number, id, verb, request
};

// How an operation has ended that has this result.
v1::OperationState StateOfResult(const Json& result);

}  // namespace stasis

#endif  // COORDINATOR_AGENT_LIVE_OPERATION_H_
