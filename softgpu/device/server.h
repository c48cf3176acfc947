// Server: softgpud's event loop. Carries messages between the sockets and the Service, and is the Service's
// world. One thread; waits only in epoll.
#ifndef SOFTGPU_DEVICE_SERVER_H_
#define SOFTGPU_DEVICE_SERVER_H_

#include <map>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "base/unix_socket.h"
#include "softgpu/device/config.h"
#include "softgpu/device/connection.h"
#include "softgpu/device/environment.h"
#include "softgpu/device/service.h"

namespace softgpu {

class Server final : public Environment {
 public:
  struct Options {
    std::string socket_path;
    NodeConfig node;
    // Run() ends when nobody has needed the daemon for so long; zero = never.
    stasis::Duration idle_exit{};
  };

  // Listens; errors as UnixListener::Listen. Blocks SIGTERM, SIGINT and SIGPIPE in the calling thread, which
  // must be the only one.
  static stasis::Result<std::unique_ptr<Server>> Create(const Options& options);
  ~Server() override;

  // Serves until SIGTERM, SIGINT or the idle exit. The socket file is removed by the destructor.
  stasis::Status Run();

  // Environment:
  const stasis::Clock& clock() const override { return stasis::Clock::Real(); }
  stasis::Result<stasis::Fd> CreateMemory(uint32_t device, uint64_t id, uint64_t size) override;
  stasis::Status WatchToken(uint64_t token, int read_end) override;
  void UnwatchToken(int read_end) override;
  stasis::Result<uid_t> WatchProcess(pid_t pid) override;
  void UnwatchProcess(pid_t pid) override;

 private:
  enum class Source : uint8_t { kListener, kSignal, kClient, kToken, kProcess };
  struct Watch {
    stasis::Fd pidfd;
    uid_t uid = 0;
    int count = 0;
  };

  explicit Server(const Options& options);
  stasis::Status Open();
  stasis::Status AddToEpoll(int fd, uint32_t events, Source source, uint64_t id);
  stasis::Deadline NextWakeup() const;
  void Dispatch(Source source, uint64_t id, uint32_t events);
  void AcceptAll();
  void Adopt(stasis::Fd socket);
  void ServeClient(ClientId id, uint32_t events);
  void ProcessEvent(pid_t pid);
  void Drop(ClientId id);
  void Deliver();
  void SendTo(ClientId id, stasis::Message message);
  void UpdateIdle();

  Options options_;
  stasis::Fd epoll_;
  stasis::Fd signals_;
  // Given up for a moment when descriptors run out, so that a waiting connection can be accepted and closed.
  stasis::Fd spare_;
  stasis::UnixListener listener_;
  std::map<ClientId, Connection> connections_;
  std::map<pid_t, Watch> processes_;
  bool stop_ = false;
  bool idle_ = false;
  stasis::MonotonicTime idle_since_{};
  std::unique_ptr<Service> service_;  // last: its destructor uses the rest
};

}  // namespace softgpu

#endif  // SOFTGPU_DEVICE_SERVER_H_
