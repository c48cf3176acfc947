#include "replay/translate.h"

namespace stasis::replay::internal {

std::atomic<bool> g_translating{false};
uint64_t LookUpReal(uint64_t visible) { return visible; }
uint64_t LookUpVisible(uint64_t real) { return real; }

}  // namespace stasis::replay::internal
