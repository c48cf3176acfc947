// softgpud and softgpu-smi at their edges: options, hostile clients, starting by itself, ending by itself.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <thread>

#include "base/message.h"
#include "base/unix_socket.h"
#include "softgpu/device/protocol.h"
#include "softgpu/device/test_daemon.h"

namespace softgpu {
namespace {

using stasis::Deadline;
using stasis::Fd;
using stasis::Message;
using stasis::Result;
using stasis::Status;
using stasis::StatusCode;
using ::testing::HasSubstr;

struct Outcome {
  int exit_code;
  std::string output, error;
};

Outcome RunProgram(const std::vector<std::string>& arguments,
                   const std::vector<std::string>& environment = {}) {
  ChildProgram program(arguments, -1, environment);
  Outcome outcome;
  outcome.exit_code = program.Finish(&outcome.output, &outcome.error);
  return outcome;
}

// ---- options

struct BadOption {
  std::vector<std::string> arguments;
  std::vector<std::string> environment;
  const char* named;  // what the line must mention
};

TEST(OptionsTest, WrongOnesAreOneLineAndExitCode2) {
  const BadOption kBad[] = {
      {{"--gpus", "0"}, {}, "0"},
      {{"--gpus", "many"}, {}, "many"},
      {{"--gpus", "-1"}, {}, "-1"},
      {{"--memory", "2QiB"}, {}, "2QiB"},
      {{"--memory", "1KiB"}, {}, "memory"},
      {{"--sms", "0"}, {}, "multiprocessors"},
      {{"--topology", "0-9"}, {}, "0-9"},
      {{"--h2d-gbps", "-3"}, {}, "h2d"},
      {{"--slice-ms", "nan"}, {}, "slice"},
      {{"--idle-exit", "-1"}, {}, "idle-exit"},
      {{"--nonsense"}, {}, "nonsense"},
      {{"stray"}, {}, "stray"},
      {{}, {"SOFTGPU_GPUS=x"}, "SOFTGPU_GPUS=x"},
      {{}, {"SOFTGPU_MEMORY=lots"}, "SOFTGPU_MEMORY=lots"},
      {{}, {"SOFTGPU_SMS=0"}, "SOFTGPU_SMS=0"},
  };
  TempFolder folder;
  for (const BadOption& bad : kBad) {
    std::vector<std::string> arguments = {SOFTGPUD_PATH, "--socket", folder.path() + "/s"};
    arguments.insert(arguments.end(), bad.arguments.begin(), bad.arguments.end());
    Outcome outcome = RunProgram(arguments, bad.environment);
    EXPECT_EQ(outcome.exit_code, 2) << bad.named;
    EXPECT_THAT(outcome.error, HasSubstr(bad.named));
    EXPECT_EQ(std::count(outcome.error.begin(), outcome.error.end(), '\n'), 1) << outcome.error;
    EXPECT_EQ(outcome.output, "");
  }
}

TEST(OptionsTest, EnvironmentAndOptionsReachTheDevices) {
  TestDaemon daemon({"--gpus",     "3",           "--memory",   "1GiB",        "--name",
                     "Test GPU",   "--sms",       "7",          "--clock-mhz", "1234",
                     "--h2d-gbps", "25",          "--d2h-gbps", "20",          "--d2d-gbps",
                     "900",        "--peer-gbps", "50",         "--topology",  "0-1"});
  auto client = daemon.Connect();
  ASSERT_EQ(client->devices().size(), 3u);
  const DeviceInfo& info = client->devices()[1];
  EXPECT_EQ(info.name, "Test GPU");
  EXPECT_EQ(info.memory_bytes, 1u << 30);
  EXPECT_EQ(info.sm_count, 7u);
  EXPECT_EQ(info.clock_khz, 1234000u);
  EXPECT_EQ(info.h2d_gbps, 25);
  EXPECT_EQ(info.d2h_gbps, 20);
  EXPECT_EQ(info.d2d_gbps, 900);
  EXPECT_EQ(info.peer_gbps, 50);
  EXPECT_THAT(info.peer_access, ::testing::ElementsAre(1, 0, 0));
  EXPECT_EQ(info.compute_major, 12u);
}

TEST(OptionsTest, SecondDaemonOnASocketIsRefused) {
  TestDaemon daemon;
  Outcome outcome = RunProgram({SOFTGPUD_PATH, "--socket", daemon.socket()});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.error, HasSubstr("already listens on " + daemon.socket()));
  EXPECT_NE(daemon.Connect(), nullptr);
}

// What a crash leaves behind is no obstacle, and the devices are the same ones again.
TEST(OptionsTest, KilledDaemonCanBeReplaced) {
  TempFolder folder;
  ConnectOptions options;
  options.socket_path = folder.path() + "/s";
  std::vector<std::array<uint8_t, 16>> uuids;
  for (int round = 0; round < 2; round++) {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    Fd read_end(ends[0]), write_end(ends[1]);
    ChildProgram daemon({SOFTGPUD_PATH, "--socket", options.socket_path, "--ready-fd", "3"}, write_end.get());
    write_end.Reset();
    char byte = 0;
    ASSERT_EQ(read(read_end.get(), &byte, 1), 1) << "round " << round;
    Result<std::unique_ptr<DeviceClient>> client = DeviceClient::Connect(options, nullptr);
    ASSERT_TRUE(client.ok()) << client.status().ToString();
    uuids.push_back((*client)->devices()[0].uuid);
    daemon.Kill(SIGKILL);
    daemon.Wait();
  }
  EXPECT_EQ(uuids[0], uuids[1]);
}

// ---- hostile clients

// The daemon closed it: reading ends, within patience.
bool Dropped(const Fd& socket) {
  char buffer[65536];
  for (;;) {
    pollfd wait{socket.get(), POLLIN, 0};
    if (poll(&wait, 1, Deadline::After(kPatience).PollTimeout()) <= 0) return false;
    ssize_t got = recv(socket.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno == ECONNRESET)) return true;
    if (got < 0 && errno != EAGAIN) return false;
  }
}

