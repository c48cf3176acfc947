// The collector: see Store::CollectGarbage(). One at a time; beside any number of writers and readers.
#ifndef DEDUP_GC_H_
#define DEDUP_GC_H_

#include <memory>

#include "base/status.h"
#include "dedup/store_core.h"

namespace stasis {

Result<GcReport> CollectGarbage(std::shared_ptr<StoreCore> core);

}  // namespace stasis

#endif  // DEDUP_GC_H_
