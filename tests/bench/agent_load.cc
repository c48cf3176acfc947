// Load on a node agent, and an empty gRPC server to compare with.
//
// usage: agent_load echo SOCKET
//          answers every List at once with nothing; prints "ready", ends with its standard input
//        agent_load run SOCKET --echo SOCKET --streams N --rate N --seconds N [--jobs NAME,... --changes N]
//          N Watch streams, and N calls a second for so long: of five, two List all jobs, one lists one, one
//          is Info and one ListOperations. As many calls as List all jobs go to the empty server, in between.
//          Meanwhile N times a second one of the named jobs is paused, or resumed. Prints one JSON object; a
//          call that was not answered well is an error.
//
// A call's time begins when it was due, so that one that is late because others were slow counts as slow.
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "stasis/v1/agent.grpc.pb.h"

namespace stasis {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::seconds;
constexpr int kStreamsOfChannel = 100;
constexpr auto kPatience = seconds(60);

struct Settings {
  std::string agent, echo;
  int streams = 0, rate = 0, seconds = 0, changes = 0;
  std::vector<std::string> jobs;
};

std::shared_ptr<grpc::Channel> Open(const std::string& socket) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(16 << 20);
  return grpc::CreateCustomChannel("unix:" + socket, grpc::InsecureChannelCredentials(), arguments);
}

// What went wrong, by its text. Thread-safe.
class Errors {
 public:
  void Add(const std::string& what) {
    std::lock_guard lock(mutex_);
    counts_[what]++;
  }
  void Add(const std::string& what, const grpc::Status& status) {
    Add(what + ": " + std::to_string(status.error_code()) + " " + status.error_message());
  }
  void Print(const char* name) const {
    std::printf("\"%s\": {", name);
    const char* comma = "";
    for (const auto& [what, count] : counts_) {
      std::string text = what;
      for (char& c : text) c = c == '"' || c == '\\' || static_cast<unsigned char>(c) < ' ' ? '\'' : c;
      std::printf("%s\"%s\": %d", comma, text.c_str(), count);
      comma = ", ";
    }
    std::printf("}");
  }

 private:
  std::mutex mutex_;
  std::map<std::string, int> counts_;
};

// Counts what has begun and not ended. Thread-safe.
class Pending {
 public:
  void Begin() {
    std::lock_guard lock(mutex_);
    count_++;
  }
  void End() {
    std::lock_guard lock(mutex_);
    if (--count_ == 0) ended_.notify_all();
  }
  bool AwaitAll() {
    std::unique_lock lock(mutex_);
    return ended_.wait_for(lock, kPatience, [this] { return count_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  int count_ = 0;
};

// Milliseconds of the calls of one kind. Thread-safe.
class Times {
 public:
  void Add(Clock::duration time) {
    std::lock_guard lock(mutex_);
    times_.push_back(std::chrono::duration<double, std::milli>(time).count());
  }
  void Print(const char* name) {
    std::sort(times_.begin(), times_.end());
    std::printf("\"%s\": {\"count\": %zu, \"p50_ms\": %.3f, \"p99_ms\": %.3f, \"max_ms\": %.3f}", name,
                times_.size(), At(0.5), At(0.99), At(1));
  }

 private:
  double At(double share) const {
    if (times_.empty()) return 0;
    return times_[std::min(times_.size() - 1,
                           static_cast<size_t>(share * static_cast<double>(times_.size())))];
  }
  std::mutex mutex_;
  std::vector<double> times_;
};

struct Figures {
  Errors errors;
  Pending pending;
  Times list, find, info, operations, echo;
};

template <typename Request, typename Response>
struct Call {
  grpc::ClientContext context;
  Request request;
  Response response;
};

// `start(call, done)` begins it; its time goes into `times`.
template <typename Request, typename Response, typename Start>
void Begin(const char* name, Request request, Clock::time_point due, Times* times, Figures* figures,
           Start start) {
  auto call = std::make_shared<Call<Request, Response>>();
  call->request = std::move(request);
  call->context.set_deadline(std::chrono::system_clock::now() + kPatience);
  figures->pending.Begin();
  start(call.get(), [call, name, due, times, figures](grpc::Status status) {
    times->Add(Clock::now() - due);
    if (!status.ok()) figures->errors.Add(name, status);
    figures->pending.End();
  });
}

class Watcher final : public grpc::ClientReadReactor<v1::WatchEvent> {
 public:
  Watcher(v1::Agent::Stub& stub, Figures* figures) : figures_(figures) {
    figures_->pending.Begin();
    stub.async()->Watch(&context_, &request_, this);
    StartRead(&event_);
    StartCall();
  }
  void OnReadDone(bool ok) override {
    if (!ok) return;
    {
      std::lock_guard lock(mutex_);
      events_++;
      revision_ = std::max(revision_, event_.has_job() ? event_.job().revision() : event_.revision());
      caught_up_ = caught_up_ || event_.caught_up();
      changed_.notify_all();
    }
    StartRead(&event_);
  }
  void OnDone(const grpc::Status& status) override {
    if (!ending_ || status.error_code() != grpc::StatusCode::CANCELLED) figures_->errors.Add("Watch", status);
    figures_->pending.End();
  }
  bool AwaitCaughtUp(Clock::time_point until) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, until, [this] { return caught_up_; });
  }
  bool AwaitRevision(uint64_t revision, Clock::time_point until) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, until, [&] { return revision_ >= revision; });
  }
  uint64_t events() {
    std::lock_guard lock(mutex_);
    return events_;
  }
  void End() {
    ending_ = true;
    context_.TryCancel();
  }

 private:
  Figures* const figures_;
  grpc::ClientContext context_;
  v1::WatchRequest request_;
  v1::WatchEvent event_;
  std::atomic<bool> ending_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t events_ = 0, revision_ = 0;
  bool caught_up_ = false;
};

