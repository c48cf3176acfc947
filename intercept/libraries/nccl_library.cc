#include "intercept/libraries/nccl_library.h"

#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string_view>

#include "intercept/libraries/library.h"
#include "intercept/libraries/nccl_calls.h"
#include "intercept/libraries/nccl_cliques.h"
#include "intercept/libraries/nccl_comms.h"
#include "intercept/libraries/nccl_graphs.h"
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

class NcclLibrary final : public libraries::Library {
 public:
  const char* Name() const override { return "NCCL"; }

  Status Settle(const Deadline& deadline, std::vector<TaskBlocker>* blockers) override {
    return NcclLedger::Get().Settle(deadline, {Describe, PollBusy, CheckCliques}, blockers);
  }
  Status Check() override { return CheckCliques(); }
  Status GiveUp() override {
    GiveUpCliques();
    return {};
  }
  Status Rebuild() override { return RebuildCliques(); }
};

constinit pthread_once_t g_once = PTHREAD_ONCE_INIT;

}  // namespace

void EnsureRegistered() {
  pthread_once(&g_once, [] { libraries::Register(new NcclLibrary); });
}

std::vector<CommReport> ReportComms() {
  std::vector<CommReport> reports;
  for (const CommPtr& comm : CommBook::Get().All()) {
    CommReport report;
    CutRankPtr cut;
    {
      std::lock_guard<std::mutex> lock(CommBook::Get().mutex);
      if (comm->cut == nullptr) continue;
      cut = comm->cut;
      report = {comm->clique_key, comm->made_by, comm->size, comm->rank, 0, {}};
    }
    report.local_ranks = CommBook::Get().RanksEver(report.key);
    report.issued = NcclLedger::Get().IssuedBy(*cut);
    reports.push_back(std::move(report));
  }
  return reports;
}

bool SetCommTarget(uint64_t key, int rank, const Counters& target) {
  for (const CommPtr& comm : CommBook::Get().All()) {
    CutRankPtr cut;
    {
      std::lock_guard<std::mutex> lock(CommBook::Get().mutex);
      if (comm->clique_key == key && comm->rank == rank) cut = comm->cut;
    }
    if (cut == nullptr) continue;
    NcclLedger::Get().SetTarget(*cut, target);
    return true;
  }
  return false;
}

}  // namespace stasis::nccl
