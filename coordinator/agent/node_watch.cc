#include "coordinator/agent/node_watch.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace stasis {
namespace {

constexpr uint64_t kInotifyId = 0, kWakeId = 1;
constexpr int kEventsAtOnce = 64;
constexpr size_t kInotifyBuffer = 32 << 10;
// Files are replaced by rename; folders and sockets are made where they are.
constexpr uint32_t kMask = IN_CREATE | IN_DELETE | IN_MOVED_TO | IN_MOVED_FROM | IN_ONLYDIR;

}  // namespace

Result<std::unique_ptr<NodeWatch>> NodeWatch::Make() {
  Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return ErrnoStatus(errno, "epoll");
  Fd inotify(inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  if (!inotify.valid()) return ErrnoStatus(errno, "inotify (fs.inotify.max_user_instances)");
  Fd wake(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!wake.valid()) return ErrnoStatus(errno, "eventfd");
  std::unique_ptr<NodeWatch> watch(new NodeWatch(std::move(epoll), std::move(inotify), std::move(wake)));
  RETURN_IF_ERROR(watch->Add(watch->inotify_.get(), kInotifyId));
  RETURN_IF_ERROR(watch->Add(watch->wake_.get(), kWakeId));
  return watch;
}

Status NodeWatch::Add(int fd, uint64_t id) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = id;
  return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0 ? Status() : ErrnoStatus(errno, "epoll");
}

Status NodeWatch::WatchFolder(const std::string& path, Place place, const std::string& owner) {
  std::lock_guard lock(mutex_);
  int watch = inotify_add_watch(inotify_.get(), path.c_str(), kMask);
  if (watch < 0 && (errno == ENOENT || errno == ENOTDIR)) return Status();
  if (watch < 0 && errno == ENOSPC) {
    return Status(StatusCode::kResourceExhausted,
                  "watch " + path + ": fs.inotify.max_user_watches is reached");
  }
  if (watch < 0) return ErrnoStatus(errno, "watch " + path);
  folders_[watch] = {place, owner};
  return Status();
}

Status NodeWatch::WatchProcesses(const std::string& job, const std::vector<ProcessIdentity>& processes) {
  std::lock_guard lock(mutex_);
  std::map<ProcessKey, Process> before = std::move(processes_[job]);
  std::map<ProcessKey, Process> now;
  Status failure;
  for (const ProcessIdentity& identity : processes) {
    auto known = before.find({identity.pid, identity.start_time});
    if (known != before.end()) {
      now.insert(before.extract(known));
    } else if (Status added = AddProcess(job, identity, &now); !added.ok()) {
      failure = added;
    }
  }
  for (const auto& [key, process] : before) process_of_.erase(process.id);
  if (now.empty())
    processes_.erase(job);
  else
    processes_[job] = std::move(now);
  return failure;
}

Status NodeWatch::AddProcess(const std::string& job, const ProcessIdentity& identity,
                             std::map<ProcessKey, Process>* into) {
  Result<Fd> fd = OpenPidFd(identity);
  bool ended = !fd.ok() && fd.status().code() == StatusCode::kNotFound;
  if (!fd.ok() && !ended) return fd.status();
  // An eventfd that is readable stands for a process that ended before it could be watched.
  Process process{next_id_++, ended ? Fd(eventfd(1, EFD_CLOEXEC)) : *std::move(fd)};
  if (!process.fd.valid()) return ErrnoStatus(errno, "eventfd");
  RETURN_IF_ERROR(Add(process.fd.get(), process.id));
  ProcessKey key{identity.pid, identity.start_time};
  process_of_[process.id] = {job, key};
  into->insert_or_assign(key, std::move(process));
  return Status();
}

Status NodeWatch::WatchDescriptor(int fd, std::function<void()> readable) {
  std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(Add(fd, next_id_));
  others_[next_id_++] = std::move(readable);
  return Status();
}

Result<NodeWatch::Events> NodeWatch::Wait(const Deadline& deadline) {
  epoll_event ready[kEventsAtOnce];
  int count;
  do count = epoll_wait(epoll_.get(), ready, kEventsAtOnce, deadline.PollTimeout());
  while (count < 0 && errno == EINTR);
  if (count < 0) return ErrnoStatus(errno, "epoll_wait");
  Events events;
  for (int i = 0; i < count; i++) Take(ready[i].data.u64, &events);
  return events;
}

void NodeWatch::Take(uint64_t id, Events* events) {
  if (id == kInotifyId) return TakeFiles(events);
  if (id == kWakeId) {
    uint64_t count;
    events->woken = read(wake_.get(), &count, sizeof count) == sizeof count;
    return;
  }
  std::function<void()> other;
  {
    std::lock_guard lock(mutex_);
    auto found = others_.find(id);
    if (found == others_.end()) return TakeEnd(id, events);
    other = found->second;
  }
  other();
}

void NodeWatch::TakeFiles(Events* events) {
  alignas(inotify_event) char buffer[kInotifyBuffer];
  ssize_t got;
  while ((got = read(inotify_.get(), buffer, sizeof buffer)) > 0) {
    std::lock_guard lock(mutex_);
    for (const char* at = buffer; at < buffer + got;) {
      inotify_event event;
      std::memcpy(&event, at, sizeof event);
      const char* name = at + sizeof event;
      at = name + event.len;
      if ((event.mask & IN_Q_OVERFLOW) != 0) events->lost = true;
      auto folder = folders_.find(event.wd);
      if (folder == folders_.end()) continue;
      if ((event.mask & IN_IGNORED) != 0) {
        folders_.erase(folder);
      } else if (event.len > 0) {
        events->files.push_back({folder->second.place, folder->second.owner, name});
      }
    }
  }
}

// With the lock held. What has ended stays known, unpolled, until the job's processes are told anew.
void NodeWatch::TakeEnd(uint64_t id, Events* events) {
  auto found = process_of_.find(id);
  if (found == process_of_.end()) return;
  const auto& [job, key] = found->second;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, processes_[job][key].fd.get(), nullptr);
  events->ended.push_back(job);
}

void NodeWatch::Wake() {
  uint64_t one = 1;
  // Fails only when it is awake already.
  (void)!write(wake_.get(), &one, sizeof one);
}

}  // namespace stasis