// Pauses and resumes jobs in turn, each when its last operation has ended. Follows every operation to its
// end.
class Changer {
 public:
  Changer(std::shared_ptr<grpc::Channel> channel, const Settings& settings, Figures* figures)
      : stub_(v1::Agent::NewStub(channel)), settings_(settings), figures_(figures) {}

  void Next() {
    size_t number = next_++;
    const std::string& job = settings_.jobs[number % settings_.jobs.size()];
    bool pause = number / settings_.jobs.size() % 2 == 0;
    std::string key = "load-" + std::to_string(getpid()) + "-" + std::to_string(number);
    auto call = std::make_shared<Change>();
    call->pause.set_job(job);
    call->pause.mutable_change()->set_idempotency_key(key);
    call->resume.set_job(job);
    call->resume.mutable_change()->set_idempotency_key(key);
    figures_->pending.Begin();
    auto taken = [this, call](grpc::Status status) {
      if (status.ok()) new Follower(*stub_, call->operation.id(), this);
      if (!status.ok()) figures_->errors.Add("Pause or Resume", status);
      figures_->pending.End();
    };
    if (pause)
      stub_->async()->Pause(&call->context, &call->pause, &call->operation, taken);
    else
      stub_->async()->Resume(&call->context, &call->resume, &call->operation, taken);
  }
  int done() const { return done_; }

 private:
  struct Change {
    grpc::ClientContext context;
    v1::PauseRequest pause;
    v1::ResumeRequest resume;
    v1::Operation operation;
  };
  // Until its operation has ended; deletes itself.
  class Follower final : public grpc::ClientReadReactor<v1::Operation> {
   public:
    Follower(v1::Agent::Stub& stub, const std::string& id, Changer* changer) : changer_(changer) {
      changer_->figures_->pending.Begin();
      request_.set_id(id);
      stub.async()->WatchOperation(&context_, &request_, this);
      StartRead(&operation_);
      StartCall();
    }
    void OnReadDone(bool ok) override {
      if (ok) last_ = operation_;
      if (ok) StartRead(&operation_);
    }
    void OnDone(const grpc::Status& status) override {
      Figures* figures = changer_->figures_;
      if (!status.ok()) figures->errors.Add("WatchOperation", status);
      bool good = last_.state() == v1::OPERATION_STATE_SUCCEEDED;
      if (status.ok() && !good) figures->errors.Add(last_.verb() + ": " + last_.result_json());
      changer_->done_ += good;
      delete this;
      figures->pending.End();
    }

   private:
    Changer* const changer_;
    grpc::ClientContext context_;
    v1::WatchOperationRequest request_;
    v1::Operation operation_, last_;
  };

