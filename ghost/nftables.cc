#include "ghost/nftables.h"

#include <dlfcn.h>

#include <cstdint>

namespace stasis {
namespace {

// Facts of libnftables' interface.
constexpr char kLibrary[] = "libnftables.so.1";
struct Context;

struct Library {
  Context* (*make)(uint32_t flags) = nullptr;
  void (*free)(Context*) = nullptr;
  int (*keep_errors)(Context*) = nullptr;
  const char* (*errors)(Context*) = nullptr;
  int (*run)(Context*, const char* commands) = nullptr;

  bool complete() const { return make && free && keep_errors && errors && run; }
};

template <typename Function>
void Find(void* handle, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(handle, name));
}

Library Open() {
  Library library;
  void* handle = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return library;
  Find(handle, "nft_ctx_new", &library.make);
  Find(handle, "nft_ctx_free", &library.free);
  Find(handle, "nft_ctx_buffer_error", &library.keep_errors);
  Find(handle, "nft_ctx_get_error_buffer", &library.errors);
  Find(handle, "nft_run_cmd_from_buffer", &library.run);
  return library;
}

}  // namespace

Status RunNftables(const std::string& commands) {
  static const Library library = Open();
  if (!library.complete())
    return Status(StatusCode::kUnsupported,
                  std::string(kLibrary) + " is missing, which TCP connections need");
  Context* context = library.make(0);
  if (context == nullptr) return Status(StatusCode::kInternal, "nftables: no context");
  library.keep_errors(context);
  Status status;
  if (library.run(context, commands.c_str()) != 0)
    status = Status(StatusCode::kInternal, std::string("nftables: ") + library.errors(context));
  library.free(context);
  return status;
}

}  // namespace stasis
