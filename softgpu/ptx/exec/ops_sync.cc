// Warp-wide operations. Those with a membermask wait until all lanes of it that have not exited have come;
// the lanes may come at different instructions of the same kind.
#include <algorithm>
#include <cstring>

#include "softgpu/ptx/exec/ops.h"

namespace softgpu::exec {
namespace {

// Lanes that take part with the same instruction and activation.
struct Participant {
  const Inst* inst;
  Frame* frame;
  uint32_t mask;
};

struct Party {
  Participant members[kWarpSize];
  unsigned count = 0;
  uint32_t lanes = 0;

  void Add(const Inst* inst, Frame* frame, uint32_t mask) {
    members[count++] = {inst, frame, mask};
    lanes |= mask;
  }
};

std::byte* RowIn(const Warp& w, const Frame& frame, Ref ref) {
  std::byte* base = (ref & 3) == kFrameBase ? frame.rows : w.base[ref & 3];
  return base + (ref & ~3u);
}

// One source row put together from what each participant's instruction names.
template <typename T>
const T* Collect(const Warp& w, const Party& party, Ref (*which)(const Inst*), T* storage) {
  if (party.count == 1) {
    const Participant& p = party.members[0];
    return reinterpret_cast<const T*>(RowIn(w, *p.frame, which(p.inst)));
  }
  for (unsigned n = 0; n < party.count; ++n) {
    const Participant& p = party.members[n];
    const auto* row = reinterpret_cast<const T*>(RowIn(w, *p.frame, which(p.inst)));
    ForEachLane(p.mask, [&](unsigned l) { storage[l] = row[l]; });
  }
  return storage;
}

Ref RefD(const Inst* i) { return i->d; }
Ref RefA(const Inst* i) { return i->a; }
Ref RefB(const Inst* i) { return i->b; }
Ref RefC(const Inst* i) { return i->c; }

uint32_t CollectPredicate(const Party& party) {
  uint32_t result = 0;
  for (unsigned n = 0; n < party.count; ++n) {
    const Participant& p = party.members[n];
    if (p.inst->q == kNoPredicate) continue;
    uint32_t value = *reinterpret_cast<const uint32_t*>(p.frame->rows + p.inst->q);
    result |= (p.inst->y ? ~value : value) & p.mask;
  }
  return result;
}

void Deliver(const Warp& w, const Party& party, const uint32_t* result) {
  for (unsigned n = 0; n < party.count; ++n) {
    const Participant& p = party.members[n];
    if (p.inst->d == kNoPredicate) continue;
    auto* row = reinterpret_cast<uint32_t*>(RowIn(w, *p.frame, RefD(p.inst)));
    if (p.mask == kAllLanes) {
      std::memcpy(row, result, sizeof(uint32_t) * kWarpSize);
    } else {
      ForEachLane(p.mask, [&](unsigned l) { row[l] = result[l]; });
    }
  }
}

void DeliverPredicate(const Party& party, uint32_t value) {
  for (unsigned n = 0; n < party.count; ++n) {
    const Participant& p = party.members[n];
    if (p.inst->p == kNoPredicate) continue;
    auto* at = reinterpret_cast<uint32_t*>(p.frame->rows + p.inst->p);
    *at = (*at & ~p.mask) | (value & p.mask);
  }
}

void DeliverScalar(const Warp& w, const Party& party, uint32_t value) {
  uint32_t row[kWarpSize];
  std::fill(std::begin(row), std::end(row), value);
  Deliver(w, party, row);
}

bool SameOperation(const Inst* a, const Inst* b) { return a->fn == b->fn && a->x == b->x; }

// The lanes of `mask` whose membermask (row `ref`) is `members`.
uint32_t LanesWith(const Warp& w, const Frame& frame, Ref ref, uint32_t members, uint32_t mask) {
  const auto* row = reinterpret_cast<const uint32_t*>(RowIn(w, frame, ref));
  uint32_t same = 0;
  ForEachLane(mask, [&](unsigned l) { same |= uint32_t{row[l] == members} << l; });
  return same;
}

// Adds the waiting groups that belong to the same operation; *from gets their indices.
void GatherWaiting(const Warp& w, const Inst* i, Ref (*which)(const Inst*), uint32_t members, Party* party,
                   std::vector<std::pair<size_t, uint32_t>>* from) {
  for (size_t n = 0; n < w.groups.size(); ++n) {
    const Group& g = w.groups[n];
    if (g.state != GroupState::kSync || !SameOperation(g.pc, i)) continue;
    uint32_t lanes = LanesWith(w, *g.frame, which(g.pc), members, g.mask);
    if (lanes == 0) continue;
    party->Add(g.pc, g.frame, lanes);
    from->push_back({n, lanes});
  }
}

// Lets the lanes of waiting groups go on behind their instruction.
void ReleaseWaiting(Warp& w, const std::vector<std::pair<size_t, uint32_t>>& from) {
  for (auto [n, lanes] : from) {
    Group g = w.groups[n];
    w.groups[n].mask &= ~lanes;
    g.mask = lanes;
    g.pc += 1;
    g.state = GroupState::kReady;
    w.groups.push_back(g);
  }
  std::erase_if(w.groups, [](const Group& g) { return g.mask == 0; });
}

// Runs `execute(party)` for each set of lanes that is complete; the others wait.
template <typename Execute>
const Inst* Synchronize(Warp& w, const Inst* i, Ref (*which)(const Inst*), Execute execute) {
  const auto* members = reinterpret_cast<const uint32_t*>(w.Row(which(i)));
  uint32_t first = members[std::countr_zero(w.mask)];
  if ((first & w.alive & ~w.mask) == 0 && LanesWith(w, *w.frame, which(i), first, w.mask) == w.mask) {
    Party party;
    party.Add(i, w.frame, w.mask);
    execute(party);
    return i + 1;
  }
  uint32_t done = 0;
  for (uint32_t todo = w.mask; todo != 0;) {
    uint32_t wanted = members[std::countr_zero(todo)];
    uint32_t same = LanesWith(w, *w.frame, which(i), wanted, todo);
    todo &= ~same;
    Party party;
    party.Add(i, w.frame, same);
    std::vector<std::pair<size_t, uint32_t>> from;
    GatherWaiting(w, i, which, wanted, &party, &from);
    if (wanted & w.alive & ~party.lanes) continue;
    execute(party);
    ReleaseWaiting(w, from);
    done |= same;
  }
  uint32_t waiting = w.mask & ~done;
  if (waiting != 0) {
    w.mask = waiting;
    w.File(i, GroupState::kSync);
  }
  if (done != 0) {
    w.mask = done;
    w.File(i + 1, GroupState::kReady);
  }
  w.reason = Stop::kReschedule;
  return kStopPc;
}

void Shuffle(const Warp& w, const Party& party) {
  uint32_t a_rows[kWarpSize], b_rows[kWarpSize], c_rows[kWarpSize], result[kWarpSize];
  const uint32_t* a = Collect(w, party, RefA, a_rows);
  const uint32_t* b = Collect(w, party, RefB, b_rows);
  const uint32_t* c = Collect(w, party, RefC, c_rows);
  uint32_t valid = 0;
  uint8_t mode = party.members[0].inst->x;
  for (uint32_t lane = 0; lane < kWarpSize; ++lane) {
    // The names are those of the manual's description of shfl.sync.
    uint32_t bval = b[lane] & 31, cval = c[lane] & 31, segmask = c[lane] >> 8 & 31;
    uint32_t max_lane = (lane & segmask) | (cval & ~segmask & 31), min_lane = lane & segmask;
    int32_t j = 0;
    bool in_range = false;
    switch (mode) {
      case kShuffleUp:
        j = static_cast<int32_t>(lane) - static_cast<int32_t>(bval);
        in_range = j >= static_cast<int32_t>(max_lane);
        break;
      case kShuffleDown:
        j = static_cast<int32_t>(lane + bval);
        in_range = j <= static_cast<int32_t>(max_lane);
        break;
      case kShuffleBfly:
        j = static_cast<int32_t>(lane ^ bval);
        in_range = j <= static_cast<int32_t>(max_lane);
        break;
      default:
        j = static_cast<int32_t>(min_lane | (bval & ~segmask & 31));
        in_range = j <= static_cast<int32_t>(max_lane);
        break;
    }
    if (!in_range) j = static_cast<int32_t>(lane);
    valid |= uint32_t{in_range} << lane;
    result[lane] = a[j & 31];
  }
  Deliver(w, party, result);
  DeliverPredicate(party, valid);
}

void Vote(const Warp& w, const Party& party) {
  uint32_t votes = CollectPredicate(party) & party.lanes;
  switch (party.members[0].inst->x) {
    case kVoteAll:
      return DeliverPredicate(party, votes == party.lanes ? kAllLanes : 0);
    case kVoteAny:
      return DeliverPredicate(party, votes != 0 ? kAllLanes : 0);
    case kVoteUni:
      return DeliverPredicate(party, votes == 0 || votes == party.lanes ? kAllLanes : 0);
    default:
      return DeliverScalar(w, party, votes);
  }
}

template <typename T>
void Match(const Warp& w, const Party& party) {
  T storage[kWarpSize];
  const T* value = Collect(w, party, RefA, storage);
  uint32_t result[kWarpSize] = {};
  uint32_t all_equal = kAllLanes;
  ForEachLane(party.lanes, [&](unsigned l) {
    ForEachLane(party.lanes, [&](unsigned m) { result[l] |= uint32_t{value[l] == value[m]} << m; });
    if (result[l] != party.lanes) all_equal = 0;
  });
  if (party.members[0].inst->x) {
    std::fill(std::begin(result), std::end(result), party.lanes & all_equal);
    DeliverPredicate(party, all_equal);
  }
  Deliver(w, party, result);
}

void Redux(const Warp& w, const Party& party) {
  uint32_t storage[kWarpSize], result = 0;
  const uint32_t* value = Collect(w, party, RefA, storage);
  bool first = true;
  auto kind = static_cast<ReduxOp>(party.members[0].inst->x);
  ForEachLane(party.lanes, [&](unsigned l) {
    uint32_t v = value[l];
    auto s = static_cast<int32_t>(v), r = static_cast<int32_t>(result);
    if (first) {
      result = v;
      first = false;
      return;
    }
    switch (kind) {
      case ReduxOp::kAnd:
        result &= v;
        break;
      case ReduxOp::kOr:
        result |= v;
        break;
      case ReduxOp::kXor:
        result ^= v;
        break;
      case ReduxOp::kAdd:
        result += v;
        break;
      case ReduxOp::kMinU:
        result = std::min(result, v);
        break;
      case ReduxOp::kMaxU:
        result = std::max(result, v);
        break;
      case ReduxOp::kMinS:
        result = static_cast<uint32_t>(std::min(r, s));
        break;
      case ReduxOp::kMaxS:
        result = static_cast<uint32_t>(std::max(r, s));
        break;
    }
  });
  DeliverScalar(w, party, result);
}

}  // namespace

const Inst* OpActiveMask(Warp& w, const Inst* i) {
  Party party;
  party.Add(i, w.frame, w.mask);
  DeliverScalar(w, party, w.mask);
  return i + 1;
}

const Inst* OpElect(Warp& w, const Inst* i) {
  return Synchronize(w, i, RefB, [&](const Party& party) {
    unsigned leader = static_cast<unsigned>(std::countr_zero(party.lanes));
    DeliverScalar(w, party, leader);
    DeliverPredicate(party, uint32_t{1} << leader);
  });
}

const Inst* OpShuffle(Warp& w, const Inst* i) {
  return Synchronize(
      w, i, [](const Inst* inst) { return inst->refs[0]; }, [&](const Party& party) { Shuffle(w, party); });
}

const Inst* OpShuffleActive(Warp& w, const Inst* i) {
  Party party;
  party.Add(i, w.frame, w.mask);
  Shuffle(w, party);
  return i + 1;
}

const Inst* OpVote(Warp& w, const Inst* i) {
  return Synchronize(w, i, RefB, [&](const Party& party) { Vote(w, party); });
}

const Inst* OpVoteActive(Warp& w, const Inst* i) {
  Party party;
  party.Add(i, w.frame, w.mask);
  Vote(w, party);
  return i + 1;
}

const Inst* OpMatch(Warp& w, const Inst* i) {
  return Synchronize(w, i, RefB, [&](const Party& party) {
    if (i->y == 8) {
      Match<uint64_t>(w, party);
    } else {
      Match<uint32_t>(w, party);
    }
  });
}

const Inst* OpRedux(Warp& w, const Inst* i) {
  return Synchronize(w, i, RefB, [&](const Party& party) { Redux(w, party); });
}

const Inst* OpWarpSync(Warp& w, const Inst* i) {
  return Synchronize(w, i, RefB, [](const Party&) {});
}

}  // namespace softgpu::exec
