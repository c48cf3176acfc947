#include "softgpu/ptx/exec/access_map.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace softgpu::exec {
namespace {

constexpr unsigned kPageBits = 21;
constexpr uint64_t kPageBytes = uint64_t{1} << kPageBits;
constexpr uint64_t kAddressEnd = uint64_t{1} << 47;
constexpr uint64_t kPages = kAddressEnd >> kPageBits;

struct Interval {
  uint64_t begin, end;
  uint8_t rights;
};

}  // namespace

// The intervals of partial pages. Writers publish a whole new sorted list; a list is deleted once no reader
// of the epoch in which it was current is left. The seq_cst order of `epoch`, `readers` and `current` is what
// makes a reader that saw the old epoch twice visible to the writer's wait.
struct AccessMap::Partial {
  using List = std::vector<Interval>;

  std::mutex mutex;
  std::map<uint64_t, List> pages;  // page index -> sorted disjoint intervals; the writers' copy
  std::atomic<const List*> current{new List};
  std::atomic<unsigned> epoch{0};
  std::atomic<unsigned> readers[2] = {0, 0};

  ~Partial() { delete current.load(); }

  void Publish() {
    auto list = std::make_unique<List>();
    for (const auto& [page, intervals] : pages) list->insert(list->end(), intervals.begin(), intervals.end());
    const List* old = current.exchange(list.release());
    unsigned previous = epoch.fetch_xor(1);
    while (readers[previous].load() != 0) std::this_thread::yield();
    delete old;
  }

  template <typename Visit>
  bool Read(Visit visit) {
    unsigned now;
    for (;;) {
      now = epoch.load();
      readers[now].fetch_add(1);
      if (epoch.load() == now) break;
      readers[now].fetch_sub(1);
    }
    bool result = visit(*current.load());
    readers[now].fetch_sub(1);
    return result;
  }
};

stasis::Result<std::unique_ptr<AccessMap>> AccessMap::Create() {
  void* table =
      mmap(nullptr, kPages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (table == MAP_FAILED) return stasis::ErrnoStatus(errno, "map the table of device addresses");
  std::unique_ptr<AccessMap> map(new AccessMap);
  map->table_ = static_cast<uint8_t*>(table);
  map->partial_ = new Partial;
  return map;
}

AccessMap::~AccessMap() {
  if (table_) munmap(table_, kPages);
  delete partial_;
}

void AccessMap::SetInPage(uint64_t page, uint64_t begin, uint64_t end, uint8_t rights) {
  uint64_t page_begin = page << kPageBits, page_end = page_begin + kPageBytes;
  uint8_t before = __atomic_load_n(&table_[page], __ATOMIC_RELAXED);
  Partial::List old;
  if (before & kPartial) {
    old = partial_->pages[page];
  } else if (before != 0) {
    old.push_back({page_begin, page_end, before});
  }
  Partial::List list;
  for (const Interval& i : old) {
    if (i.begin < begin) list.push_back({i.begin, std::min(i.end, begin), i.rights});
    if (i.end > end) list.push_back({std::max(i.begin, end), i.end, i.rights});
  }
  if (rights != 0) list.push_back({begin, end, rights});
  std::sort(list.begin(), list.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  Partial::List merged;
  for (const Interval& i : list) {
    if (!merged.empty() && merged.back().end == i.begin && merged.back().rights == i.rights) {
      merged.back().end = i.end;
    } else {
      merged.push_back(i);
    }
  }
  bool uniform = merged.empty() || (merged[0].begin == page_begin && merged[0].end == page_end);
  uint8_t entry = uniform ? (merged.empty() ? 0 : merged[0].rights) : kPartial;
  if (uniform) {
    partial_->pages.erase(page);
    __atomic_store_n(&table_[page], entry, __ATOMIC_RELEASE);
    partial_->Publish();
  } else {
    // The list comes first, so that a reader that sees the mark finds the intervals.
    partial_->pages[page] = std::move(merged);
    partial_->Publish();
    __atomic_store_n(&table_[page], entry, __ATOMIC_RELEASE);
  }
}

void AccessMap::Set(uint64_t base, uint64_t size, Access access) {
  if (base >= kAddressEnd) return;
  uint64_t end = size > kAddressEnd - base ? kAddressEnd : base + size;
  std::lock_guard<std::mutex> lock(partial_->mutex);
  uint8_t rights = static_cast<uint8_t>(access);
  bool erased = false;
  for (uint64_t at = base; at < end;) {
    uint64_t page = at >> kPageBits;
    uint64_t stop = std::min(end, (page + 1) << kPageBits);
    if (stop - at == kPageBytes) {
      __atomic_store_n(&table_[page], rights, __ATOMIC_RELEASE);
      if (!partial_->pages.empty()) erased |= partial_->pages.erase(page) != 0;
    } else {
      SetInPage(page, at, stop, rights);
    }
    at = stop;
  }
  if (erased) partial_->Publish();
}

bool AccessMap::AllowsSlow(uint64_t address, unsigned size, bool write) const {
  uint8_t need = write ? 2 : 1;
  uint64_t end = address + size;
  while (address < end) {
    uint64_t page = address >> kPageBits;
    uint64_t stop = std::min(end, (page + 1) << kPageBits);
    uint8_t rights = __atomic_load_n(&table_[page], __ATOMIC_ACQUIRE);
    if (!(rights & kPartial)) {
      if (!(rights & need)) return false;
      address = stop;
      continue;
    }
    bool covered = partial_->Read([&](const Partial::List& list) {
      auto it = std::upper_bound(list.begin(), list.end(), address,
                                 [](uint64_t a, const Interval& i) { return a < i.begin; });
      if (it == list.begin()) return false;
      for (--it; address < stop; ++it) {
        if (it == list.end() || it->begin > address || it->end <= address || !(it->rights & need))
          return false;
        address = it->end;
      }
      return true;
    });
    if (!covered) return false;
    address = std::max(address, stop);
  }
  return true;
}

}  // namespace softgpu::exec
