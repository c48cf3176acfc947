// Records of the driver's opaque objects: what it takes to make each of them again.
//
// A record is added by the hook of the call that created the object and removed by the hook of the call that
// destroyed it. The table is all that a pause knows of the program's objects. Hooks may call it from any
// thread; it takes a short lock of its own and never calls the driver. Translation of handles (translate.h)
// takes no lock.
#ifndef REPLAY_OBJECT_TABLE_H_
#define REPLAY_OBJECT_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace stasis::replay {

// In the order of rebuilding.
enum class ObjectKind : uint8_t {
#define STASIS_OBJECT_KIND(id, name, makers, restored, refused) id,
#include "base/object_kinds.inc"
};
const char* ObjectKindName(ObjectKind kind);  // "stream"

class Record;
using RecordPtr = std::shared_ptr<Record>;

class Record {
 public:
  // `parents`: objects without which this one does not exist; it vanishes with the first of them.
  explicit Record(ObjectKind kind, std::vector<RecordPtr> parents = {})
      : kind_(kind), parents_(std::move(parents)) {}
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;
  virtual ~Record() = default;

  ObjectKind kind() const { return kind_; }
  // The handle as the program knows it; constant once the record is in the table.
  uint64_t visible() const { return visible_; }
  // The handle of the driver below; 0 while there is no object.
  uint64_t real() const { return real_; }
  uint64_t sequence() const { return sequence_; }
  const std::vector<RecordPtr>& parents() const { return parents_; }
  // "stream 0x7f12"; for messages.
  virtual std::string Name() const;

  // What the pause does with the object. Called in the control thread, the gate being closed and all work
  // done, with no current context to rely on. See pause.h for the order.
  //
  // kUnsupported, naming object and call, when the object cannot be rebuilt. Changes nothing.
  virtual Status Check() { return {}; }
  // Keeps what only the driver knows. Changes nothing.
  virtual Status Save() { return {}; }
  // Destroys the driver's object real(), which is not 0. The table forgets real() whatever this returns.
  virtual Status Destroy() = 0;
  // Makes the object again and returns its new handle (0: there is none to translate). Parents are there.
  virtual Result<uint64_t> Rebuild() = 0;
  // The rebuild of everything has succeeded, or Save() of another object has not: frees what Save() kept.
  virtual void Rebuilt() {}

 private:
  friend class ObjectTable;
  const ObjectKind kind_;
  const std::vector<RecordPtr> parents_;
  uint64_t visible_ = 0;
  uint64_t real_ = 0;
  uint64_t sequence_ = 0;
};

class ObjectTable {
 public:
  static ObjectTable& Get();

  // Takes in the record of an object that the driver has just made as `real`, and returns the handle to show
  // to the program: `real` itself, unless the program knows another living object by that value.
  uint64_t Add(const RecordPtr& record, uint64_t real);
  // The same for handles that the driver gives out again and again: when the table has a record of that kind
  // for `real`, it stays, and its visible handle is returned.
  uint64_t AddShared(const RecordPtr& record, uint64_t real);
  // Null when no living object has that visible handle.
  RecordPtr Find(uint64_t visible) const;
  // The same by the driver's handle.
  RecordPtr FindReal(uint64_t real) const;
  // Takes the record out, and all that depend on it, unless another has taken its place meanwhile (the
  // driver may hand out the handle again before the hook that destroyed the object gets here).
  void Remove(const RecordPtr& record);
  // Takes out what depends on `record`, but not itself.
  void RemoveDependents(const Record& record);
  // All records, parents first.
  std::vector<RecordPtr> InOrder() const;
  std::vector<RecordPtr> InOrder(ObjectKind kind) const;
  size_t size() const;

  // The object has (or with 0, no longer has) the handle `real` in the driver below. From the first time on
  // handles are translated. With an open gate, only for objects that no other thread is using.
  void SetReal(Record& record, uint64_t real);
  // Gate closed. Forgets all translations; every real() is 0 from now on.
  void ForgetReal();

 private:
  ObjectTable() = default;
  uint64_t AddLocked(const RecordPtr& record, uint64_t real);
};

// The record of a visible handle when it is of the wanted class, else null.
template <typename T, typename Handle>
std::shared_ptr<T> FindAs(Handle* visible) {
  return std::dynamic_pointer_cast<T>(ObjectTable::Get().Find(reinterpret_cast<uint64_t>(visible)));
}

// Adds a record and replaces the driver's handle in `*handle` by the visible one.
template <typename Handle>
void AddRecord(const RecordPtr& record, Handle** handle) {
  *handle = reinterpret_cast<Handle*>(ObjectTable::Get().Add(record, reinterpret_cast<uint64_t>(*handle)));
}

template <typename Handle>
void AddSharedRecord(const RecordPtr& record, Handle** handle) {
  *handle =
      reinterpret_cast<Handle*>(ObjectTable::Get().AddShared(record, reinterpret_cast<uint64_t>(*handle)));
}

}  // namespace stasis::replay

#endif  // REPLAY_OBJECT_TABLE_H_