class HostileTest : public ::testing::Test {
 protected:
  HostileTest() : daemon_({"--memory", "64MiB"}) { good_ = daemon_.Connect(); }
  // What a well-behaved client sees all the while.
  ~HostileTest() override { EXPECT_TRUE(good_->MemInfo(0).ok()); }

  Fd Raw() {
    Result<Fd> socket = stasis::ConnectUnix(daemon_.socket(), Deadline::After(kPatience));
    EXPECT_TRUE(socket.ok()) << socket.status().ToString();
    return socket.ok() ? std::move(socket).value() : Fd();
  }
  Fd Greeted() {
    Fd socket = Raw();
    stasis::MessageDecoder decoder(kReplyLimits);
    Deadline deadline = Deadline::After(kPatience);
    EXPECT_TRUE(
        stasis::SendMessage(socket.get(), Encode(HelloRequest{kProtocolVersion, 0, "raw"}, 1), deadline)
            .ok());
    EXPECT_TRUE(stasis::ReceiveMessage(socket.get(), decoder, deadline).ok());
    return socket;
  }

  TestDaemon daemon_;
  std::unique_ptr<DeviceClient> good_;
};

TEST_F(HostileTest, GarbageIsDropped) {
  for (uint32_t seed = 0; seed < 50; seed++) {
    std::mt19937 random(seed);
    Fd socket = seed % 2 == 0 ? Raw() : Greeted();
    std::vector<uint8_t> bytes(24 + random() % 5000);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    (void)send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    EXPECT_TRUE(Dropped(socket)) << seed;
  }
}

TEST_F(HostileTest, WrongHeadersAreDropped) {
  using stasis::kMessageMagic;
  using stasis::kMessageVersion;
  const stasis::MessageHeader kWrong[] = {
      {0x4d535454, kMessageVersion, 0, 2, 0, 1},          {kMessageMagic, 2, 0, 2, 0, 1},
      {kMessageMagic, kMessageVersion, 0, 2, 1 << 20, 1}, {kMessageMagic, kMessageVersion, 2, 2, 0, 1},
      {kMessageMagic, kMessageVersion, 1, 8, 0, 1},       {kMessageMagic, kMessageVersion, 0, 77, 0, 1},
      {kMessageMagic, kMessageVersion, 0, 2, 0, 0},       {kMessageMagic, kMessageVersion, 0, 5, 0, 1},
      {kMessageMagic, kMessageVersion, 0, 1, 0, 1},
  };
  for (const stasis::MessageHeader& header : kWrong) {
    Fd socket = Greeted();
    ASSERT_EQ(send(socket.get(), &header, sizeof header, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof header));
    EXPECT_TRUE(Dropped(socket)) << "type " << header.type << " version " << header.version;
  }
}

