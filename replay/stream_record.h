// Streams, and what the driver says about them.
#ifndef REPLAY_STREAM_RECORD_H_
#define REPLAY_STREAM_RECORD_H_

#include <cuda.h>

#include <memory>
#include <utility>
#include <vector>

#include "replay/context_record.h"
#include "replay/object_table.h"

namespace stasis::replay {

class StreamRecord final : public Record {
 public:
  // `context` null: the stream belongs to something we do not track.
  explicit StreamRecord(ContextPtr context);

  CUstream real_stream() const { return reinterpret_cast<CUstream>(real()); }
  // What cuStreamGetId says for ever; 0 until the first Save().
  unsigned long long id() const { return id_; }

  Status Check() override;
  Status Save() override;
  Status Destroy() override;
  Result<uint64_t> Rebuild() override;

 private:
  void SaveAttributes(CUstream stream);

  const ContextPtr context_;
  unsigned flags_ = 0;
  int priority_ = 0;
  unsigned long long id_ = 0;
  std::vector<std::pair<CUstreamAttrID, CUstreamAttrValue>> attributes_;
};

// Makes the record of a stream that was created in the calling thread's current context.
RecordPtr NewStreamRecord();
// The id to show for a stream without one of its own: numbers start again in each driver.
unsigned long long VisibleStreamId(unsigned long long real);
// Part of Save(): takes note of the numbers that the present driver has given, in any context.
Status NoteStreamIds(const ContextRecord& context);
// A new driver is in place.
void RestartStreamIds();

}  // namespace stasis::replay

#endif  // REPLAY_STREAM_RECORD_H_
