#include "softgpu/nccl/inbox.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace softgpu::nccl {

namespace {

using stasis::ErrnoStatus;
using stasis::Errorf;
using stasis::Fd;
using stasis::Mapping;
using stasis::Result;
using stasis::StatusCode;

constexpr size_t kPage = 4096;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;

// The bell's page, the states, the data.
size_t StatesBytes(int ranks) {
  const size_t bytes = static_cast<size_t>(ranks) * kChannels * sizeof(RingState);
  return (bytes + kPage - 1) / kPage * kPage;
}
size_t InboxBytes(int ranks) {
  return kPage + StatesBytes(ranks) + static_cast<size_t>(ranks) * kChannels * kRingBytes;
}

}  // namespace

Result<std::shared_ptr<Inbox>> Inbox::Create(int ranks) {
  Fd fd(memfd_create("softgpu-nccl", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return ErrnoStatus(errno, "memfd_create");
  const size_t bytes = InboxBytes(ranks);
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return ErrnoStatus(errno, "ftruncate");
  // So that a peer cannot make ours go away under us.
  if (fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return ErrnoStatus(errno, "F_ADD_SEALS");
  ASSIGN_OR_RETURN(Mapping memory, Mapping::OfFd(fd.get(), 0, bytes, PROT_READ | PROT_WRITE));
  return std::shared_ptr<Inbox>(new Inbox(ranks, std::move(memory), std::move(fd)));
}

Result<std::shared_ptr<Inbox>> Inbox::Open(int fd, int ranks) {
  const size_t bytes = InboxBytes(ranks);
  struct stat facts {};
  if (fstat(fd, &facts) != 0 || static_cast<size_t>(facts.st_size) != bytes)
    return Errorf(StatusCode::kCorrupt, "a peer's memory has the wrong size");
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals)
    return Errorf(StatusCode::kCorrupt, "a peer's memory may change its size");
  ASSIGN_OR_RETURN(Mapping memory, Mapping::OfFd(fd, 0, bytes, PROT_READ | PROT_WRITE));
  return std::shared_ptr<Inbox>(new Inbox(ranks, std::move(memory), Fd()));
}

Bell* Inbox::bell() const { return reinterpret_cast<Bell*>(memory_.data()); }

Ring Inbox::RingFrom(int rank, Channel channel) const {
  const size_t index = static_cast<size_t>(rank) * kChannels + channel;
  auto* states = reinterpret_cast<RingState*>(memory_.bytes() + kPage);
  std::byte* data = memory_.bytes() + kPage + StatesBytes(ranks_);
  return Ring(states + index, data + index * kRingBytes, kRingBytes);
}

}  // namespace softgpu::nccl
