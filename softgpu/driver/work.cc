#include "softgpu/driver/work.h"

#include <utility>

#include "softgpu/driver/context.h"
#include "softgpu/driver/errors.h"
#include "softgpu/driver/workers.h"

namespace softgpu {

namespace {

class FunctionAction final : public Action {
 public:
  FunctionAction(Runs runs, std::function<CUresult(Context&)> run)
      : Action(CU_GRAPH_NODE_TYPE_EMPTY, runs), run_(std::move(run)) {}
  CUresult Run(Context& context) const override { return run_(context); }

 private:
  const std::function<CUresult(Context&)> run_;
};

}  // namespace

CUresult Action::Run(Context&) const { return CUDA_SUCCESS; }
void Action::Begin(Context&, const OpPtr& op) const { op->Complete(); }
void Action::Skip(Context&, CUresult) const {}

ActionPtr MakeAction(Action::Runs runs, std::function<CUresult(Context&)> run) {
  return std::make_shared<FunctionAction>(runs, std::move(run));
}

Op::Op(Context* context, ActionPtr action, int priority, bool caller_runs)
    : context_(context), priority_(priority), caller_runs_(caller_runs), action_(std::move(action)) {}
Op::~Op() = default;

OpPtr Op::Create(Context* context, ActionPtr action, int priority) {
  return OpPtr(new Op(context, std::move(action), priority, false));
}

OpPtr Op::CreateForCaller(Context* context, ActionPtr action) {
  return OpPtr(new Op(context, std::move(action), 0, true));
}

void Op::After(const OpPtr& dependency) {
  if (dependency == nullptr) return;
  std::lock_guard lock(dependency->mutex_);
  if (dependency->ended_) return;
  pending_.fetch_add(1, std::memory_order_relaxed);
  dependency->successors_.push_back(shared_from_this());
}

void Op::Seal() {
  std::vector<OpPtr> ready;
  Release(&ready);
  Drive(std::move(ready));
}

void Op::Complete() {
  std::vector<OpPtr> ready;
  Finish(&ready);
  Drive(std::move(ready));
}

void Op::Wait() const {
  for (uint32_t state; (state = state_.load(std::memory_order_acquire)) != kDone;) state_.wait(state);
}

CUresult Op::RunHere() {
  while (state_.load(std::memory_order_acquire) == kWaiting) state_.wait(kWaiting);
  CUresult result = Execute();
  Complete();
  return result;
}

void Op::RunOnWorker() {
  Execute();
  Complete();
}

void Op::Release(std::vector<OpPtr>* ready) {
  if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) ready->push_back(shared_from_this());
}

// A list instead of recursion: chains of finished work may be long.
void Op::Drive(std::vector<OpPtr> ready) {
  for (size_t i = 0; i < ready.size(); i++) {
    OpPtr op = std::move(ready[i]);
    op->Start(&ready);
  }
}

void Op::Start(std::vector<OpPtr>* ready) {
  if (caller_runs_) {
    state_.store(kReady, std::memory_order_release);
    state_.notify_all();
    return;
  }
  if (action_ == nullptr) return Finish(ready);
  switch (action_->runs()) {
    case Action::Runs::kInline:
      Execute();
      return Finish(ready);
    case Action::Runs::kWorker:
      return context_->workers().Post(shared_from_this());
    case Action::Runs::kDevice:
      break;
  }
  CUresult broken = context_->error();
  if (broken == CUDA_SUCCESS) return action_->Begin(*context_, shared_from_this());
  action_->Skip(*context_, broken);
  Finish(ready);
}

CUresult Op::Execute() {
  if (action_ == nullptr) return context_->error();
  CUresult result = context_->error();
  if (result != CUDA_SUCCESS) {
    action_->Skip(*context_, result);
    return result;
  }
  result = action_->Run(*context_);
  // The caller of a synchronous call learns of its failure by itself.
  if (result != CUDA_SUCCESS && (!caller_runs_ || IsSticky(result))) context_->Break(result);
  return result;
}

void Op::Finish(std::vector<OpPtr>* ready) {
  action_.reset();
  std::vector<OpPtr> successors;
  {
    std::lock_guard lock(mutex_);
    ended_ = true;
    successors.swap(successors_);
  }
  state_.store(kDone, std::memory_order_release);
  state_.notify_all();
  for (const OpPtr& successor : successors) successor->Release(ready);
}

}  // namespace softgpu
