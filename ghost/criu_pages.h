// Which memory of the dumped processes the files with their pages hold: equal memory is found again in
// another dump only where it is cut at equal addresses.
#ifndef GHOST_CRIU_PAGES_H_
#define GHOST_CRIU_PAGES_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "dedup/image.h"

namespace stasis {

// One pagemap-*.img.
struct CriuPagemap {
  uint64_t pages_id = 0;
  std::vector<Segment> segments;  // of pages-<pages_id>.img, in the order of the file
};
// From the bytes of the file; kCorrupt for anything malformed.
Result<CriuPagemap> ParseCriuPagemap(std::span<const std::byte> image);

// What is in the pages-*.img of a folder, by file name. A file whose map cannot be read, or whose pages do
// not follow from its map, is left out.
class CriuPages {
 public:
  explicit CriuPages(const std::string& folder);
  // Empty for a file that is better cut at its own offsets.
  std::vector<Segment> Of(const std::string& file, uint64_t size) const;

 private:
  std::map<std::string, std::vector<Segment>> files_;
};

}  // namespace stasis

#endif  // GHOST_CRIU_PAGES_H_