  const std::unique_ptr<v1::Agent::Stub> stub_;
  const Settings& settings_;
  Figures* const figures_;
  size_t next_ = 0;
  std::atomic<int> done_{0};
};

class Load {
 public:
  explicit Load(const Settings& settings)
      : settings_(settings),
        stub_(v1::Agent::NewStub(Open(settings.agent))),
        echo_(v1::Agent::NewStub(Open(settings.echo))),
        changer_(Open(settings.agent), settings, &figures_) {}

  int Run() {
    OpenStreams();
    std::printf("begun\n");
    std::fflush(stdout);
    CallOnTime();
    if (!figures_.pending.AwaitAll()) figures_.errors.Add("calls were not answered");
    bool told = AwaitLastRevision();
    if (!told) figures_.errors.Add("a stream was not told the last change");
    EndStreams();
    Print();
    return 0;
  }

 private:
  void OpenStreams() {
    auto until = Clock::now() + kPatience;
    for (int i = 0; i < settings_.streams; i++) {
      if (i % kStreamsOfChannel == 0) stubs_.push_back(v1::Agent::NewStub(Open(settings_.agent)));
      watchers_.push_back(std::make_unique<Watcher>(*stubs_.back(), &stream_figures_));
    }
    for (auto& watcher : watchers_) {
      if (!watcher->AwaitCaughtUp(until)) figures_.errors.Add("a stream did not catch up");
    }
  }

  void CallOnTime() {
    const auto start = Clock::now();
    const auto period = std::chrono::nanoseconds(1000000000LL / settings_.rate);
    const int64_t calls = static_cast<int64_t>(settings_.rate) * settings_.seconds;
    const int64_t calls_a_change = settings_.changes > 0 ? settings_.rate / settings_.changes : calls + 1;
    for (int64_t i = 0; i < calls; i++) {
      auto due = start + i * period;
      std::this_thread::sleep_until(due);
      CallAgent(i, due);
      if (i % 5 < 2) CallEcho(due + period / 2);
      if (settings_.changes > 0 && i % calls_a_change == 0) changer_.Next();
    }
    seconds_ = std::chrono::duration<double>(Clock::now() - start).count();
  }

  void CallAgent(int64_t number, Clock::time_point due) {
    switch (number % 5) {
      case 2:
        return BeginList("List of one", settings_.jobs.empty() ? "none" : settings_.jobs[0], *stub_, due,
                         &figures_.find);
      case 3:
        return Begin<v1::InfoRequest, v1::NodeInfo>(
            "Info", {}, due, &figures_.info, &figures_, [this](auto* call, auto done) {
              stub_->async()->Info(&call->context, &call->request, &call->response, done);
            });
      case 4:
        return BeginOperations(due);
      default:
        return BeginList("List", "", *stub_, due, &figures_.list);
    }
  }

  void CallEcho(Clock::time_point due) {
    std::this_thread::sleep_until(due);
    BeginList("echo", "", *echo_, due, &figures_.echo);
  }

  void BeginList(const char* what, const std::string& name, v1::Agent::Stub& stub, Clock::time_point due,
                 Times* times) {
    v1::ListRequest request;
    request.set_name(name);
    Begin<v1::ListRequest, v1::ListResponse>(
        what, request, due, times, &figures_, [&stub](auto* call, auto done) {
          stub.async()->List(&call->context, &call->request, &call->response, done);
        });
  }

  void BeginOperations(Clock::time_point due) {
    v1::ListOperationsRequest request;
    request.set_limit(10);
    Begin<v1::ListOperationsRequest, v1::ListOperationsResponse>(
        "ListOperations", request, due, &figures_.operations, &figures_, [this](auto* call, auto done) {
          stub_->async()->ListOperations(&call->context, &call->request, &call->response, done);
        });
  }

  // What the registry says now has reached every stream.
  bool AwaitLastRevision() {
    grpc::ClientContext context;
    v1::ListResponse response;
    v1::ListRequest request;
    request.set_ended(true);
    grpc::Status status = stub_->List(&context, request, &response);
    if (!status.ok()) figures_.errors.Add("last List", status);
    uint64_t last = 0;
    for (const v1::Job& job : response.jobs()) last = std::max(last, job.revision());
    jobs_ = response.jobs_size();
    list_bytes_ = response.ByteSizeLong();
    auto until = Clock::now() + kPatience;
    return std::all_of(watchers_.begin(), watchers_.end(),
                       [&](auto& watcher) { return watcher->AwaitRevision(last, until); });
  }

