// Fuzz target: everything that softgpud does with what clients send. The input is a series of steps: which
// client, what kind of thing happens, and the message's type and payload. Whatever comes, the service must
// survive it.
#include <fcntl.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "softgpu/device/fake_environment.h"
#include "softgpu/device/service.h"

namespace softgpu {
namespace {

class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  bool empty() const { return size_ == 0; }
  uint8_t Byte() {
    if (size_ == 0) return 0;
    size_--;
    return *data_++;
  }
  std::vector<std::byte> Bytes(size_t count) {
    std::vector<std::byte> bytes;
    for (; count > 0 && size_ > 0; count--) bytes.push_back(static_cast<std::byte>(Byte()));
    return bytes;
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

class Driver {
 public:
  Driver() : service_(Config(), "fuzz", &environment_) {
    for (pid_t pid = 1; pid <= 4; pid++) environment_.users[pid] = static_cast<uid_t>(pid / 2);
  }

  void Step(Input& input) {
    uint8_t what = input.Byte();
    size_t slot = what & 3;
    switch (what >> 5) {
      case 0:
        environment_.manual_clock.Advance(std::chrono::milliseconds(input.Byte()));
        break;
      case 1:
        Drop(slot);
        break;
      case 2:
        if (!exported_.empty()) CloseToken();
        break;
      case 3:
        service_.ProcessExited(static_cast<pid_t>(slot + 1));
        break;
      default:
        Send(slot, input);
        break;
    }
    service_.Tick();
    Collect();
  }

 private:
  static NodeConfig Config() {
    NodeConfig config;
    config.gpus = 2;
    config.memory_bytes = 16 * kMemoryGranularity;
    return config;
  }

  void Send(size_t slot, Input& input) {
    if (clients_[slot] == 0) {
      auto id = service_.Attach({static_cast<pid_t>(slot + 1), static_cast<uid_t>(slot), 0});
      if (!id.ok()) return;
      clients_[slot] = *id;
      HelloRequest hello;
      hello.flags = input.Byte() & 3;
      // Most inputs are about what comes after the greeting.
      if (input.Byte() % 8 != 0) (void)service_.Handle(*id, Encode(std::move(hello), 1));
    }
    stasis::Message message;
    message.type = input.Byte() % 20;
    message.request_id = HasReply(static_cast<MessageType>(message.type)) ? 1 : 0;
    message.payload = input.Bytes(input.Byte());
    if (message.type == static_cast<uint32_t>(MessageType::kMemImport)) {
      message.fds.push_back(exported_.empty() ? stasis::Fd(open("/dev/null", O_RDONLY | O_CLOEXEC))
                                              : exported_.back().Duplicate());
    }
    if (!service_.Handle(clients_[slot], std::move(message)).ok()) Drop(slot);
  }

  void Drop(size_t slot) {
    service_.Detach(clients_[slot]);
    clients_[slot] = 0;
  }

  // What EPOLLHUP would tell.
  void CloseToken() {
    exported_.pop_back();
    if (!environment_.tokens.empty()) service_.TokenClosed(environment_.tokens.begin()->second);
  }

  void Collect() {
    for (;;) {
      Service::Output output = service_.Take();
      if (output.messages.empty() && output.dropped.empty()) return;
      for (auto& [id, message] : output.messages) {
        for (stasis::Fd& fd : message.fds) {
          if (exported_.size() < 8) exported_.push_back(std::move(fd));
        }
      }
      for (ClientId id : output.dropped) {
        service_.Detach(id);
        std::replace(std::begin(clients_), std::end(clients_), id, ClientId{0});
      }
    }
  }

  FakeEnvironment environment_;
  Service service_;
  ClientId clients_[4] = {};
  std::vector<stasis::Fd> exported_;
};

}  // namespace
}  // namespace softgpu

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  softgpu::Input input(data, size);
  softgpu::Driver driver;
  for (int step = 0; step < 200 && !input.empty(); step++) driver.Step(input);
  return 0;
}
