// Ghosts of ranks for tests: real sockets, a thread for each, and the order of questions of
// docs/ghost-protocol.md ("Jobs"), without tasks behind them.
#ifndef COORDINATOR_TESTING_H_
#define COORDINATOR_TESTING_H_

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/message.h"
#include "base/unix_socket.h"
#include "coordinator/job_record.h"
#include "dedup/json.h"
#include "ghost/meet.h"

namespace stasis {

// What goes wrong in a fake rank, at its question of that name ("cut", "drained", "join", ...).
struct FakeFault {
  enum Kind { kFail, kDie, kSilent } kind = kFail;
  std::string at;
  StatusCode code = StatusCode::kDriver;
  int times = 1;
};

class FakeRank {
 public:
  FakeRank(const std::string& state_dir, const std::string& run_dir, const std::string& task);
  ~FakeRank();

  void SetFault(FakeFault fault);
  // Waits before this question until Release().
  void HoldAt(const std::string& question);
  void AwaitHeld();
  void Release();
  void set_phase(const std::string& phase);
  std::string phase();
  std::string state();
  // Names of all questions, in order, and verbs of all requests but status.
  std::vector<std::string> asked();
  std::vector<Json> requests();
  // Called when the vote `committed` has been answered with OK.
  void set_on_committed(std::function<void()> call);

 private:
  struct Lost {};  // the connection has ended
  using Connection = struct Connection;

  void Serve();
  void ServeOne(Fd socket);
  bool Handle(int socket, MessageDecoder& decoder, const Message& message);
  bool AnswerStatus(int socket, const Message& message);
  Json Walk(int socket, MessageDecoder& decoder, uint64_t id, const Json& request, bool* lost);
  // Nothing: the connection has ended.
  std::optional<QuestionAnswer> Ask(int socket, MessageDecoder& decoder, uint64_t id,
                                    const std::string& name);
  bool Meets(const std::string& name, Status* fault, bool* dies);
  Json GoBack(int socket, MessageDecoder& decoder, uint64_t id, const std::string& verb, const Status& why,
              bool tell, bool* lost);
  Json LostAt(const std::string& verb, const std::string& question);
  Json Succeed(const std::string& verb, const Json& request);
  std::string ImagePath() const;
  bool Readable(int socket);

  const std::string state_dir_, task_;
  UnixListener listener_;
  Fd stop_;

  std::mutex mutex_;
  std::string phase_ = "running", state_ = "running";
  FakeFault fault_;
  int faults_left_ = 0;
  std::string hold_at_;
  Fd held_, release_;
  std::vector<std::string> asked_;
  std::vector<Json> requests_;
  std::function<void()> on_committed_;

  // Of the walk.
  bool gave_up_ = false, joined_ = false;
  uint32_t number_ = 0;
  std::string image_;

  std::thread thread_;
};

}  // namespace stasis

#endif  // COORDINATOR_TESTING_H_
