// A process with a device connection, for the daemon's tests: does what its arguments say, prints "ready",
// and stays until its standard input ends.
//   SOCKET hold DEVICE GRANULES   a context and memory on the device
//   SOCKET fork DEVICE GRANULES   the same, with a forked child that keeps a copy of everything; prints its
//   pid SOCKET slice DEVICE           holds the device's time slice SOCKET import                 imports
//   descriptor 3, adds one to the first byte of the memory
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <future>
#include <string>

#include "base/mapping.h"
#include "softgpu/device/client.h"

namespace softgpu {
namespace {

class Handler final : public EventHandler {
 public:
  void OnSliceGranted(uint32_t) override { granted.set_value(); }
  void OnSliceRevoke(uint32_t) override {}
  void OnDeviceFault(uint32_t, const Fault&) override {}
  // Says so, and leaves the caller waiting.
  void OnCheckpointOp(const CheckpointEvent&) override {
    std::puts("checkpoint");
    std::fflush(stdout);
  }
  void OnDisconnected(const stasis::Status&) override {}
  std::promise<void> granted;
};

[[noreturn]] void Fail(const stasis::Status& status) {
  std::printf("failed: %s\n", status.ToString().c_str());
  std::exit(1);
}

void Require(const stasis::Status& status) {
  if (!status.ok()) Fail(status);
}

template <typename T>
T Require(stasis::Result<T> result) {
  if (!result.ok()) Fail(result.status());
  return std::move(result).value();
}

void ReadyUntilInputEnds(const std::string& word) {
  std::printf("%s\n", word.c_str());
  std::fflush(stdout);
  char c;
  while (read(STDIN_FILENO, &c, 1) > 0) {
  }
}

// The child outlives its parent, but not the test.
pid_t ForkHolder() {
  pid_t child = fork();
  if (child != 0) return child;
  char c;
  while (read(STDIN_FILENO, &c, 1) > 0) {
  }
  _exit(0);
}

void Import(DeviceClient& client) {
  Allocation allocation = Require(client.MemImport(3));
  close(3);
  stasis::Mapping memory =
      Require(stasis::Mapping::OfFd(allocation.memory.get(), 0, allocation.size, PROT_READ | PROT_WRITE));
  memory.bytes()[0] = static_cast<std::byte>(static_cast<int>(memory.bytes()[0]) + 1);
  ReadyUntilInputEnds("ready");
}

int Run(int argc, char** argv) {
  Handler handler;
  ConnectOptions options;
  options.socket_path = argv[1];
  std::string what = argv[2];
  std::unique_ptr<DeviceClient> client = Require(DeviceClient::Connect(options, &handler));
  uint32_t device = argc > 3 ? static_cast<uint32_t>(std::atoi(argv[3])) : 0;
  if (what == "import") {
    Import(*client);
  } else if (what == "slice") {
    Require(client->RequestSlice(device));
    handler.granted.get_future().wait();
    ReadyUntilInputEnds("ready");
  } else {
    Require(client->CtxCreate(device));
    Allocation memory =
        Require(client->MemCreate(device, kMemoryGranularity * std::strtoull(argv[4], nullptr, 10)));
    ReadyUntilInputEnds(what == "fork" ? std::to_string(ForkHolder()) : "ready");
  }
  return 0;
}

}  // namespace
}  // namespace softgpu

int main(int argc, char** argv) { return argc < 3 ? 2 : softgpu::Run(argc, argv); }
