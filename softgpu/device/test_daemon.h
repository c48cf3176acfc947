// For tests: programs under test as children, their output, and a softgpud on a socket of its own.
#ifndef SOFTGPU_DEVICE_TEST_DAEMON_H_
#define SOFTGPU_DEVICE_TEST_DAEMON_H_

#include <sys/types.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/fd.h"
#include "softgpu/device/client.h"

namespace softgpu {

// Long enough for a loaded machine under a sanitizer; nothing waits for it to pass unless it fails.
inline constexpr stasis::Duration kPatience = std::chrono::seconds(30);

// A child with pipes on its standard streams. Killed and reaped when destroyed. One that does not answer
// within kPatience fails the test, which is told what its threads were doing, and is killed: no wait is
// without end. The output of a failed test holds what its children have written to standard error.
class ChildProgram {
 public:
  // `inherited`: a descriptor that the child gets as its number 3, or -1. `environment`: "NAME=value" on top
  // of ours.
  explicit ChildProgram(const std::vector<std::string>& arguments, int inherited = -1,
                        const std::vector<std::string>& environment = {});
  ~ChildProgram();
  ChildProgram(const ChildProgram&) = delete;

  pid_t pid() const { return pid_; }
  // The next line of standard output without its end; empty at the end of output.
  std::string ReadLine();
  void CloseInput() { input_.Reset(); }
  void Kill(int signal);
  // The exit code, or 128 + signal. Waits for the end.
  int Wait();
  // Waits for the end of both streams, then for the program.
  int Finish(std::string* output, std::string* error);

 private:
  bool AwaitReadable(int fd, const stasis::Deadline& deadline);
  std::string ReadAll(int fd);
  void EndHung();
  void Reap();

  pid_t pid_ = -1;
  int exit_code_ = -1;
  bool hung_ = false;
  stasis::Fd input_, output_, error_;
};

// An empty folder for the life of the object.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class TestDaemon {
 public:
  explicit TestDaemon(const std::vector<std::string>& options = {});
  ~TestDaemon();
  const std::string& socket() const { return socket_; }
  ChildProgram& program() { return *program_; }
  ConnectOptions Options() const;
  std::unique_ptr<DeviceClient> Connect(EventHandler* handler = nullptr, bool observer = false);

 private:
  TempFolder folder_;
  std::string socket_;
  std::unique_ptr<ChildProgram> program_;
};

// Keeps events until they are asked for.
class EventLog final : public EventHandler {
 public:
  void OnSliceGranted(uint32_t device) override { Add("granted " + std::to_string(device)); }
  void OnSliceRevoke(uint32_t device) override { Add("revoke " + std::to_string(device)); }
  void OnDeviceFault(uint32_t device, const Fault& fault) override;
  void OnCheckpointOp(const CheckpointEvent& event) override;
  void OnDisconnected(const stasis::Status&) override { Add("disconnected"); }

  // The next event in words; "" when patience ends.
  std::string Next();
  // What came last with an event "checkpoint ...".
  CheckpointEvent checkpoint();

 private:
  void Add(std::string text);
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> events_;
  CheckpointEvent checkpoint_;
};

// Whether `condition` comes true within a minute. For states that nobody announces.
bool WithinAMinute(const std::function<bool()>& condition);

}  // namespace softgpu

#endif  // SOFTGPU_DEVICE_TEST_DAEMON_H_
