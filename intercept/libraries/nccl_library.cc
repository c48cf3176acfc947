#include "intercept/libraries/nccl_library.h"

#include <pthread.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "intercept/libraries/library.h"
#include "intercept/libraries/nccl_calls.h"
#include "intercept/libraries/nccl_cliques.h"
#include "intercept/libraries/nccl_comms.h"
#include "intercept/libraries/nccl_ids.h"
#include "intercept/libraries/nccl_ledger.h"

namespace stasis::nccl {
namespace {

using libraries::HeldCall;
using Kind = Operation::Kind;

struct KindRow {
  std::string_view call;
  Kind kind;
};
// What is not here needs no other rank, and passes until the ranks are at the cut.
constexpr KindRow kKinds[] = {
    {"ncclAllGather", Kind::kCollective},
    {"ncclAllReduce", Kind::kCollective},
    {"ncclAlltoAll", Kind::kCollective},
    {"ncclBcast", Kind::kCollective},
    {"ncclBroadcast", Kind::kCollective},
    {"ncclCommDestroy", Kind::kMeeting},
    {"ncclCommFinalize", Kind::kMeeting},
    {"ncclCommInitAll", Kind::kGroupStart},  // waits for nobody, and nobody for it
    {"ncclCommInitRank", Kind::kMeeting},
    {"ncclCommInitRankConfig", Kind::kMeeting},
    {"ncclCommInitRankScalable", Kind::kMeeting},
    {"ncclCommShrink", Kind::kMeeting},
    {"ncclCommSplit", Kind::kCollective},
    {"ncclCommWindowRegister", Kind::kCollective},
    {"ncclGather", Kind::kCollective},
    {"ncclGetUniqueId", Kind::kGroupStart},
    {"ncclGroupEnd", Kind::kGroupEnd},
    {"ncclGroupSimulateEnd", Kind::kGroupEnd},
    {"ncclGroupStart", Kind::kGroupStart},
    {"ncclRecv", Kind::kReceive},
    {"ncclReduce", Kind::kCollective},
    {"ncclReduceScatter", Kind::kCollective},
    {"ncclScatter", Kind::kCollective},
    {"ncclSend", Kind::kSend},
};

Operation Describe(const HeldCall& held) {
  Operation operation;
  operation.call = LibraryFnName(held.function);
  const std::string_view name = operation.call[0] == 'p' ? operation.call + 1 : operation.call;
  const auto* row = std::find_if(std::begin(kKinds), std::end(kKinds),
                                 [name](const KindRow& known) { return known.call == name; });
  if (row != std::end(kKinds)) operation.kind = row->kind;
  const auto visible = static_cast<ncclComm_t>(const_cast<void*>(held.handle));
  const CommPtr comm = visible == nullptr ? nullptr : CommBook::Get().Find(visible);
  if (comm == nullptr) return operation;
  operation.rank = RankOf(comm);
  if (operation.kind == Kind::kMeeting) operation.meeting = comm->clique_key;
  return operation;
}

// Whether it makes sense to wait for the cut.
Status Look() {
  NoteFailures();
  return CheckCliques();
}

void AddWindows(CutReport* report) {
  std::map<std::pair<CommKey, int32_t>, uint32_t> windows;
  for (const CommPtr& comm : CommBook::Get().All()) {
    std::lock_guard<std::mutex> lock(CommBook::Get().mutex);
    windows[{comm->clique_key, comm->rank}] = static_cast<uint32_t>(comm->windows.size());
  }
  for (RankReport& rank : report->ranks)
    if (!rank.over) rank.windows = windows[{rank.comm, rank.rank}];
}

class NcclLibrary final : public libraries::Library {
 public:
  const char* Name() const override { return "NCCL"; }

  Status Advance(const CutTargets& targets, Duration quiet, const Deadline& deadline,
                 CutReport* report) override {
    NoteUsedElsewhere(targets.used);
    RETURN_IF_ERROR(NcclLedger::Get().Advance(targets, quiet, deadline, {Describe, PollBusy, Look}, report));
    report->used = UsedAmong(targets.meetings);
    AddWindows(report);
    return {};
  }
  void Report(CutReport* report) override {
    PollBusy();
    *report = NcclLedger::Get().Report();
    AddWindows(report);
  }
  bool NeedsRejoin() const override { return CliquesNeedRejoin(); }
  Result<std::vector<CommReport>> ReportComms() override { return ReportCliques(); }
  Status Check() override { return CheckCliques(); }
  Status GiveUp() override {
    GiveUpCliques();
    return {};
  }
  Status Rebuild() override { return RebuildCliques(); }
  Status Rejoin(const CommRejoin& rejoin) override { return RejoinCliques(rejoin); }
};

constinit pthread_once_t g_once = PTHREAD_ONCE_INIT;

}  // namespace

void EnsureRegistered() {
  pthread_once(&g_once, [] { libraries::Register(new NcclLibrary); });
}

}  // namespace stasis::nccl
