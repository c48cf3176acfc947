#include "base/rank_protocol.h"

#include <algorithm>

namespace stasis {
namespace {

constexpr size_t kMaxText = 4096;
constexpr int32_t kMaxRanks = 1 << 20;

void WriteCounts(PayloadWriter& out, const RankCounts& counts) {
  out.U64(counts.collectives);
  for (const auto* peers : {&counts.sends, &counts.receives}) {
    out.U32(static_cast<uint32_t>(peers->size()));
    for (const auto& [peer, count] : *peers) {
      out.I32(peer);
      out.U64(count);
    }
  }
}

RankCounts ReadCounts(PayloadReader& in) {
  RankCounts counts;
  counts.collectives = in.U64();
  for (auto* peers : {&counts.sends, &counts.receives}) {
    for (uint32_t n = in.Count(12); n > 0; --n) {
      const int32_t peer = in.I32();
      (*peers)[peer] = in.U64();
    }
  }
  return counts;
}

bool PeersAreSane(const RankCounts& counts, int32_t size) {
  const auto sane = [size](const std::map<int32_t, uint64_t>& peers) {
    return peers.empty() || (peers.begin()->first >= 0 && peers.rbegin()->first < size);
  };
  return sane(counts.sends) && sane(counts.receives);
}

bool IsSane(const RankReport& report) {
  return report.size > 0 && report.size <= kMaxRanks && report.rank >= 0 && report.rank < report.size &&
         PeersAreSane(report.issued, report.size);
}

void WriteKeys(PayloadWriter& out, const std::vector<CommKey>& keys) {
  out.U32(static_cast<uint32_t>(keys.size()));
  for (CommKey key : keys) out.U64(key);
}

std::vector<CommKey> ReadKeys(PayloadReader& in) {
  std::vector<CommKey> keys(in.Count(8));
  for (CommKey& key : keys) key = in.U64();
  return keys;
}

Status Corrupt(const char* what) { return Status(StatusCode::kCorrupt, what); }

}  // namespace

std::vector<std::byte> Encode(const CutReport& report) {
  PayloadWriter out;
  out.U8(report.settled);
  out.U32(report.events);
  out.U32(static_cast<uint32_t>(report.ranks.size()));
  for (const RankReport& rank : report.ranks) {
    out.U64(rank.comm);
    out.I32(rank.size);
    out.I32(rank.rank);
    out.String(rank.made_by);
    WriteCounts(out, rank.issued);
    out.U8(rank.over);
    out.U32(rank.windows);
  }
  WriteKeys(out, report.meetings);
  out.U8(report.making);
  WriteKeys(out, report.used);
  out.U32(static_cast<uint32_t>(report.missing.size()));
  for (const TaskBlocker& blocker : report.missing) {
    out.I32(blocker.tid);
    out.String(blocker.call);
  }
  return out.Take();
}

Result<CutReport> DecodeCutReport(std::span<const std::byte> payload) {
  PayloadReader in(payload);
  CutReport report;
  report.settled = in.U8() != 0;
  report.events = in.U32();
  bool sane = true;
  for (uint32_t n = in.Count(41); n > 0; --n) {
    RankReport rank;
    rank.comm = in.U64();
    rank.size = in.I32();
    rank.rank = in.I32();
    rank.made_by = in.String(kMaxText);
    rank.issued = ReadCounts(in);
    rank.over = in.U8() != 0;
    rank.windows = in.U32();
    sane = sane && IsSane(rank);
    report.ranks.push_back(std::move(rank));
  }
  report.meetings = ReadKeys(in);
  report.making = in.U8() != 0;
  report.used = ReadKeys(in);
  for (uint32_t n = in.Count(8); n > 0; --n) {
    TaskBlocker blocker;
    blocker.tid = in.I32();
    blocker.call = in.String(kMaxText);
    report.missing.push_back(std::move(blocker));
  }
  RETURN_IF_ERROR(in.Finish().WithContext("report of ranks"));
  if (!sane) return Corrupt("report of ranks: a rank that its communicator cannot have");
  return report;
}

namespace {

void WriteTargets(PayloadWriter& out, const CutTargets& targets) {
  out.U32(static_cast<uint32_t>(targets.ranks.size()));
  for (const RankTarget& target : targets.ranks) {
    out.U64(target.comm);
    out.I32(target.rank);
    WriteCounts(out, target.issued);
  }
  WriteKeys(out, targets.meetings);
  out.U8(targets.making);
  WriteKeys(out, targets.used);
  WriteKeys(out, targets.ended);
  out.U8(targets.admit_all);
}

// To the end of `in`.
Result<CutTargets> ReadTargets(PayloadReader& in) {
  CutTargets targets;
  bool sane = true;
  for (uint32_t n = in.Count(28); n > 0; --n) {
    RankTarget target;
    target.comm = in.U64();
    target.rank = in.I32();
    target.issued = ReadCounts(in);
    sane = sane && target.rank >= 0 && PeersAreSane(target.issued, kMaxRanks);
    targets.ranks.push_back(std::move(target));
  }
  targets.meetings = ReadKeys(in);
  targets.making = in.U8() != 0;
  targets.used = ReadKeys(in);
  targets.ended = ReadKeys(in);
  targets.admit_all = in.U8() != 0;
  RETURN_IF_ERROR(in.Finish().WithContext("targets of ranks"));
  if (!sane) return Corrupt("targets of ranks: a rank that no communicator has");
  return targets;
}

}  // namespace

std::vector<std::byte> Encode(const CutTargets& targets) {
  PayloadWriter out;
  WriteTargets(out, targets);
  return out.Take();
}

Result<CutTargets> DecodeCutTargets(std::span<const std::byte> payload) {
  PayloadReader in(payload);
  return ReadTargets(in);
}

std::vector<std::byte> Encode(const TaskCut& cut) {
  PayloadWriter out;
  out.U32(cut.deadline_ms);
  out.U32(cut.quiet_ms);
  WriteTargets(out, cut.targets);
  return out.Take();
}

Result<TaskCut> DecodeTaskCut(std::span<const std::byte> payload) {
  PayloadReader in(payload);
  TaskCut cut;
  cut.deadline_ms = in.U32();
  cut.quiet_ms = in.U32();
  ASSIGN_OR_RETURN(cut.targets, ReadTargets(in));
  return cut;
}

std::vector<std::byte> Encode(const std::vector<CommReport>& comms) {
  PayloadWriter out;
  out.U32(static_cast<uint32_t>(comms.size()));
  for (const CommReport& comm : comms) {
    out.U64(comm.comm);
    out.I32(comm.size);
    out.String(comm.made_by);
    out.U32(static_cast<uint32_t>(comm.ranks.size()));
    for (int32_t rank : comm.ranks) out.I32(rank);
    out.String(comm.id);
  }
  return out.Take();
}

Result<std::vector<CommReport>> DecodeCommReports(std::span<const std::byte> payload) {
  PayloadReader in(payload);
  std::vector<CommReport> comms;
  bool sane = true;
  for (uint32_t n = in.Count(24); n > 0; --n) {
    CommReport comm;
    comm.comm = in.U64();
    comm.size = in.I32();
    comm.made_by = in.String(kMaxText);
    comm.ranks.resize(in.Count(4));
    for (int32_t& rank : comm.ranks) {
      rank = in.I32();
      sane = sane && rank >= 0 && rank < comm.size;
    }
    comm.id = in.String(kCommIdBytes);
    const bool lead = !comm.ranks.empty() && comm.ranks.front() == 0;
    sane = sane && comm.size > 0 && comm.size <= kMaxRanks && !comm.ranks.empty() &&
           std::is_sorted(comm.ranks.begin(), comm.ranks.end()) &&
           comm.id.size() == (lead ? kCommIdBytes : 0);
    comms.push_back(std::move(comm));
  }
  RETURN_IF_ERROR(in.Finish().WithContext("communicators of ranks"));
  if (!sane) return Corrupt("communicators of ranks: one that cannot be");
  return comms;
}

std::vector<std::byte> Encode(const CommRejoin& rejoin) {
  PayloadWriter out;
  out.U32(rejoin.deadline_ms);
  out.U32(static_cast<uint32_t>(rejoin.ids.size()));
  for (const CommId& id : rejoin.ids) {
    out.U64(id.comm);
    out.String(id.id);
  }
  return out.Take();
}

Result<CommRejoin> DecodeCommRejoin(std::span<const std::byte> payload) {
  PayloadReader in(payload);
  CommRejoin rejoin;
  rejoin.deadline_ms = in.U32();
  bool sane = true;
  for (uint32_t n = in.Count(12); n > 0; --n) {
    CommId id;
    id.comm = in.U64();
    id.id = in.String(kCommIdBytes);
    sane = sane && id.id.size() == kCommIdBytes;
    rejoin.ids.push_back(std::move(id));
  }
  RETURN_IF_ERROR(in.Finish().WithContext("request to join communicators"));
  if (!sane) return Corrupt("request to join communicators: an id of a wrong size");
  return rejoin;
}

}  // namespace stasis
