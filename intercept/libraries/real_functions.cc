#include "intercept/libraries/real_functions.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/raw_log.h"

namespace stasis::libraries {

namespace internal {

constinit std::atomic<void*> g_real_functions[kLibraryFnCount] = {};

}  // namespace internal

namespace {

constexpr const char* kSonames[kLibraryCount] = {"libcublas.so.13", "libcublasLt.so.13", "libcudnn.so.9",
                                                 "libnccl.so.2"};

struct CodeRange {
  std::atomic<uintptr_t> begin{0};
  std::atomic<uintptr_t> end{0};  // stored last
};
constinit CodeRange g_code[kLibraryCount];
constinit std::atomic<bool> g_missed[kLibraryFnCount] = {};

// The object's loaded part, told by its link map.
int NoteRange(dl_phdr_info* info, size_t, void* data) {
  const auto& [map, range] = *static_cast<std::pair<const link_map*, CodeRange*>*>(data);
  if (info->dlpi_addr != map->l_addr || std::strcmp(info->dlpi_name, map->l_name) != 0) return 0;
  uintptr_t end = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    if (part.p_type == PT_LOAD) end = std::max<uintptr_t>(end, info->dlpi_addr + part.p_vaddr + part.p_memsz);
  }
  range->begin.store(info->dlpi_addr, std::memory_order_relaxed);
  range->end.store(end, std::memory_order_release);
  return 1;
}

// The handle is kept: the functions are remembered for the life of the process.
void* FindByName(LibraryFn function) {
  const auto library = static_cast<size_t>(LibraryOf(function));
  void* handle = dlopen(kSonames[library], RTLD_NOLOAD | RTLD_LAZY);
  if (handle == nullptr) return nullptr;
  void* address = dlsym(handle, LibraryFnName(function));
  CodeRange& range = g_code[library];
  link_map* map = nullptr;
  const bool known = range.end.load(std::memory_order_acquire) != 0;
  if (!known && dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0) {
    std::pair<const link_map*, CodeRange*> data(map, &range);
    dl_iterate_phdr(NoteRange, &data);
  }
  return address;
}

}  // namespace

namespace internal {

void* ResolveFunction(LibraryFn function) {
  void* address = FindByName(function);
  // A library of another name, or one that is linked into a library of the program.
  if (address == nullptr) address = dlsym(RTLD_NEXT, LibraryFnName(function));
  const auto index = static_cast<uint32_t>(function);
  if (address == nullptr && !g_missed[index].exchange(true, std::memory_order_relaxed))
    RawLog(LogLevel::kWarning, "%s: the process has not loaded %s", LibraryFnName(function),
           kSonames[static_cast<size_t>(LibraryOf(function))]);
  g_real_functions[index].store(address, std::memory_order_relaxed);
  return address;
}

}  // namespace internal

bool IsLibraryCode(const void* address) {
  const auto place = reinterpret_cast<uintptr_t>(address);
  for (const CodeRange& range : g_code) {
    const uintptr_t end = range.end.load(std::memory_order_acquire);
    if (place < end && place >= range.begin.load(std::memory_order_relaxed)) return true;
  }
  return false;
}

bool IsInALibrary(const void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return false;
  const char* slash = std::strrchr(info.dli_fname, '/');
  const char* name = slash == nullptr ? info.dli_fname : slash + 1;
  for (const char* prefix : {"libcublas.so", "libcublasLt.so", "libcudnn.so", "libcudnn_", "libnccl.so"})
    if (std::strncmp(name, prefix, std::strlen(prefix)) == 0) return true;
  return false;
}

}  // namespace stasis::libraries
