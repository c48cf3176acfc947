#include "softgpu/driver/shared_event.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cerrno>
#include <climits>
#include <string>
#include <utility>

namespace softgpu {
namespace {

constexpr size_t kPageBytes = 4096;
// How often a waiting process looks whether it should stop.
constexpr timespec kLook{0, 50'000'000};

// Another process's descriptor. Who may look at it may take it; others go through /proc, which must show the
// process under the same number.
stasis::Fd TakeFd(pid_t pid, int number, uint64_t inode) {
  stasis::Fd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  stasis::Fd taken(static_cast<int>(syscall(SYS_pidfd_getfd, process.get(), number, 0)));
  if (taken.valid()) return taken;
  std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(number);
  struct stat info;
  // The number may be something else's by now: look before opening.
  if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_ino != inode) return {};
  return stasis::Fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
}

}  // namespace

struct SharedEvent::Page {
  std::atomic<uint64_t> begun{0};
  std::atomic<uint64_t> completed{0};
  std::atomic<uint32_t> changes{0};  // a futex
};

// What the 64 bytes of a handle say.
struct SharedEvent::Wire {
  static constexpr uint64_t kMagic = 0x31544e56'45504753;  // "SGPEVNT1"
  uint64_t magic = kMagic;
  int32_t pid = 0;
  int32_t fd = -1;
  uint64_t inode = 0;
  uint64_t reserved[5] = {};
};

SharedEvent::Page& SharedEvent::page() const { return *static_cast<Page*>(page_.data()); }

stasis::Result<std::shared_ptr<SharedEvent>> SharedEvent::Create() {
  stasis::Fd fd(memfd_create("softgpu-event", MFD_CLOEXEC));
  if (!fd.valid() || ftruncate(fd.get(), kPageBytes) != 0)
    return stasis::ErrnoStatus(errno, "memory of an event");
  ASSIGN_OR_RETURN(stasis::Mapping page,
                   stasis::Mapping::OfFd(fd.get(), 0, kPageBytes, PROT_READ | PROT_WRITE));
  return std::shared_ptr<SharedEvent>(new SharedEvent(std::move(page), std::move(fd)));
}

bool SharedEvent::GetHandle(CUipcEventHandle* handle) const {
  static_assert(sizeof(Wire) == sizeof(CUipcEventHandle));
  struct stat info;
  if (!fd_.valid() || fstat(fd_.get(), &info) != 0) return false;
  Wire wire;
  wire.pid = getpid();
  wire.fd = fd_.get();
  wire.inode = info.st_ino;
  *handle = std::bit_cast<CUipcEventHandle>(wire);
  return true;
}

CUresult SharedEvent::Open(const CUipcEventHandle& handle, std::shared_ptr<SharedEvent>* event) {
  const Wire wire = std::bit_cast<Wire>(handle);
  if (wire.magic != Wire::kMagic || wire.pid <= 0 || wire.fd < 0) return CUDA_ERROR_INVALID_VALUE;
  if (wire.pid == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  stasis::Fd fd = TakeFd(wire.pid, wire.fd, wire.inode);
  struct stat info;
  if (!fd.valid() || fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return CUDA_ERROR_MAP_FAILED;
  if (info.st_ino != wire.inode || info.st_size != kPageBytes) return CUDA_ERROR_MAP_FAILED;
  stasis::Result<stasis::Mapping> page =
      stasis::Mapping::OfFd(fd.get(), 0, kPageBytes, PROT_READ | PROT_WRITE);
  if (!page.ok()) return CUDA_ERROR_OUT_OF_MEMORY;
  *event = std::shared_ptr<SharedEvent>(new SharedEvent(*std::move(page), stasis::Fd()));
  return CUDA_SUCCESS;
}

uint64_t SharedEvent::Begin() { return page().begun.fetch_add(1) + 1; }
uint64_t SharedEvent::latest() const { return page().begun.load(); }
bool SharedEvent::IsComplete(uint64_t number) const { return page().completed.load() >= number; }

void SharedEvent::Complete(uint64_t number) {
  uint64_t known = page().completed.load();
  while (known < number && !page().completed.compare_exchange_weak(known, number)) {
  }
  page().changes.fetch_add(1);
  syscall(SYS_futex, &page().changes, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void SharedEvent::Wait(uint64_t number, const std::function<bool()>& stop) const {
  for (;;) {
    const uint32_t changes = page().changes.load();
    if (IsComplete(number) || stop()) return;
    syscall(SYS_futex, &page().changes, FUTEX_WAIT, changes, &kLook, nullptr, 0);
  }
}

}  // namespace softgpu
