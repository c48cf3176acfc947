#include "replay/code_image.h"

#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "base/fd.h"

namespace stasis::replay {

namespace {

constexpr size_t kBeginning = 64;

struct LinkedImage {
  std::vector<std::byte> image;
  std::vector<std::vector<std::byte>> inputs;
};

struct LinkedImages {
  std::mutex mutex;
  std::vector<std::shared_ptr<LinkedImage>> all;
};

LinkedImages& Linked() {
  static LinkedImages* const images = new LinkedImages;
  return *images;
}

// Whether `data` begins with `bytes`. Memory of which only the address is known may end anywhere, so the
// kernel does the reading.
bool BeginsWith(const void* data, const std::vector<std::byte>& bytes) {
  std::vector<std::byte> copy(bytes.size());
  iovec to{copy.data(), copy.size()}, from{const_cast<void*>(data), copy.size()};
  return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == static_cast<ssize_t>(copy.size()) &&
         copy == bytes;
}

std::shared_ptr<LinkedImage> FindLinked(const void* data) {
  std::lock_guard lock(Linked().mutex);
  for (const auto& linked : Linked().all) {
    if (BeginsWith(data, linked->image)) return linked;
  }
  return nullptr;
}

struct Range {
  const void* begin;
  size_t size;
  bool found;
};

// A segment that is mapped from a file and never written lives as long as its object, and CRIU maps it again.
int LiesInReadOnlySegment(dl_phdr_info* info, size_t, void* argument) {
  Range* range = static_cast<Range*>(argument);
  const uintptr_t begin = reinterpret_cast<uintptr_t>(range->begin), end = begin + range->size;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_W) != 0) continue;
    const uintptr_t start = info->dlpi_addr + segment.p_vaddr;
    if (begin >= start && end <= start + segment.p_filesz) range->found = true;
  }
  return range->found ? 1 : 0;
}

bool IsInLoadedObject(const void* data, size_t size) {
  Range range{data, size, false};
  dl_iterate_phdr(LiesInReadOnlySegment, &range);
  return range.found;
}

}  // namespace

std::vector<std::byte> ReadCodeFile(const char* path) {
  const Fd file(open(path, O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (!file.valid() || fstat(file.get(), &info) != 0 || info.st_size <= 0) return {};
  std::vector<std::byte> bytes(static_cast<size_t>(info.st_size) + 1);  // PTX ends with a NUL, files do not
  size_t have = 0;
  while (have + 1 < bytes.size()) {
    const ssize_t got = read(file.get(), bytes.data() + have, bytes.size() - 1 - have);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return {};
    have += static_cast<size_t>(got);
  }
  return bytes;
}

std::shared_ptr<CodeImage> CodeImage::Keep(const void* data) {
  auto kept = std::make_shared<CodeImage>();
  kept->data_ = UnwrapDeviceCode(data);
  const std::shared_ptr<LinkedImage> linked = FindLinked(kept->data_);
  kept->size_ = linked != nullptr ? linked->image.size() : DeviceCodeSize(kept->data_);
  if (kept->size_ == 0) return kept;
  const std::byte* bytes = static_cast<const std::byte*>(kept->data_);
  if (IsInLoadedObject(bytes, kept->size_)) {
    kept->beginning_.assign(bytes, bytes + std::min(kBeginning, kept->size_));
  } else {
    kept->owned_.assign(bytes, bytes + kept->size_);
  }
  return kept;
}

std::shared_ptr<CodeImage> CodeImage::KeepFile(const char* path) {
  auto kept = std::make_shared<CodeImage>();
  kept->owned_ = ReadCodeFile(path);
  kept->size_ = kept->owned_.size();
  return kept;
}

Status CodeImage::ReadFacts() {
  if (facts_read_) return {};
  if (const std::shared_ptr<LinkedImage> linked = FindLinked(data())) {
    for (const std::vector<std::byte>& input : linked->inputs) {
      ASSIGN_OR_RETURN(const DeviceCodeFacts more, ReadDeviceCode(input));
      MergeFacts(more, &facts_);
    }
  } else {
    ASSIGN_OR_RETURN(facts_, ReadDeviceCode({static_cast<const std::byte*>(data()), size_}));
  }
  facts_read_ = true;
  return {};
}

Status CodeImage::Check() {
  if (size_ == 0) return Errorf(StatusCode::kUnsupported, "its image is of an unknown form");
  const bool in_place = beginning_.empty() || (IsInLoadedObject(data_, size_) &&
                                               std::memcmp(data_, beginning_.data(), beginning_.size()) == 0);
  if (!in_place)
    return Errorf(StatusCode::kUnsupported, "the library that held its image is no longer loaded");
  RETURN_IF_ERROR(ReadFacts());
  if (facts_.hidden_state.empty()) return {};
  return Errorf(StatusCode::kUnsupported, "its device code calls %s, whose memory belongs to the driver",
                facts_.hidden_state.c_str());
}

void RememberLinked(std::span<const std::byte> image, std::vector<std::vector<std::byte>> inputs) {
  if (ReadDeviceCode(image).ok() || FindLinked(image.data()) != nullptr) return;
  auto linked = std::make_shared<LinkedImage>();
  linked->image.assign(image.begin(), image.end());
  linked->inputs = std::move(inputs);
  std::lock_guard lock(Linked().mutex);
  Linked().all.push_back(std::move(linked));
}

}  // namespace stasis::replay
