#include "intercept/unknown_functions.h"

#include <atomic>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <new>

#include "intercept/gate.h"
#include "intercept/taint.h"

#define STASIS_UNKNOWN_FUNCTIONS 256

// Where each of them goes on to; read by the code below.
extern "C" {
__attribute__((visibility("hidden"))) void* stasis_unknown_targets[STASIS_UNKNOWN_FUNCTIONS];
__attribute__((visibility("hidden"))) void stasis_unknown_called(size_t index);
}

namespace stasis {
namespace {

struct Slot {
  const char* name = nullptr;  // a copy, kept for good
  std::atomic<bool> called{false};
};

constinit std::mutex g_mutex;
constinit Slot g_slots[STASIS_UNKNOWN_FUNCTIONS];  // names are guarded by g_mutex until they are given out
constinit size_t g_count = 0;                      // guarded by g_mutex

}  // namespace
}  // namespace stasis

#if defined(__x86_64__)
// One entry of 16 bytes for each: its number, then what all have in common. Every register that may hold an
// argument comes back.
#define STASIS_TEXT2(x) #x
#define STASIS_TEXT(x) STASIS_TEXT2(x)
__asm__(
    ".pushsection .text\n"
    ".balign 16\n"
    ".hidden stasis_unknown_entries\n.globl stasis_unknown_entries\n.type stasis_unknown_entries, @function\n"
    "stasis_unknown_entries:\n"
    ".set stasis_unknown_number, 0\n"
    ".rept " STASIS_TEXT(STASIS_UNKNOWN_FUNCTIONS) "\n"
    "  .balign 16\n"
    "  pushq $stasis_unknown_number\n"
    "  jmp stasis_unknown_common\n"
    "  .set stasis_unknown_number, stasis_unknown_number + 1\n"
    ".endr\n"
    ".size stasis_unknown_entries, .-stasis_unknown_entries\n"
    ".type stasis_unknown_common, @function\n"
    "stasis_unknown_common:\n"
    "  pushq %rdi\n  pushq %rsi\n  pushq %rdx\n  pushq %rcx\n  pushq %r8\n  pushq %r9\n  pushq %rax\n"
    "  subq $136, %rsp\n"
    "  movups %xmm0, (%rsp)\n  movups %xmm1, 16(%rsp)\n  movups %xmm2, 32(%rsp)\n  movups %xmm3, 48(%rsp)\n"
    "  movups %xmm4, 64(%rsp)\n  movups %xmm5, 80(%rsp)\n  movups %xmm6, 96(%rsp)\n  movups %xmm7, 112(%rsp)\n"
    "  movq 192(%rsp), %rdi\n"
    "  call stasis_unknown_called\n"
    "  movups (%rsp), %xmm0\n  movups 16(%rsp), %xmm1\n  movups 32(%rsp), %xmm2\n  movups 48(%rsp), %xmm3\n"
    "  movups 64(%rsp), %xmm4\n  movups 80(%rsp), %xmm5\n  movups 96(%rsp), %xmm6\n  movups 112(%rsp), %xmm7\n"
    "  addq $136, %rsp\n"
    "  popq %rax\n  popq %r9\n  popq %r8\n  popq %rcx\n  popq %rdx\n  popq %rsi\n  popq %rdi\n"
    "  popq %r11\n"
    "  leaq stasis_unknown_targets(%rip), %r10\n"
    "  jmp *(%r10,%r11,8)\n"
    ".size stasis_unknown_common, .-stasis_unknown_common\n"
    ".popsection\n");
extern "C" char stasis_unknown_entries[];

namespace stasis {
namespace {
void* EntryOf(size_t index) { return stasis_unknown_entries + 16 * index; }
}  // namespace
}  // namespace stasis
#else
namespace stasis {
namespace {
void* EntryOf(size_t) { return nullptr; }
}  // namespace
}  // namespace stasis
#endif

// The taint comes first: a pause that finds the gate empty afterwards looks at the taints once more.
void stasis_unknown_called(size_t index) {
  stasis::Slot& slot = stasis::g_slots[index];
  if (!slot.called.load(std::memory_order_relaxed)) {
    stasis::Taint(slot.name, true);
    slot.called.store(true, std::memory_order_release);
  }
  const stasis::GateScope gate(stasis::Fn::cuGetProcAddress_v2);
}

namespace stasis {

void* UnknownFunction(const char* name, void* real) {
  std::lock_guard<std::mutex> lock(g_mutex);
  for (size_t i = 0; i < g_count; ++i)
    if (stasis_unknown_targets[i] == real && std::strcmp(g_slots[i].name, name) == 0) return EntryOf(i);
  if (g_count == STASIS_UNKNOWN_FUNCTIONS || EntryOf(0) == nullptr) {
    Taint(name, true);
    return real;
  }
  g_slots[g_count].name = strdup(name);
  stasis_unknown_targets[g_count] = real;
  return EntryOf(g_count++);
}

void ResetUnknownFunctionsAfterFork() {
  new (&g_mutex) std::mutex;
  for (Slot& slot : g_slots) slot.called.store(false, std::memory_order_relaxed);
}

}  // namespace stasis