  void EndStreams() {
    for (auto& watcher : watchers_) watcher->End();
    if (!stream_figures_.pending.AwaitAll()) figures_.errors.Add("streams did not end");
  }

  void Print() {
    uint64_t events = 0;
    for (auto& watcher : watchers_) events += watcher->events();
    std::printf(
        "{\"seconds\": %.2f, \"streams\": %zu, \"events\": %llu, \"jobs\": %d, \"list_bytes\": %zu, "
        "\"changes\": %d, ",
        seconds_, watchers_.size(), static_cast<unsigned long long>(events), jobs_, list_bytes_,
        changer_.done());
    for (auto [name, times] : {std::pair{"list", &figures_.list},
                               {"find", &figures_.find},
                               {"info", &figures_.info},
                               {"operations", &figures_.operations},
                               {"echo", &figures_.echo}}) {
      times->Print(name);
      std::printf(", ");
    }
    figures_.errors.Print("errors");
    std::printf(", ");
    stream_figures_.errors.Print("stream_errors");
    std::printf("}\n");
  }

  const Settings& settings_;
  Figures figures_, stream_figures_;
  const std::unique_ptr<v1::Agent::Stub> stub_, echo_;
  Changer changer_;
  std::vector<std::unique_ptr<v1::Agent::Stub>> stubs_;
  std::vector<std::unique_ptr<Watcher>> watchers_;
  double seconds_ = 0;
  int jobs_ = 0;
  size_t list_bytes_ = 0;
};

class Echo final : public v1::Agent::CallbackService {
  grpc::ServerUnaryReactor* List(grpc::CallbackServerContext* context, const v1::ListRequest*,
                                 v1::ListResponse*) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status());
    return reactor;
  }
};

int ServeEcho(const std::string& socket) {
  Echo echo;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + socket, grpc::InsecureServerCredentials());
  builder.RegisterService(&echo);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (!server) return 1;
  std::printf("ready\n");
  std::fflush(stdout);
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  server->Shutdown();
  return 0;
}

std::vector<std::string> Split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) parts.push_back(part);
  return parts;
}

bool Parse(const std::vector<std::string>& arguments, Settings* settings) {
  std::map<std::string, int*> numbers = {{"--streams", &settings->streams},
                                         {"--rate", &settings->rate},
                                         {"--seconds", &settings->seconds},
                                         {"--changes", &settings->changes}};
  for (size_t i = 0; i + 1 < arguments.size(); i += 2) {
    const std::string& value = arguments[i + 1];
    if (arguments[i] == "--echo")
      settings->echo = value;
    else if (arguments[i] == "--jobs")
      settings->jobs = Split(value);
    else if (auto number = numbers.find(arguments[i]); number != numbers.end())
      *number->second = std::atoi(value.c_str());
    else
      return false;
  }
  bool whole = arguments.size() % 2 == 0 && !settings->echo.empty() && settings->streams >= 0;
  return whole && settings->rate > 0 && settings->rate <= 100000 && settings->seconds > 0 &&
         settings->changes >= 0 && settings->changes <= settings->rate &&
         (settings->changes == 0 || !settings->jobs.empty());
}

int Main(const std::vector<std::string>& arguments) {
  if (arguments.size() == 2 && arguments[0] == "echo") return ServeEcho(arguments[1]);
  Settings settings;
  if (arguments.size() < 2 || arguments[0] != "run" ||
      !Parse({arguments.begin() + 2, arguments.end()}, &settings)) {
    std::fprintf(stderr,
                 "usage: agent_load echo SOCKET | run SOCKET --echo SOCKET --streams N --rate N --seconds N "
                 "[--jobs NAME,... --changes N]\n");
    return 2;
  }
  settings.agent = arguments[1];
  return Load(settings).Run();
}

}  // namespace
}  // namespace stasis

int main(int argc, char** argv) { return stasis::Main(std::vector<std::string>(argv + 1, argv + argc)); }
