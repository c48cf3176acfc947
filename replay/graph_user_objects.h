// User objects: something of the program that graphs keep alive, with a destructor that the driver calls when
// the last reference is gone.
//
// The driver is given a destructor of ours, which tells a last reference given back by the program from one
// that went because a pause destroyed the driver's objects: the program's destructor runs exactly once, and
// never early. References are counted here too, to be made again. Thread-safe.
#ifndef REPLAY_GRAPH_USER_OBJECTS_H_
#define REPLAY_GRAPH_USER_OBJECTS_H_

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>

#include "replay/object_table.h"

namespace stasis::replay {

class UserObjectRecord final : public Record {
 public:
  UserObjectRecord(void* object, CUhostFn destroy, uint64_t references)
      : Record(ObjectKind::kUserObject), object_(object), destroy_(destroy), references_(references) {}
  Status Destroy() override;
  Result<uint64_t> Rebuild() override;
  void Rebuilt() override;

  CUuserObject handle() const { return reinterpret_cast<CUuserObject>(real()); }
  // The program's own references.
  void Retain(uint64_t count);
  void Release(uint64_t count);
  // References of graphs and executable graphs.
  void RetainByGraph(uint64_t count);
  void ReleaseByGraph(uint64_t count);
  // From now on the driver's last reference goes because of us.
  void Suspend();

 private:
  friend CUresult CreateUserObject(CUuserObject*, void*, CUhostFn, unsigned, unsigned);
  struct Token;
  static void CUDA_CB LastReferenceGone(void* token);
  bool TakeDestructor(bool only_if_unreferenced);

  void* const object_;
  const CUhostFn destroy_;
  uint64_t references_;  // of the program
  uint64_t by_graphs_ = 0;
  bool suspended_ = false;
  bool destroyed_ = false;  // the program's destructor has run, or runs
  bool surplus_ = false;    // one reference more than the program's, until graphs hold theirs again
};

// The references that one graph or executable graph holds.
class UserReferences {
 public:
  UserReferences() = default;
  UserReferences(const UserReferences&) = delete;
  UserReferences& operator=(const UserReferences&) = delete;

  void Add(const std::shared_ptr<UserObjectRecord>& object, uint64_t count);
  void Remove(const std::shared_ptr<UserObjectRecord>& object, uint64_t count);
  void CopyFrom(const UserReferences& other);
  void Clear();
  bool empty() const;
  // Before the driver's holder is destroyed by a pause.
  void Suspend() const;
  // Makes the driver's graph hold the same, or gives back what a clone of ours holds.
  Status RetainIn(CUgraph graph) const;
  void ReleaseFrom(CUgraph graph) const;
  // References that cannot be told from here: of graphs inside of nodes.
  void set_untracked() { untracked_ = true; }
  bool untracked() const { return untracked_; }

 private:
  std::map<std::shared_ptr<UserObjectRecord>, uint64_t> Copy() const;
  std::map<std::shared_ptr<UserObjectRecord>, uint64_t> counts_;
  bool untracked_ = false;
};

// Makes the driver's object with our destructor, and its record; parameters as in cuUserObjectCreate.
CUresult CreateUserObject(CUuserObject* object, void* pointer, CUhostFn destroy, unsigned references,
                          unsigned flags);

}  // namespace stasis::replay

#endif  // REPLAY_GRAPH_USER_OBJECTS_H_