TEST_F(HostileTest, HalfAMessageDisturbsNobody) {
  Fd socket = Greeted();
  ASSERT_EQ(send(socket.get(), "STSM", 4, MSG_NOSIGNAL), 4);
  EXPECT_TRUE(good_->MemCreate(0, kMemoryGranularity).ok());
  stasis::MessageHeader header{stasis::kMessageMagic, stasis::kMessageVersion, 0, 5, 12, 1};
  Fd other = Greeted();
  ASSERT_EQ(send(other.get(), &header, sizeof header, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof header));
  EXPECT_TRUE(good_->MemCreate(0, kMemoryGranularity).ok());
}

// It asks and asks and never reads: it is dropped, and the others do not wait for it.
TEST_F(HostileTest, ClientThatDoesNotReadIsDropped) {
  Fd socket = Greeted();
  Status status;
  for (uint64_t id = 2; status.ok(); id++) {
    status = stasis::SendMessage(socket.get(), Encode(DevicesRequest{}, id), Deadline::After(kPatience));
  }
  EXPECT_EQ(status.code(), StatusCode::kPeerDied) << status.ToString();
  EXPECT_TRUE(Dropped(socket));
}

TEST_F(HostileTest, UnexpectedDescriptorsAreClosed) {
  for (int round = 0; round < 20; round++) {
    Fd socket = Greeted();
    Message message = Encode(DevicesRequest{}, 2);
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    Fd read_end(ends[0]);
    message.fds.emplace_back(ends[1]);
    ASSERT_TRUE(stasis::SendMessage(socket.get(), std::move(message), Deadline::After(kPatience)).ok());
    EXPECT_TRUE(Dropped(socket));
    char c;
    EXPECT_EQ(read(read_end.get(), &c, 1), 0) << "the daemon still holds the descriptor";
  }
}

TEST(DescriptorsTest, RunningOutRefusesSomeAndRecovers) {
  TempFolder folder;
  std::string socket = folder.path() + "/s";
  std::string command =
      "ulimit -n 64; exec " + std::string(SOFTGPUD_PATH) + " --socket " + socket + " --ready-fd 3";
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  Fd read_end(ends[0]), write_end(ends[1]);
  ChildProgram daemon({"/bin/sh", "-c", command}, write_end.get());
  write_end.Reset();
  char byte = 0;
  ASSERT_EQ(read(read_end.get(), &byte, 1), 1);
  ConnectOptions options;
  options.socket_path = socket;
  options.rpc_timeout = kPatience;
  Result<std::unique_ptr<DeviceClient>> client = DeviceClient::Connect(options, nullptr);
  ASSERT_TRUE(client.ok());
  std::vector<Fd> crowd;
  for (int i = 0; i < 100; i++) {
    crowd.push_back(stasis::ConnectUnix(socket, Deadline::After(kPatience)).value());
  }
  // They are accepted in order, so when the last one has been refused there is no descriptor left.
  ASSERT_TRUE(Dropped(crowd.back()));
  Status full = (*client)->MemCreate(0, kMemoryGranularity).status();
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted) << full.ToString();
  EXPECT_EQ((*client)->MemInfo(0)->free_bytes, (*client)->MemInfo(0)->total_bytes);
  crowd.clear();
  EXPECT_TRUE(WithinAMinute([&] { return (*client)->MemCreate(0, kMemoryGranularity).ok(); }));
  daemon.Kill(SIGTERM);
  EXPECT_EQ(daemon.Wait(), 0);
}

TEST(DeafDaemonTest, CallsTimeOut) {
  TempFolder folder;
  stasis::UnixListener listener = stasis::UnixListener::Listen(folder.path() + "/s").value();
  ConnectOptions options;
  options.socket_path = listener.path();
  options.rpc_timeout = std::chrono::milliseconds(30);
  EXPECT_EQ(DeviceClient::Connect(options, nullptr).status().code(), StatusCode::kTimeout);
}

