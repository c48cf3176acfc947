// Work that a stream or a graph carries out: an Action says what is done, an Op is one execution of it.
//
// Ops form a graph of dependencies that runs itself: an Op starts on the thread that ended its last
// dependency, or is handed to a worker or to the device from there. Nothing waits for an Op except callers
// that want to.
#ifndef SOFTGPU_DRIVER_WORK_H_
#define SOFTGPU_DRIVER_WORK_H_

#include <cuda.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace softgpu {

class Context;
class Op;
using OpPtr = std::shared_ptr<Op>;

// What is done. Immutable once submitted; may run many times, also at the same time (executable graphs).
class Action {
 public:
  enum class Runs : uint8_t {
    kInline,  // ends at once, touches no user memory: runs wherever the last dependency ended
    kWorker,  // takes time or calls the program: runs on a worker thread of the context
    kDevice,  // Begin() starts it, Op::Complete() ends it
  };
  explicit Action(CUgraphNodeType type, Runs runs) : type_(type), runs_(runs) {}
  virtual ~Action() = default;
  Action(const Action&) = delete;
  Action& operator=(const Action&) = delete;

  CUgraphNodeType type() const { return type_; }
  Runs runs() const { return runs_; }

  // kInline and kWorker. A failure breaks the context.
  virtual CUresult Run(Context& context) const;
  // kDevice. Must lead to one op->Complete(), on this or another thread.
  virtual void Begin(Context& context, const OpPtr& op) const;
  // Instead of the above when the context is broken by `error`.
  virtual void Skip(Context& context, CUresult error) const;

 private:
  const CUgraphNodeType type_;
  const Runs runs_;
};
using ActionPtr = std::shared_ptr<const Action>;

// An action made of a function, for work that is no node of a graph by itself.
ActionPtr MakeAction(Action::Runs runs, std::function<CUresult(Context&)> run);

// One execution. Made, given its dependencies, then sealed; from then on it runs by itself. Thread-safe after
// Seal().
class Op final : public std::enable_shared_from_this<Op> {
 public:
  // `action` may be null: the Op only ends when its dependencies have. `context` outlives its Ops.
  static OpPtr Create(Context* context, ActionPtr action, int priority = 0);
  // For RunHere(): when the dependencies have ended, the waiting caller does the work.
  static OpPtr CreateForCaller(Context* context, ActionPtr action);
  ~Op();

  // Before Seal(): starts only after `dependency` (null: nothing) has ended.
  void After(const OpPtr& dependency);
  void Seal();
  // kDevice actions only: the work is over.
  void Complete();

  bool done() const { return state_.load(std::memory_order_acquire) == kDone; }
  void Wait() const;
  // Of an Op made by CreateForCaller, after Seal(): waits, works, and returns what the action returned.
  CUresult RunHere();
  // Called by the worker that was given the Op.
  void RunOnWorker();
  int priority() const { return priority_; }
  Context* context() const { return context_; }

 private:
  enum State : uint32_t { kWaiting, kReady, kDone };
  Op(Context* context, ActionPtr action, int priority, bool caller_runs);
  void Release(std::vector<OpPtr>* ready);
  void Start(std::vector<OpPtr>* ready);
  CUresult Execute();
  void Finish(std::vector<OpPtr>* ready);
  static void Drive(std::vector<OpPtr> ready);

  Context* const context_;
  const int priority_;
  const bool caller_runs_;
  ActionPtr action_;  // given up when done
  std::atomic<uint32_t> state_{kWaiting};
  std::atomic<uint32_t> pending_{1};  // dependencies that have not ended, and one for Seal()
  std::mutex mutex_;
  bool ended_ = false;  // guarded by mutex_, as the next
  std::vector<OpPtr> successors_;
};

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_WORK_H_
