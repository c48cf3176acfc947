// Entries of a pagemap are pagemap_head, then pagemap_entry of pagemap.proto.
#include "ghost/criu_pages.h"

#include "base/files.h"
#include "base/raw_log.h"
#include "ghost/criu_wire.h"

namespace stasis {
namespace {

constexpr uint32_t kPagemapMagic = 0x56084025;
constexpr uint64_t kPage = 4096;
constexpr uint64_t kMaxAddress = 1ull << 57;
// Flags of an entry.
constexpr uint64_t kInParent = 1, kPresent = 4;
constexpr size_t kMaxPagemap = 1u << 30;

struct Entry {
  uint64_t address = 0;
  uint64_t pages = 0;
  bool in_file = false;
};

bool ReadEntry(std::span<const std::byte> message, Entry* entry) {
  Wire wire(message);
  bool ok = true, in_parent = false, has_flags = false;
  uint64_t few_pages = 0, flags = 0;
  while (ok && !wire.empty()) {
    Field field = NextField(wire, &ok);
    if (field.number == 1) entry->address = field.value;
    if (field.number == 2) few_pages = field.value;
    if (field.number == 3) in_parent = field.value != 0;
    if (field.number == 4) {
      flags = field.value;
      has_flags = true;
    }
    if (field.number == 5) entry->pages = field.value;
  }
  // Older versions have neither flags nor a count of 64 bits.
  if (entry->pages == 0) entry->pages = few_pages;
  if (!has_flags) flags = in_parent ? kInParent : kPresent;
  // What is in the parent, is zero or comes later on demand has no pages in this file.
  entry->in_file = (flags & kPresent) != 0;
  return ok && entry->address % kPage == 0 && entry->address <= kMaxAddress &&
         entry->pages <= kMaxAddress / kPage;
}

void Append(const Entry& entry, std::vector<Segment>* segments) {
  uint64_t size = entry.pages * kPage;
  if (!segments->empty() && segments->back().address + segments->back().size == entry.address) {
    segments->back().size += size;
  } else {
    segments->push_back({entry.address, size});
  }
}

}  // namespace

Result<CriuPagemap> ParseCriuPagemap(std::span<const std::byte> image) {
  CriuPagemap map;
  bool has_head = false;
  RETURN_IF_ERROR(ForCriuEntries(image, kPagemapMagic, [&](std::span<const std::byte> message) {
    if (!std::exchange(has_head, true)) {
      Wire wire(message);
      bool ok = true;
      while (ok && !wire.empty()) {
        Field field = NextField(wire, &ok);
        if (field.number == 1) map.pages_id = field.value;
      }
      return ok;
    }
    Entry entry;
    if (!ReadEntry(message, &entry)) return false;
    if (entry.in_file && entry.pages > 0) Append(entry, &map.segments);
    return true;
  }));
  return map;
}

CriuPages::CriuPages(const std::string& folder) {
  Result<std::vector<std::string>> names = ListFolder(folder);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    if (!name.starts_with("pagemap-")) continue;
    Result<std::string> image = ReadFile(folder + "/" + name, kMaxPagemap);
    Result<CriuPagemap> map =
        image.ok() ? ParseCriuPagemap(std::as_bytes(std::span(*image))) : Result<CriuPagemap>(image.status());
    if (!map.ok()) {
      RawLog(LogLevel::kWarning, "%s: %s; its pages are cut by offset", name.c_str(),
             map.status().ToString().c_str());
      continue;
    }
    files_["pages-" + std::to_string(map->pages_id) + ".img"] = std::move(map->segments);
  }
}

std::vector<Segment> CriuPages::Of(const std::string& file, uint64_t size) const {
  auto found = files_.find(file);
  if (found == files_.end()) return {};
  uint64_t total = 0;
  for (const Segment& segment : found->second) total += segment.size;
  return total == size ? found->second : std::vector<Segment>();
}

}  // namespace stasis
