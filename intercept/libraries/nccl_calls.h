// What the hooks of NCCL share: a call on a communicator, and communicators in the making.
#ifndef INTERCEPT_LIBRARIES_NCCL_CALLS_H_
#define INTERCEPT_LIBRARIES_NCCL_CALLS_H_

#include <nccl.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "intercept/libraries/handles.h"
#include "intercept/libraries/library_call.h"
#include "intercept/libraries/nccl_comms.h"
#include "intercept/libraries/nccl_ledger.h"

namespace stasis::nccl {

// True for what has been begun, too: a communicator that does not block.
inline bool Accepted(ncclResult_t result) { return result == ncclSuccess || result == ncclInProgress; }

// Null while the communicator is being made.
CutRankPtr RankOf(const CommPtr& comm);
// What a communicator that has no object in the library any more answers to a call that needs one;
// ncclSuccess: it has one.
ncclResult_t StandInAnswer(CommRecord& comm);

// A call on the communicator said ncclInProgress, by the name `call`.
void NoteBusy(const CommPtr& comm, const char* call);
// The library says `state` of it (ncclCommGetAsyncError): what was in progress may have ended.
void NoteAsyncState(const CommPtr& comm, ncclResult_t state);
// Asks the library for the state of the busy ones. For the pause; takes no part in the gate.
void PollBusy();

// Within a group what a call does is done by the group's end.
void NoteInGroup(const CommPtr& comm);
void GroupEnded(const libraries::LibraryCall& call, ncclResult_t result);

// Whether f is called for a communicator that has no object in the library any more.
enum class Also { kNothing, kEnded };

// Calls f(the library's communicator), noted as an operation of that rank.
template <typename Function>
ncclResult_t OnComm(const libraries::LibraryCall& call, ncclComm_t visible, Operation operation, Also also,
                    Function f) {
  const CommPtr comm = CommBook::Get().Find(visible);
  if (comm == nullptr) return f(libraries::ToReal(visible), comm);
  operation.call = call.name();
  operation.rank = RankOf(comm);
  NcclCall inside(operation);
  const ncclResult_t answer = StandInAnswer(*comm);
  if (answer != ncclSuccess && also != Also::kEnded) {
    inside.Failed();
    return answer;
  }
  const ncclResult_t result = f(comm->real, comm);
  if (!Accepted(result)) inside.Failed();
  if (result == ncclInProgress) NoteBusy(comm, call.name());
  if (Accepted(result)) NoteInGroup(comm);
  return result;
}

template <typename Function>
ncclResult_t OnComm(const libraries::LibraryCall& call, ncclComm_t visible, const Operation& operation,
                    Function f) {
  return OnComm(call, visible, operation, Also::kNothing, f);
}

inline Operation Local() { return {}; }
inline Operation Collective() {
  Operation operation;
  operation.kind = Operation::Kind::kCollective;
  return operation;
}
inline Operation WithPeer(Operation::Kind kind, int peer) {
  Operation operation;
  operation.kind = kind;
  operation.peer = peer;
  return operation;
}

// Something that a call of the program is making. Where the call is part of a group, or the communicator does
// not block, the library may put its handle in place after the call has returned.
class Creation {
 public:
  virtual ~Creation() = default;
  // The library has said `result`, and the handle is there if it ever will be. False: it is still being made,
  // and the state of told_by() will tell the end.
  virtual bool Finish(ncclResult_t result) = 0;
  virtual CommPtr told_by() const = 0;
};
using CreationPtr = std::shared_ptr<Creation>;

class CommCreation final : public Creation {
 public:
  // `parent` null: it is made of nothing else.
  CommCreation(const libraries::LibraryCall& call, ncclComm_t* place, uint64_t key, const KeptConfig& config,
               CommPtr parent = nullptr);
  bool Finish(ncclResult_t result) override;
  CommPtr told_by() const override { return parent_ != nullptr ? parent_ : comm_; }
  ncclComm_t* made() { return &made_; }

 private:
  const CommPtr comm_, parent_;
  ncclComm_t made_ = nullptr;
  ncclComm_t* const place_;
};

class WindowCreation final : public Creation {
 public:
  WindowCreation(CommPtr comm, const KeptWindow& window, ncclWindow_t* place)
      : comm_(std::move(comm)), window_(window), place_(place) {}
  bool Finish(ncclResult_t result) override;
  CommPtr told_by() const override { return comm_; }
  ncclWindow_t* made() { return &made_; }

 private:
  const CommPtr comm_;
  KeptWindow window_;
  ncclWindow_t made_ = nullptr;
  ncclWindow_t* const place_;
};

// The call of the program has returned `result`, inside of a group or not.
void Called(const CreationPtr& creation, ncclResult_t result);

void NoteFinalize(const CommPtr& comm, ncclResult_t result);
// In the child, where another thread may have held the lock.
void ResetCallsAfterFork();
// The communicator has ended, and with it what was registered with it.
void EndRegistrations(const CommPtr& comm);

}  // namespace stasis::nccl

#endif  // INTERCEPT_LIBRARIES_NCCL_CALLS_H_
