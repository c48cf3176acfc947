#include "ghost/blockers.h"

#include <libunwind-ptrace.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <cstdio>
#include <memory>

#include "ghost/proc.h"

namespace stasis {
namespace {

constexpr int kMaxFrames = 64;

// Holds one thread still. Seizing does not stop it or send it a signal; interrupting it is undone by
// detaching.
class HeldThread {
 public:
  explicit HeldThread(pid_t tid) : tid_(tid) {
    if (ptrace(PTRACE_SEIZE, tid, nullptr, nullptr) != 0) return;
    seized_ = true;
    int status = 0;
    stopped_ = ptrace(PTRACE_INTERRUPT, tid, nullptr, nullptr) == 0 && waitpid(tid, &status, __WALL) == tid &&
               WIFSTOPPED(status);
  }
  ~HeldThread() {
    if (seized_) ptrace(PTRACE_DETACH, tid_, nullptr, nullptr);
  }
  bool stopped() const { return stopped_; }

 private:
  const pid_t tid_;
  bool seized_ = false;
  bool stopped_ = false;
};

std::string FileAt(const std::vector<ProcMap>& maps, uint64_t address) {
  for (const ProcMap& map : maps) {
    if (address < map.start || address >= map.end || map.path.empty()) continue;
    return map.path.substr(map.path.rfind('/') + 1);
  }
  return "?";
}

std::string FrameText(unw_cursor_t& cursor, const std::vector<ProcMap>& maps) {
  unw_word_t ip = 0, offset = 0;
  unw_get_reg(&cursor, UNW_REG_IP, &ip);
  char name[256] = "";
  char text[320];
  if (unw_get_proc_name(&cursor, name, sizeof name, &offset) == 0 || name[0] != '\0') {
    std::snprintf(text, sizeof text, "%s+0x%lx", name, static_cast<unsigned long>(offset));
  } else {
    std::snprintf(text, sizeof text, "0x%lx", static_cast<unsigned long>(ip));
  }
  return std::string(text) + " (" + FileAt(maps, ip) + ")";
}

struct FreeSpace {
  void operator()(unw_addr_space* space) const { unw_destroy_addr_space(space); }
};

}  // namespace

std::vector<std::string> StackOf(pid_t pid, pid_t tid) {
  std::vector<std::string> frames;
  Result<std::vector<ProcMap>> maps = MapsOf(pid);
  HeldThread thread(tid);
  if (!maps.ok() || !thread.stopped()) return frames;
  std::unique_ptr<unw_addr_space, FreeSpace> space(unw_create_addr_space(&_UPT_accessors, 0));
  std::unique_ptr<void, void (*)(void*)> context(_UPT_create(tid), _UPT_destroy);
  unw_cursor_t cursor;
  if (!space || !context || unw_init_remote(&cursor, space.get(), context.get()) != 0) return frames;
  do {
    frames.push_back(FrameText(cursor, *maps));
  } while (frames.size() < kMaxFrames && unw_step(&cursor) > 0);
  return frames;
}

std::vector<Blocker> DescribeBlockers(pid_t pid, const std::vector<TaskBlocker>& found) {
  std::vector<Blocker> blockers;
  for (const TaskBlocker& each : found) {
    Blocker blocker{pid, each.tid > 0 ? HostTid(pid, each.tid) : 0, each.call, {}};
    if (blocker.tid != 0) blocker.stack = StackOf(pid, blocker.tid);
    blockers.push_back(std::move(blocker));
  }
  return blockers;
}

}  // namespace stasis
