// Everything that changes a job, one operation after the other for each job, several jobs side by side.
//
// An operation is on stable storage before it begins and when it has ended. After the agent was killed the
// next one takes up what had not ended: its kind's Recover() finds out from the ghosts and files what became
// of it. Thread-safe.
#ifndef COORDINATOR_AGENT_OPERATIONS_H_
#define COORDINATOR_AGENT_OPERATIONS_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/sqlite/database.h"
#include "base/status.h"
#include "coordinator/agent/registry.h"
#include "coordinator/interrupt.h"
#include "coordinator/node/layout.h"
#include "proto/rpc/actor.h"
#include "stasis/v1/operation.pb.h"

namespace stasis {

// What a kind of operation sees of the one that it carries out. Of the thread that carries it out, but for
// spans, notes and progress, which any thread may add. What a ghost tells becomes spans within the latest one
// that was begun here and goes on.
class OperationContext {
 public:
  virtual ~OperationContext() = default;
  virtual const std::string& id() const = 0;
  // What ghosts and other agents know it by: unlike the id never used again, whatever becomes of the
  // database.
  virtual const std::string& token() const = 0;
  virtual std::string job() const = 0;
  virtual const Actor& actor() const = 0;
  // The serialized request message.
  virtual const std::string& request() const = 0;
  // Readable once somebody has asked to give the operation up, or the agent is about to end; a second time
  // when the agent cannot wait any longer: then Carry() leaves what it does to itself, and returns with
  // CANCELLED.
  virtual Interrupt& interrupt() = 0;
  // The operation turns out to be of this job (a run that was given no name).
  virtual void SetJob(const std::string& name) = 0;
  // The verb of an order that waits for the end of this one and says what becomes of the job whatever this
  // one may find out (OperationKind::decides); "": there is none.
  virtual std::string overruled_by() const = 0;
  // From now on, whatever waits for the end of this one ends at once with `why`, but for what decides. OK: it
  // waits again. Over when this one has ended.
  virtual void RefuseOthers(const Status& why, const std::string& remedy) = 0;

  virtual void Progress(const std::string& phase, uint64_t done, uint64_t total) = 0;
  virtual void Note(const std::string& sentence) = 0;
  virtual uint32_t BeginSpan(std::string_view name, uint32_t parent = 0, std::string_view rank = "") = 0;
  virtual void EndSpan(uint32_t span, uint64_t bytes = 0) = 0;
  // An event of a ghost ({"phase", "done", "total"}): progress, and the span of its phase.
  virtual void TakeEvent(const std::string& rank, const Json& event) = 0;

  // What Recover() needs, on stable storage when it returns. Replaces what was there.
  virtual Status Remember(const Json& state) = 0;
  virtual Json remembered() const = 0;
};

// A span for a scope.
class ScopedSpan {
 public:
  ScopedSpan(OperationContext& context, std::string_view name, uint32_t parent = 0)
      : context_(context), span_(context.BeginSpan(name, parent)) {}
  ~ScopedSpan() { context_.EndSpan(span_, bytes_); }
  ScopedSpan(const ScopedSpan&) = delete;
  ScopedSpan& operator=(const ScopedSpan&) = delete;
  uint32_t id() const { return span_; }
  void set_bytes(uint64_t bytes) { bytes_ = bytes; }

 private:
  OperationContext& context_;
  const uint32_t span_;
  uint64_t bytes_ = 0;
};

class OperationKind {
 public:
  virtual ~OperationKind() = default;
  // Both return a result in the form of a ghost's: docs/ghost-protocol.md, "Results".
  virtual Json Carry(OperationContext& context) = 0;
  // The agent was killed while Carry() or Recover() ran: brings the operation to an end, forwards or back.
  virtual Json Recover(OperationContext& context) = 0;
  // It ends what the others work on: the one that runs on the job is asked to give up, those that wait in
  // front of it are.
  virtual bool preempts() const { return false; }
  // What that request asks for says what becomes of the job, also where the one that runs on the job cannot
  // find it out: OperationContext::overruled_by().
  virtual bool decides(const std::string& /*request*/) const { return false; }
  // It does not touch the job: it runs beside the others on it, one of its kind after the other, and is not
  // told as what runs on the job.
  virtual bool beside() const { return false; }
};

struct OperationRequest {
  std::string verb;     // the kind's name
  std::string job;      // may be empty for run
  std::string request;  // serialized; two requests with one key are the same when these bytes are
  std::string key;      // idempotency; empty: none
  Actor actor;
};

class Operations {
 public:
  using Kinds = std::map<std::string, std::unique_ptr<OperationKind>>;  // by verb
  // Takes up what had not ended. Ends with the object as Stop() does. All three must outlive it.
  static Result<std::unique_ptr<Operations>> Start(Database& database, Registry& registry, Kinds kinds);
  virtual ~Operations() = default;

  // On stable storage when it returns. kInvalidArgument: the key was used for another request, or there is no
  // such verb; kResourceExhausted: too many are queued; kUnavailable: the agent is about to end.
  virtual Result<v1::Operation> Submit(const OperationRequest& request) = 0;
  virtual Result<v1::Operation> Get(const std::string& id, bool spans) const = 0;  // kNotFound
  virtual Result<std::vector<v1::Operation>> List(const v1::ListOperationsRequest& request) const = 0;
  // One that waits has ended when this returns; one that has ended is returned as it is.
  virtual Result<v1::Operation> Cancel(const std::string& id) = 0;
  // Returns when it has ended. For the agent's own; kCancelled when the agent stops first.
  virtual Result<v1::Operation> Await(const std::string& id) = 0;

  // As Registry::Subscribe; of one operation, or of all (""). `changed` is called from a thread of its own,
  // with what is newest: progress in quick succession is told as one. Once the subscription is destroyed it
  // is not running any more, unless it is itself that destroys it. Spans are not told: Get() has them.
  class Subscription {
   public:
    virtual ~Subscription() = default;
  };
  virtual std::unique_ptr<Subscription> Subscribe(const std::string& id,
                                                  std::function<void(const v1::Operation&)> changed) = 0;

  // Takes no new ones, asks the running ones to give up, and returns when all have ended or `patience` is
  // over; what has not ended then is taken up by the next agent.
  virtual void Stop(Duration patience) = 0;
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_OPERATIONS_H_
