#include "coordinator/agent/membership.h"

#include <algorithm>
#include <utility>

#include "base/log/log.h"
#include "base/quiet_thread.h"
#include "proto/rpc/status.h"

namespace stasis {
namespace {

constexpr auto kPatience = std::chrono::seconds(30);  // for an answer

}  // namespace

Result<std::unique_ptr<Membership>> Membership::Begin(Options options) {
  RETURN_IF_ERROR(OpenChannel(options.scheduler, options.tls).status());
  return std::unique_ptr<Membership>(new Membership(std::move(options)));
}

Membership::Membership(Options options) : options_(std::move(options)) {
  thread_ = StartQuietThread([this] { Loop(); });
}

Membership::~Membership() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
    if (under_way_ != nullptr) under_way_->TryCancel();
  }
  end_.notify_all();
  thread_.join();
}

std::unique_ptr<grpc::ClientContext> Membership::NewContext() {
  auto context = std::make_unique<grpc::ClientContext>();
  std::lock_guard lock(mutex_);
  if (ending_) return nullptr;
  under_way_ = context.get();
  return context;
}

void Membership::Forget() {
  std::lock_guard lock(mutex_);
  under_way_ = nullptr;
}

bool Membership::Wait(Duration time) {
  std::unique_lock lock(mutex_);
  return !end_.wait_for(lock, time, [this] { return ending_; });
}

void Membership::Loop() {
  Duration wait = options_.first_wait;
  do {
    joined_ = false;
    MonotonicTime began = Clock::Real().Now();
    Status lost = Belong();
    // One that takes us in and drops us at once is not to be asked without a rest.
    if (joined_ && Clock::Real().Now() - began > wait) wait = options_.first_wait;
    Tell(lost);
    if (!Wait(wait)) return;
    wait = std::min(2 * wait, options_.longest_wait);
  } while (true);
}

// A connection of its own each time: one that has failed waits by rules of its own before it tries again.
Status Membership::Belong() {
  ASSIGN_OR_RETURN(std::shared_ptr<grpc::Channel> channel, OpenChannel(options_.scheduler, options_.tls));
  std::unique_ptr<v1::Scheduler::Stub> stub = v1::Scheduler::NewStub(channel);
  RETURN_IF_ERROR(Join(*stub));
  return Attend(*stub);
}

Status Membership::Join(v1::Scheduler::Stub& stub) {
  std::unique_ptr<grpc::ClientContext> context = NewContext();
  if (context == nullptr) return Status(StatusCode::kCancelled, "ending");
  context->set_deadline(std::chrono::system_clock::now() + kPatience);
  v1::JoinReply reply;
  Status joined = FromRpcStatus(stub.Join(context.get(), options_.request, &reply), *context, nullptr);
  Forget();
  RETURN_IF_ERROR(joined);
  joined_ = true;
  told_.clear();
  Log(LogLevel::kInfo, "membership", "joined",
      {{"scheduler", options_.scheduler.Target()},
       {"cluster", reply.cluster_id()},
       {"reign", reply.reign()}});
  return Status();
}

// The stream tells nothing; it is there to end when the scheduler does.
Status Membership::Attend(v1::Scheduler::Stub& stub) {
  std::unique_ptr<grpc::ClientContext> context = NewContext();
  if (context == nullptr) return Status(StatusCode::kCancelled, "ending");
  v1::AttendRequest request;
  request.set_node(options_.request.node());
  std::unique_ptr<grpc::ClientReader<v1::AttendReply>> stream = stub.Attend(context.get(), request);
  v1::AttendReply reply;
  while (stream->Read(&reply)) {
  }
  Status lost = FromRpcStatus(stream->Finish(), *context, nullptr);
  Forget();
  if (!lost.ok()) return lost;
  return Status(StatusCode::kUnavailable, "the scheduler has ended the stream");
}

// A failure that repeats itself is told once.
void Membership::Tell(const Status& lost) {
  std::string why = lost.ToString();
  {
    std::lock_guard lock(mutex_);
    if (ending_ || why == told_) return;
  }
  Log(LogLevel::kWarning, "membership", joined_ ? "the scheduler is lost" : "cannot join",
      {{"scheduler", options_.scheduler.Target()},
       {"code", StatusCodeName(lost.code())},
       {"why", std::string(lost.message())}});
  told_ = std::move(why);
}

}  // namespace stasis