class CountingHandler final : public EventHandler {
 public:
  void OnSliceGranted(uint32_t) override { count++; }
  void OnSliceRevoke(uint32_t) override { count++; }
  void OnDeviceFault(uint32_t, const Fault&) override { count++; }
  void OnCheckpointOp(const CheckpointEvent&) override { count++; }
  void OnDisconnected(const Status&) override { count++; }
  std::atomic<int> count{0};
};

// Answers Hello; at Bye it tells of a fault and hangs up.
void ServeOneClient(stasis::UnixListener* listener) {
  pollfd wait{listener->fd(), POLLIN, 0};
  ASSERT_EQ(poll(&wait, 1, Deadline::After(kPatience).PollTimeout()), 1);
  const Fd client = listener->Accept().value();
  stasis::MessageDecoder decoder(kRequestLimits);
  for (;;) {
    Result<Message> message = stasis::ReceiveMessage(client.get(), decoder, Deadline::After(kPatience));
    ASSERT_TRUE(message.ok()) << message.status().ToString();
    const uint64_t id = message->request_id;
    Result<Request> request = ParseRequest(std::move(*message));
    ASSERT_TRUE(request.ok()) << request.status().ToString();
    const bool bye = std::holds_alternative<ByeRequest>(*request);
    Message answer = bye ? Encode(DeviceFaultEvent{0, Fault{.kind = FaultKind::kSlow, .factor = 2}})
                         : EncodeReply(id, HelloBody{"node", {}});
    const Status sent = stasis::SendMessage(client.get(), std::move(answer), Deadline::After(kPatience));
    if (bye) return;
    ASSERT_TRUE(sent.ok()) << sent.ToString();
  }
}

// Who listened on could answer an event, for which the daemon hangs up, and would report that as a loss.
TEST(FarewellTest, NothingIsHeardAnyMoreOnceByeIsSaid) {
  TempFolder folder;
  stasis::UnixListener listener = stasis::UnixListener::Listen(folder.path() + "/s").value();
  ConnectOptions options;
  options.socket_path = listener.path();
  options.rpc_timeout = kPatience;
  CountingHandler handler;
  for (int round = 0; round < 200; round++) {
    std::thread daemon(ServeOneClient, &listener);
    DeviceClient::Connect(options, &handler).value().reset();
    daemon.join();
  }
  EXPECT_EQ(handler.count, 0);
}

// ---- starting and ending by itself

class AutostartTest : public ::testing::Test {
 protected:
  AutostartTest() {
    setenv("SOFTGPU_DAEMON", SOFTGPUD_PATH, 1);
    options_.socket_path = folder_.path() + "/run/s";
    options_.autostart = true;
    options_.idle_exit_s = 1;
    options_.connect_timeout = kPatience;
    options_.rpc_timeout = kPatience;
  }
  ~AutostartTest() override {
    unsetenv("SOFTGPU_DAEMON");
    unsetenv("SOFTGPU_GPUS");
    // Daemons that were started end by themselves; the folder must not vanish under them before.
    EXPECT_TRUE(Gone());
  }
  // Whether the daemon has ended and removed its socket.
  bool Gone() const {
    Deadline deadline = Deadline::After(kPatience);
    while (access(options_.socket_path.c_str(), F_OK) == 0) {
      if (deadline.Expired()) return false;
      (void)poll(nullptr, 0, 5);
    }
    return true;
  }

  TempFolder folder_;
  ConnectOptions options_;
};

