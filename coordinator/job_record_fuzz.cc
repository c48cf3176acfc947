// A job's files and the list of nodes that a user gives, as they come from disk.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "coordinator/job_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  // What was accepted can be written and is accepted again.
  stasis::Result<stasis::JobRecord> record = stasis::ParseJobRecord(text);
  if (record.ok() && !stasis::ParseJobRecord(stasis::JobRecordText(*record)).ok()) __builtin_trap();
  stasis::Result<stasis::JobImage> image = stasis::ParseJobImage(text);
  if (image.ok() && !stasis::ParseJobImage(stasis::JobImageText(*image)).ok()) __builtin_trap();
  stasis::Result<std::vector<stasis::JobNode>> nodes = stasis::ParseNodes(text);
  if (nodes.ok() && !stasis::CheckNodes(*nodes).ok()) __builtin_trap();
  return 0;
}
