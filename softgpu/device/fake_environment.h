// A world for Service and Rendezvous in tests: the clock stands still, processes live until told otherwise.
#ifndef SOFTGPU_DEVICE_FAKE_ENVIRONMENT_H_
#define SOFTGPU_DEVICE_FAKE_ENVIRONMENT_H_

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <set>

#include "softgpu/device/environment.h"

namespace softgpu {

class FakeEnvironment final : public Environment {
 public:
  const stasis::Clock& clock() const override { return manual_clock; }

  stasis::Result<stasis::Fd> CreateMemory(uint32_t, uint64_t, uint64_t size) override {
    stasis::Fd memory(memfd_create("fake", MFD_CLOEXEC));
    if (!memory.valid() || ftruncate(memory.get(), static_cast<off_t>(size)) != 0) {
      return stasis::ErrnoStatus(errno, "memfd");
    }
    return memory;
  }

  stasis::Status WatchToken(uint64_t token, int read_end) override {
    tokens[read_end] = token;
    return stasis::Status();
  }
  void UnwatchToken(int read_end) override { tokens.erase(read_end); }

  stasis::Result<uid_t> WatchProcess(pid_t pid) override {
    auto found = users.find(pid);
    if (found == users.end()) return stasis::Status(stasis::StatusCode::kNotFound, "no such process");
    watched.insert(pid);
    return found->second;
  }
  void UnwatchProcess(pid_t pid) override {
    auto found = watched.find(pid);
    STASIS_CHECK(found != watched.end());
    watched.erase(found);
  }

  stasis::ManualClock manual_clock;
  std::map<pid_t, uid_t> users;    // the living processes
  std::map<int, uint64_t> tokens;  // watched read ends
  std::multiset<pid_t> watched;
};

}  // namespace softgpu

#endif  // SOFTGPU_DEVICE_FAKE_ENVIRONMENT_H_
