/* Stands in for include/stasis/memory.h in a program whose allocator tells nothing of what is in use. */
#ifndef STASIS_MEMORY_H_
#define STASIS_MEMORY_H_

#include <stddef.h>

static inline void stasis_memory_alloc(const void* ptr, size_t bytes) { (void)ptr, (void)bytes; }
static inline void stasis_memory_free(const void* ptr) { (void)ptr; }
static inline void stasis_iteration(void) {}

#endif /* STASIS_MEMORY_H_ */
