// Recorders for the driver functions behind the table of forwards. Built twice, as the forwards are. Weak, so
// that functions with behaviour take their place.
#include "softgpu/runtime/testing/fake_record.h"

// The assembler name is the one that cuda.h's macros give; the arguments are seen as the words that registers
// hold.
#define FORWARD(api, driver, needs)                                                                         \
  extern "C" __attribute__((weak, visibility("default"))) int Fake_##api(                                   \
      uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f) __asm__(FAKE_STRING(driver)); \
  int Fake_##api(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f) {                  \
    return softgpu::runtime::testing::Record(FAKE_STRING(driver), {a, b, c, d, e, f});                      \
  }

#define FORWARD_AGAIN(api, driver, needs)

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
#include "forwards_per_thread.inc"
#else
#include "forwards.inc"
#endif
