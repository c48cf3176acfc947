#include "vmm/hold.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>

#include "base/fd.h"

namespace stasis::vmm {
namespace {

std::string ReadMaps() {
  std::string text;
  Fd fd(open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
  char buffer[16384];
  for (;;) {
    const ssize_t got = read(fd.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(buffer, static_cast<size_t>(got));
  }
}

// Calls `visit` with begin, end and text of each line until it answers false.
template <typename Visit>
void ForEachMapping(Visit visit) {
  const std::string text = ReadMaps();
  for (size_t at = 0; at < text.size();) {
    size_t line_end = text.find('\n', at);
    if (line_end == std::string::npos) line_end = text.size();
    const std::string line = text.substr(at, line_end - at);
    at = line_end + 1;
    uint64_t begin = 0, end = 0;
    if (sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64, &begin, &end) != 2) continue;
    if (!visit(begin, end, line)) return;
  }
}

}  // namespace

Status HoldAddresses(uint64_t address, uint64_t size) {
  void* const wanted = reinterpret_cast<void*>(address);
  void* const got =
      mmap(wanted, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (got == wanted) return {};
  const int error = errno;
  if (got != MAP_FAILED) munmap(got, size);  // a kernel before 4.17 takes the address for a mere wish
  if (got == MAP_FAILED && error != EEXIST) return ErrnoStatus(error, "hold addresses of device memory");
  return Errorf(StatusCode::kAlreadyExists, "addresses 0x%" PRIx64 "-0x%" PRIx64 " were taken: %s", address,
                address + size, WhoIsAt(address, size).c_str());
}

void DropHold(uint64_t address, uint64_t size) { munmap(reinterpret_cast<void*>(address), size); }

std::string OwnerOfAddresses(uint64_t address, uint64_t size) {
  std::string owner;
  ForEachMapping([&](uint64_t begin, uint64_t end, const std::string& line) {
    if (end <= address) return true;
    if (begin < address + size) owner = line;
    return false;
  });
  return owner;
}

std::string WhoIsAt(uint64_t address, uint64_t size) {
  const std::string owner = OwnerOfAddresses(address, size);
  return owner.empty() ? "whoever was there has gone" : "there is " + owner;
}

RangeSet MappedAddresses() {
  RangeSet mapped;
  ForEachMapping([&mapped](uint64_t begin, uint64_t end, const std::string&) {
    mapped.RemoveAny({begin, end});  // the list may show a mapping twice when it changes while it is read
    mapped.Add({begin, end});
    return true;
  });
  return mapped;
}

}  // namespace stasis::vmm
