// Setup: how a rank comes to its links. It joins the meeting, learns who the others are, connects to the
// ranks below it and awaits those above.
//
// Nothing here waits and nothing calls the driver: several setups of one thread (ranks in a group) go on side
// by side, and those of communicators that must not block, on a thread of their own (SetupRun).
#ifndef SOFTGPU_NCCL_SETUP_H_
#define SOFTGPU_NCCL_SETUP_H_

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "softgpu/driver/thread.h"
#include "softgpu/nccl/clique.h"
#include "softgpu/nccl/link.h"
#include "softgpu/nccl/meeting.h"

namespace softgpu::nccl {

// What makes a rank of a new communicator.
struct SetupRequest {
  Address meeting;
  uint64_t secret = 0;
  int ranks = 0;  // at the meeting
  int rank = 0;
  PeerInfo self;                   // device, node, color and key; the rest is filled in
  std::shared_ptr<Doorstep> host;  // set: this rank holds the meeting there
};

// The outcome.
struct Membership {
  uint64_t secret = 0;
  int rank = -1;  // -1: not a member, by its color
  int ranks = 0;
  std::vector<PeerInfo> peers;  // by rank
  std::vector<Link> links;      // by rank
  std::shared_ptr<Clique> clique;
  std::shared_ptr<Inbox> inbox;
  std::shared_ptr<Doorstep> door;
};

class Setup {
 public:
  explicit Setup(SetupRequest request);
  ~Setup();

  // Does what can be done without waiting: ncclInProgress, or how it ended.
  ncclResult_t Step();
  // What the next step waits for, and for how many milliseconds at most (-1: for ever).
  void AddPolls(std::vector<pollfd>* polls) const;
  int PollTimeout() const;
  // After ncclSuccess.
  Membership TakeMembership() { return std::move(result_); }

 private:
  class Dial;
  struct Caller {
    int peer;
    uint32_t channel;
    std::unique_ptr<Dial> dial;
    Transfer transfer;
    Welcome welcome;
    Fd descriptor;
    bool local;
  };

  ncclResult_t Open();
  ncclResult_t Join();
  ncclResult_t ReadTable();
  ncclResult_t ChooseMembers();
  ncclResult_t CheckDevices() const;
  ncclResult_t MakeLinks();
  ncclResult_t CallPeer(int peer);
  void CallOverTcp(int peer);
  ncclResult_t StepCaller(Caller* caller, bool* done);
  ncclResult_t StepCallers();
  ncclResult_t AdmitVisitors();
  ncclResult_t Admit(Visitor visitor);
  ncclResult_t Connect(int peer, uint32_t channel, Fd socket, Fd descriptor, bool local);
  ncclResult_t FinishLink(int peer);
  Greeting LinkGreeting(uint32_t channel) const;
  bool InThisProcess(int peer) const;

  SetupRequest request_;
  enum class State { kOpen, kJoin, kTable, kLink, kDone } state_ = State::kOpen;
  std::optional<Meeting> meeting_;
  bool meeting_over_ = true;
  std::unique_ptr<Dial> join_;
  Fd joined_;
  Transfer transfer_;
  Table table_;
  std::vector<PeerInfo> infos_;
  std::vector<Caller> callers_;
  int missing_ = 0;  // links that are not there yet
  Membership result_;
};

// Some setups on their way together. The first that fails ends them all.
class SetupRun {
 public:
  SetupRun();
  ~SetupRun();
  void Add(std::shared_ptr<Setup> setup) { setups_.push_back(std::move(setup)); }
  // Until all are through: ncclSuccess, the error of one, or ncclInternalError after Cancel().
  ncclResult_t Run();
  // The same on a thread, which calls `done` at the end. False: no thread left.
  bool RunInBackground(std::function<void(ncclResult_t)> done);
  // Any thread; also ends a run that has not begun.
  void Cancel();
  // Waits for the background run.
  void Join();

 private:
  std::vector<std::shared_ptr<Setup>> setups_;
  Fd wake_;
  std::atomic<bool> cancelled_{false};
  std::mutex join_mutex_;
  Thread thread_;
};

}  // namespace softgpu::nccl

#endif  // SOFTGPU_NCCL_SETUP_H_
