// How large the images of a store are, and what removing each would free.
#ifndef COORDINATOR_NODE_IMAGE_FIGURES_H_
#define COORDINATOR_NODE_IMAGE_FIGURES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "coordinator/node/image_names.h"

namespace stasis {

struct ImageFigures {
  ImageName name;
  int ranks = 0;       // whose images it is, of a job; else 0
  std::string damage;  // why it cannot be read; the figures are zero then
  // The keys that it is encrypted to, of one that there is no identity for: no more than what it takes is
  // known.
  std::string sealed_to;
  bool has_task = false;  // its meta describes a task, as a checkpoint's does
  uint64_t created = 0;   // seconds since 1970
  uint64_t device_bytes = 0;
  ImageCounts counts;
  uint64_t stored_bytes = 0;  // what its chunks take in packs, each counted once
  uint64_t frees_bytes = 0;   // of that, what no other image names, and the manifest
};

// Every image of the store, also those that are no checkpoints; sorted by name. Reads each manifest once.
// Images that `whole` has the name of, by their "TASK/ID", are counted together as an image of that name.
Result<std::vector<ImageFigures>> ReadFigures(const std::shared_ptr<Store>& store,
                                              const std::map<std::string, ImageName>& whole = {});

// For each list of chunks the bytes of those that are in no other list, every chunk once; zero chunks take
// nothing. `stored` gives the bytes that a chunk takes.
std::vector<uint64_t> ExclusiveBytes(const std::vector<std::vector<Hash128>>& lists,
                                     const std::function<uint64_t(const Hash128&)>& stored);

}  // namespace stasis

#endif  // COORDINATOR_NODE_IMAGE_FIGURES_H_
