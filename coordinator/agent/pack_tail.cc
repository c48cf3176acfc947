#include "coordinator/agent/pack_tail.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/files.h"
#include "base/quiet_thread.h"
#include "dedup/pack.h"
#include "ghost/proc.h"

namespace stasis {
namespace {

constexpr size_t kReadBytes = 2 << 20;

uint64_t SizeOf(const Fd& file) {
  struct stat info;
  return fstat(file.get(), &info) == 0 ? static_cast<uint64_t>(info.st_size) : 0;
}

// Bytes that do not arrive as they were sent are refused there, and here only cost the head start.
bool IsWhole(const RecordHeader& header, std::span<const std::byte> stored) {
  std::vector<std::byte> raw(header.raw_size);
  return DecodeRecord(header, stored, raw).ok();
}

}  // namespace

Status SplitRecords(std::span<const std::byte> bytes, std::vector<ChunkRecord>* records, size_t* used) {
  *used = 0;
  while (bytes.size() - *used >= kRecordHeaderBytes) {
    std::span<const std::byte> rest = bytes.subspan(*used);
    ASSIGN_OR_RETURN(RecordHeader header, DecodeRecordHeader(rest.first<kRecordHeaderBytes>()));
    const size_t size = kRecordHeaderBytes + header.stored_size;
    if (rest.size() < size) return Status();
    records->push_back({header.hash, {rest.begin(), rest.begin() + static_cast<ptrdiff_t>(size)}});
    *used += size;
  }
  return Status();
}

Result<std::unique_ptr<PackTail>> PackTail::Start(const std::string& store_root, std::vector<pid_t> writers,
                                                  Take take) {
  const std::string folder = store_root + "/packs";
  Fd watch(inotify_init1(IN_NONBLOCK | IN_CLOEXEC)), stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!watch.valid() || !stop.valid()) return ErrnoStatus(errno, "watch " + folder);
  if (inotify_add_watch(watch.get(), folder.c_str(), IN_MODIFY | IN_CREATE) < 0)
    return ErrnoStatus(errno, "watch " + folder);
  return std::unique_ptr<PackTail>(
      new PackTail(folder, std::move(writers), std::move(take), std::move(watch), std::move(stop)));
}

PackTail::PackTail(std::string folder, std::vector<pid_t> writers, Take take, Fd watch, Fd stop)
    : folder_(std::move(folder)),
      writers_(std::move(writers)),
      take_(std::move(take)),
      watch_(std::move(watch)),
      stop_(std::move(stop)) {
  thread_ = StartQuietThread([this] { Run(); });
}

PackTail::~PackTail() {
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

void PackTail::Run() {
  for (;;) {
    pollfd waits[] = {{watch_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    if (poll(waits, 2, -1) < 0 && errno != EINTR) return;
    if (!Look().ok() || waits[1].revents != 0) return;
  }
}

bool PackTail::IsTheirs(const std::string& path) const {
  return std::any_of(writers_.begin(), writers_.end(), [&](pid_t writer) {
    const Result<std::vector<ProcFd>> open = FdsOf(writer);
    return open.ok() &&
           std::any_of(open->begin(), open->end(), [&](const ProcFd& fd) { return fd.target == path; });
  });
}

Status PackTail::Look() {
  alignas(inotify_event) char buffer[16 << 10];
  for (;;) {
    ssize_t got = read(watch_.get(), buffer, sizeof buffer);
    if (got <= 0) break;
    for (ssize_t at = 0; at < got;) {
      const auto* event = reinterpret_cast<const inotify_event*>(buffer + at);
      at += static_cast<ssize_t>(sizeof *event + event->len);
      const std::string name = event->len > 0 ? event->name : "";
      if (!name.ends_with(".tmp") || packs_.contains(name)) continue;
      const std::string path = folder_ + "/" + name;
      if (!IsTheirs(path)) continue;
      Result<Fd> file = OpenFile(path, O_RDONLY);
      if (file.ok()) packs_[name] = {*std::move(file), kPackHeaderBytes, false};
    }
  }
  for (auto& [name, pack] : packs_) RETURN_IF_ERROR(Advance(pack));
  return Status();
}

Status PackTail::Advance(Pack& pack) {
  while (!pack.ended) {
    const uint64_t size = SizeOf(pack.file);
    if (size <= pack.offset) return Status();
    std::vector<std::byte> bytes(std::min<uint64_t>(size - pack.offset, kReadBytes));
    RETURN_IF_ERROR(ReadAt(pack.file.get(), bytes, pack.offset));
    std::vector<ChunkRecord> records;
    size_t used = 0;
    pack.ended = !SplitRecords(bytes, &records, &used).ok();
    if (records.empty()) return Status();
    for (const ChunkRecord& record : records) {
      std::span<const std::byte> whole(record.bytes);
      Result<RecordHeader> header = DecodeRecordHeader(whole.first<kRecordHeaderBytes>());
      if (!header.ok() || !IsWhole(*header, whole.subspan(kRecordHeaderBytes))) {
        pack.ended = true;
        return Status();
      }
    }
    pack.offset += used;
    RETURN_IF_ERROR(take_(std::move(records)));
  }
  return Status();
}

}  // namespace stasis
