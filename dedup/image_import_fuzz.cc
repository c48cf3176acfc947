// An exported image, as it comes from who knows where, into a store in memory. What is refused leaves
// nothing.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/files.h"
#include "dedup/crash_file_system.h"
#include "dedup/image.h"
#include "dedup/image_export.h"

namespace {

constexpr char kRoot[] = "/disk/store";

using Bytes = std::vector<std::byte>;

// The store takes what is good and nothing else.
void CheckStore(const std::shared_ptr<stasis::Store>& store, const stasis::Status& imported,
                const std::string& task, const std::string& id) {
  stasis::Result<std::vector<std::string>> tasks = stasis::ListImageTasks(*store);
  if (!tasks.ok() || tasks->size() != (imported.ok() ? 1 : 0)) __builtin_trap();
  if (!imported.ok()) {
    if (store->counts().chunks != 0) __builtin_trap();
    return;
  }
  auto image = stasis::ImageReader::Open(store, task, id);
  if (!image.ok() || !(*image)->VerifyAll().ok()) __builtin_trap();
}

void Try(std::span<const std::byte> bytes) {
  stasis::Fd fd(memfd_create("export", MFD_CLOEXEC));
  STASIS_CHECK(fd.valid() && stasis::WriteAt(fd.get(), bytes, 0).ok());
  stasis::CrashFileSystem disk;
  stasis::StoreOptions options;
  options.files = &disk;
  auto store = stasis::Store::Open(kRoot, options);
  STASIS_CHECK(store.ok());
  std::string task, id;
  stasis::Status status =
      stasis::ImportImage(*store, "/proc/self/fd/" + std::to_string(fd.get()), &task, &id);
  CheckStore(*store, status, task, id);
  for (const std::string& file : disk.AllFiles()) {
    if (!file.starts_with(kRoot) || file.find("/../") != std::string::npos) __builtin_trap();
  }
}

void SealHeader(Bytes* bytes) {
  uint64_t sum = stasis::HashBytes(std::span(*bytes).first(24)).low;
  std::memcpy(bytes->data() + 24, &sum, sizeof sum);
}

// The manifest ends where the header says, when that is within the file.
void SealManifest(Bytes* bytes) {
  uint64_t size;
  std::memcpy(&size, bytes->data() + 16, sizeof size);
  if (size < 40 || size > bytes->size() - stasis::kExportHeaderBytes) return;
  std::span<std::byte> manifest = std::span(*bytes).subspan(stasis::kExportHeaderBytes, size);
  std::memcpy(manifest.data() + 16, &size, sizeof size);
  stasis::Hash128 sum = stasis::HashBytes(manifest.first(size - sizeof(stasis::Hash128)));
  std::memcpy(manifest.data() + size - sizeof sum, &sum, sizeof sum);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::span<const std::byte> input = std::as_bytes(std::span(data, size));
  Try(input);
  if (size < stasis::kExportHeaderBytes) return 0;
  Bytes bytes(input.begin(), input.end());
  SealHeader(&bytes);
  SealManifest(&bytes);
  Try(bytes);
  return 0;
}
