// What the manifests of a store name. Not thread-safe.
#ifndef DEDUP_LIVE_CHUNKS_H_
#define DEDUP_LIVE_CHUNKS_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <unordered_set>
#include <vector>

#include "base/status.h"
#include "dedup/file_system.h"
#include "dedup/hash.h"

namespace stasis {

struct HashLowBits {
  size_t operator()(const Hash128& hash) const { return hash.low; }
};

// The folders of images, by task. A file that lies among them is none.
Result<std::vector<std::string>> ListTaskFolders(FileSystem& files, const std::string& root);
// Every manifest, as "images/TASK/NAME.image", whatever NAME is.
Result<std::vector<std::string>> ListManifests(FileSystem& files, const std::string& root);

class LiveChunks {
 public:
  LiveChunks(FileSystem& files, std::string root) : files_(files), root_(std::move(root)) {}

  // Reads the manifests that are there and were not read before; what those named that have gone stays.
  // kFailedPrecondition: one cannot be read, so that what it names is not known.
  Status Update();
  bool Contains(const Hash128& hash) const { return live_.contains(hash); }
  bool All(const std::function<bool(const Hash128&)>& of) const {
    return std::all_of(live_.begin(), live_.end(), of);
  }

 private:
  // Of a manifest: its size, and the sum at its end. A name may be used again.
  using Content = std::pair<uint64_t, Hash128>;
  Result<Content> LookAt(const std::string& path) const;

  FileSystem& files_;
  const std::string root_;
  std::map<std::string, Content> read_;
  std::unordered_set<Hash128, HashLowBits> live_;
};

}  // namespace stasis

#endif  // DEDUP_LIVE_CHUNKS_H_
