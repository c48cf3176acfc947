#include "base/process.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

#include "base/files.h"

namespace stasis {
namespace {

constexpr int kFieldsBeforeStartTime = 19;  // from the state (field 3) to the start time (field 22)

Status GoneStatus(pid_t pid) {
  return Errorf(StatusCode::kNotFound, "process %d has ended", static_cast<int>(pid));
}

}  // namespace

Result<ProcessStat> ParseProcessStat(std::string_view line) {
  Status bad(StatusCode::kCorrupt, "/proc/PID/stat has an unknown form");
  size_t command_end = line.rfind(')');
  if (command_end == std::string_view::npos || command_end + 2 >= line.size()) return bad;
  std::string_view rest = line.substr(command_end + 2);
  ProcessStat stat;
  stat.state = rest[0];
  for (int field = 0; field < kFieldsBeforeStartTime; field++) {
    size_t space = rest.find(' ');
    if (space == std::string_view::npos) return bad;
    rest.remove_prefix(space + 1);
  }
  auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), stat.start_time);
  if (error != std::errc()) return bad;
  return stat;
}

Result<std::string> ThisBootId() {
  ASSIGN_OR_RETURN(std::string text, ReadFile("/proc/sys/kernel/random/boot_id"));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

static Result<ProcessStat> StatOf(pid_t pid) {
  Result<std::string> line = ReadFile("/proc/" + std::to_string(pid) + "/stat");
  // Reading the file of a process that ends meanwhile fails with ESRCH, or gives nothing.
  if (line.ok() ? line->empty() : line.status().code() == StatusCode::kNotFound) return GoneStatus(pid);
  if (!line.ok()) return line.status();
  return ParseProcessStat(*line);
}

Result<ProcessIdentity> IdentifyProcess(pid_t pid) {
  ASSIGN_OR_RETURN(std::string boot_id, ThisBootId());
  ASSIGN_OR_RETURN(ProcessStat stat, StatOf(pid));
  return ProcessIdentity{pid, stat.start_time, boot_id};
}

Result<bool> CheckAlive(const ProcessIdentity& identity) {
  if (identity.pid <= 0) return false;
  ASSIGN_OR_RETURN(const std::string boot_id, ThisBootId());
  if (boot_id != identity.boot_id) return false;
  Result<ProcessStat> stat = StatOf(identity.pid);
  if (stat.status().code() == StatusCode::kNotFound) return false;
  if (!stat.ok()) return stat.status();
  return stat->start_time == identity.start_time && stat->state != 'Z' && stat->state != 'X';
}

bool IsAlive(const ProcessIdentity& identity) {
  Result<bool> alive = CheckAlive(identity);
  return !alive.ok() || *alive;
}

Result<Fd> OpenPidFd(const ProcessIdentity& identity) {
  if (identity.pid <= 0) return GoneStatus(identity.pid);
  Fd fd(static_cast<int>(syscall(SYS_pidfd_open, identity.pid, 0)));
  if (!fd.valid() && errno == ESRCH) return GoneStatus(identity.pid);
  if (!fd.valid()) return ErrnoStatus(errno, "pidfd_open");
  // Only after the descriptor exists does the comparison hold for what it refers to.
  ASSIGN_OR_RETURN(const bool alive, CheckAlive(identity));
  if (!alive) return GoneStatus(identity.pid);
  return fd;
}

}  // namespace stasis
