/* For allocators that keep device memory of their own: tells Stasis which of it is in use, so that
 * checkpoints hold that alone. Copy this file: it needs no library, and does nothing in a program that Stasis
 * does not run.
 *
 * stasis_memory_alloc: a block is given out. Whoever notes one block of a piece of memory from the driver
 * notes them all: the rest of that piece loses its content in a checkpoint. A new piece is in use as a whole
 * until then; to say that it is not, note it as one block and free it.
 *
 * stasis_memory_free: the block at this address is taken back, though the device may still be at work on it.
 *
 * stasis_iteration: one round of a loop ends whose rounds use memory alike. Optional.
 *
 * Call the first two in the order in which blocks change hands: under the allocator's lock. Any thread may
 * call them at any time. Everything else about them is in docs/active-memory.md.
 *
 * The functions are looked up at run time, since a weak symbol that is undefined when a program without PIE
 * is linked stays undefined for ever.
 */
#ifndef STASIS_MEMORY_H_
#define STASIS_MEMORY_H_

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif
static void* stasis_dlsym(void* handle, const char* name) __attribute__((weakref("dlsym")));
#ifdef __cplusplus
}
#endif

/* Null when Stasis is not there; `known` then refers to itself. */
static inline void* stasis_find(void** known, const char* name) {
  void* function = __atomic_load_n(known, __ATOMIC_RELAXED);
  if (!function) {
    function = stasis_dlsym ? stasis_dlsym(NULL, name) : NULL;
    __atomic_store_n(known, function ? function : (void*)known, __ATOMIC_RELAXED);
  }
  return function == (void*)known ? NULL : function;
}

static inline void stasis_memory_alloc(const void* ptr, size_t bytes) {
  static void* known;
  void* function = stasis_find(&known, "stasis_note_alloc");
  if (function) ((void (*)(const void*, size_t))function)(ptr, bytes);
}

static inline void stasis_memory_free(const void* ptr) {
  static void* known;
  void* function = stasis_find(&known, "stasis_note_free");
  if (function) ((void (*)(const void*))function)(ptr);
}

static inline void stasis_iteration(void) {
  static void* known;
  void* function = stasis_find(&known, "stasis_note_iteration");
  if (function) ((void (*)(void))function)();
}

#endif /* STASIS_MEMORY_H_ */