TEST_F(AutostartTest, StartsOnceForManyAndEndsWhenUnused) {
  setenv("SOFTGPU_GPUS", "3", 1);
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::set<pid_t> daemons;
  for (int i = 0; i < 6; i++) {
    threads.emplace_back([&] {
      Result<std::unique_ptr<DeviceClient>> client = DeviceClient::Connect(options_, nullptr);
      ASSERT_TRUE(client.ok()) << client.status().ToString();
      EXPECT_EQ((*client)->devices().size(), 3u);
      std::lock_guard lock(mutex);
      daemons.insert((*client)->GetInventory()->daemon_pid);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(daemons.size(), 1u);
  EXPECT_TRUE(Gone());
}

// A process that never asked for children must not be surprised by one.
TEST_F(AutostartTest, LeavesNoChildAndNoSignal) {
  static volatile sig_atomic_t signals = 0;
  signal(SIGCHLD, [](int) { signals = signals + 1; });
  {
    Result<std::unique_ptr<DeviceClient>> client = DeviceClient::Connect(options_, nullptr);
    ASSERT_TRUE(client.ok()) << client.status().ToString();
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG | __WALL), -1);
    EXPECT_EQ(errno, ECHILD);
  }
  signal(SIGCHLD, SIG_DFL);
  EXPECT_EQ(signals, 0);
}

TEST_F(AutostartTest, DaemonInheritsNothing) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);  // not close-on-exec, as a careless program would
  Fd read_end(ends[0]), write_end(ends[1]);
  Result<std::unique_ptr<DeviceClient>> client = DeviceClient::Connect(options_, nullptr);
  ASSERT_TRUE(client.ok()) << client.status().ToString();
  write_end.Reset();
  pollfd ended{read_end.get(), POLLIN, 0};
  EXPECT_EQ(poll(&ended, 1, 0), 1) << "the daemon holds the pipe open";
}

TEST_F(AutostartTest, RefusalOfTheDaemonIsPassedOn) {
  setenv("SOFTGPU_GPUS", "none", 1);
  Status status = DeviceClient::Connect(options_, nullptr).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("SOFTGPU_GPUS=none"));
}

TEST_F(AutostartTest, MissingDaemonIsNamed) {
  setenv("SOFTGPU_DAEMON", "/nowhere/softgpud", 1);
  Status status = DeviceClient::Connect(options_, nullptr).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nowhere/softgpud"));
  options_.autostart = false;
  status = DeviceClient::Connect(options_, nullptr).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr(options_.socket_path));
}

// ---- softgpu-smi

TEST(SmiTest, ShowsAndInjects) {
  TestDaemon daemon({"--gpus", "2", "--memory", "64MiB"});
  auto client = daemon.Connect();
  ASSERT_TRUE(client->CtxCreate(1).ok());
  ASSERT_TRUE(client->MemCreate(1, 3 * kMemoryGranularity).ok());
  auto smi = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {SOFTGPU_SMI_PATH, "--socket", daemon.socket()});
    return RunProgram(arguments);
  };
  EXPECT_EQ(smi({"fault", "--gpu", "0", "--kind", "slow=0.5"}).exit_code, 0);
  EXPECT_EQ(smi({"fault", "--gpu", "1", "--kind", "fell-off-bus"}).exit_code, 0);
  Outcome shown = smi({"--json"});
  ASSERT_EQ(shown.exit_code, 0) << shown.error;
  nlohmann::json report = nlohmann::json::parse(shown.output);
  EXPECT_EQ(report["daemon_pid"], daemon.program().pid());
  EXPECT_EQ(report["devices"][0]["slow_factor"], 0.5);
  EXPECT_EQ(report["devices"][1]["health"], "fell-off-bus");
  EXPECT_EQ(report["devices"][1]["memory_used"], 3 * kMemoryGranularity);
  ASSERT_EQ(report["processes"].size(), 1u);
  EXPECT_EQ(report["processes"][0]["pid"], getpid());
  EXPECT_THAT(smi({}).output, HasSubstr("6 / 64 MiB"));
}

TEST(SmiTest, ErrorsAreOneLine) {
  TestDaemon daemon;
  auto check = [](const Outcome& outcome, int exit_code, const std::string& named) {
    EXPECT_EQ(outcome.exit_code, exit_code) << named;
    EXPECT_THAT(outcome.error, HasSubstr(named));
    EXPECT_EQ(std::count(outcome.error.begin(), outcome.error.end(), '\n'), 1) << outcome.error;
  };
  std::string smi = SOFTGPU_SMI_PATH;
  std::string at = daemon.socket();
  check(RunProgram({smi, "--socket", "/nowhere/s"}), 1, "/nowhere/s");
  check(RunProgram({smi, "--socket", at, "fault", "--gpu", "5", "--kind", "ecc"}), 1, "no device 5");
  check(RunProgram({smi, "--socket", at, "fault", "--gpu", "0", "--kind", "fire"}), 2, "fire");
  check(RunProgram({smi, "--socket", at, "fault", "--gpu", "0"}), 2, "--kind");
  check(RunProgram({smi, "--bogus"}), 2, "--bogus");
}

}  // namespace
}  // namespace softgpu
