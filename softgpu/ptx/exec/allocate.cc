#include "softgpu/ptx/exec/allocate.h"

#include <algorithm>
#include <bit>

namespace softgpu::exec {
namespace {

constexpr uint32_t kUnit = 64;  // bytes of the smallest row
// Past this size of the liveness sets every register gets its own row.
constexpr uint64_t kMaxLivenessBits = uint64_t{1} << 28;

struct Interval {
  VReg vreg;
  uint32_t begin, end;  // draft indices, inclusive
};

struct BasicBlock {
  uint32_t begin, end;
  std::vector<uint32_t> next;
};

class Liveness {
 public:
  Liveness(const std::vector<Draft>& drafts, size_t vregs) : drafts_(drafts), vregs_(vregs) {}

  // For each register the stretch of drafts in which it may be alive; empty registers are left out.
  std::vector<Interval> Run() {
    FindBlocks();
    FindGlobals();
    words_ = (globals_ + 63) / 64;
    bool fits = static_cast<uint64_t>(words_) * 64 * blocks_.size() <= kMaxLivenessBits;
    if (fits) Iterate();
    return Collect(fits);
  }

 private:
  static constexpr uint32_t kLocal = 0xffffffff;

  void FindBlocks() {
    std::vector<bool> leader(drafts_.size() + 1, false);
    for (size_t i = 0; i < drafts_.size(); ++i) {
      const Draft& d = drafts_[i];
      if (d.flow == Draft::Flow::kGoto || d.flow == Draft::Flow::kBranch) leader[d.target] = true;
      for (uint32_t t : d.targets) leader[t] = true;
      if (d.flow != Draft::Flow::kNext) leader[i + 1] = true;
    }
    block_of_.resize(drafts_.size());
    for (uint32_t i = 0; i < drafts_.size(); ++i) {
      if (i == 0 || leader[i]) blocks_.push_back({i, i, {}});
      blocks_.back().end = i;
      block_of_[i] = static_cast<uint32_t>(blocks_.size() - 1);
    }
    for (BasicBlock& b : blocks_) {
      const Draft& last = drafts_[b.end];
      using Flow = Draft::Flow;
      if ((last.flow == Flow::kNext || last.flow == Flow::kBranch) && b.end + 1 < drafts_.size()) {
        b.next.push_back(block_of_[b.end + 1]);
      }
      if (last.flow == Flow::kGoto || last.flow == Flow::kBranch) b.next.push_back(block_of_[last.target]);
      for (uint32_t t : last.targets) b.next.push_back(block_of_[t]);
    }
  }

  // Registers that are touched in more than one block, or read before written in their only block.
  void FindGlobals() {
    index_.assign(vregs_, kLocal);
    std::vector<uint32_t> home(vregs_, kLocal);
    for (uint32_t i = 0; i < drafts_.size(); ++i) {
      for (const Touch& t : drafts_[i].touches) {
        uint32_t& h = home[t.vreg];
        bool first = h == kLocal;
        if (first) h = block_of_[i];
        bool clean = h == block_of_[i] && !(first && (!t.def || drafts_[i].guarded));
        if (!clean && index_[t.vreg] == kLocal) index_[t.vreg] = globals_++;
      }
    }
  }

  uint64_t* In(size_t block) { return in_.data() + block * words_; }
  uint64_t* Out(size_t block) { return out_.data() + block * words_; }

  void Iterate() {
    size_t total = words_ * blocks_.size();
    in_.assign(total, 0);
    out_.assign(total, 0);
    std::vector<uint64_t> use(total, 0), def(total, 0);
    for (size_t b = 0; b < blocks_.size(); ++b) Summarize(b, use.data() + b * words_, def.data() + b * words_);
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t b = blocks_.size(); b-- > 0;) {
        for (uint32_t n : blocks_[b].next) {
          for (size_t k = 0; k < words_; ++k) Out(b)[k] |= In(n)[k];
        }
        for (size_t k = 0; k < words_; ++k) {
          uint64_t in = use[b * words_ + k] | (Out(b)[k] & ~def[b * words_ + k]);
          changed |= in != In(b)[k];
          In(b)[k] = in;
        }
      }
    }
  }

  void Summarize(size_t block, uint64_t* use, uint64_t* def) {
    for (uint32_t i = blocks_[block].begin; i <= blocks_[block].end; ++i) {
      for (bool defs : {false, true}) {
        for (const Touch& t : drafts_[i].touches) {
          uint32_t g = index_[t.vreg];
          if (g == kLocal || t.def != defs) continue;
          uint64_t bit = uint64_t{1} << (g % 64);
          // A definition that may not happen keeps the old value alive.
          if (!defs || drafts_[i].guarded) {
            if (!(def[g / 64] & bit)) use[g / 64] |= bit;
          } else {
            def[g / 64] |= bit;
          }
        }
      }
    }
  }

  std::vector<Interval> Collect(bool fits) {
    std::vector<Interval> all(vregs_, {0, 0xffffffff, 0});
    auto extend = [&](VReg v, uint32_t at) {
      all[v].begin = std::min(all[v].begin, at);
      all[v].end = std::max(all[v].end, at);
    };
    for (uint32_t i = 0; i < drafts_.size(); ++i) {
      for (const Touch& t : drafts_[i].touches) {
        if (index_[t.vreg] != kLocal && !fits) {
          extend(t.vreg, 0);
          extend(t.vreg, static_cast<uint32_t>(drafts_.size() - 1));
        } else {
          extend(t.vreg, i);
        }
      }
    }
    if (fits) ExtendOverBlocks(extend);
    std::vector<Interval> used;
    for (VReg v = 0; v < vregs_; ++v) {
      if (all[v].begin != 0xffffffff) used.push_back({v, all[v].begin, all[v].end});
    }
    return used;
  }

  template <typename Extend>
  void ExtendOverBlocks(Extend extend) {
    std::vector<VReg> vreg_of(globals_);
    for (VReg v = 0; v < vregs_; ++v) {
      if (index_[v] != kLocal) vreg_of[index_[v]] = v;
    }
    for (size_t b = 0; b < blocks_.size(); ++b) {
      for (size_t k = 0; k < words_; ++k) {
        for (uint64_t bits = In(b)[k]; bits != 0; bits &= bits - 1) {
          extend(vreg_of[k * 64 + static_cast<size_t>(std::countr_zero(bits))], blocks_[b].begin);
        }
        for (uint64_t bits = Out(b)[k]; bits != 0; bits &= bits - 1) {
          extend(vreg_of[k * 64 + static_cast<size_t>(std::countr_zero(bits))], blocks_[b].end);
        }
      }
    }
  }

  const std::vector<Draft>& drafts_;
  size_t vregs_;
  std::vector<BasicBlock> blocks_;
  std::vector<uint32_t> block_of_;
  std::vector<uint32_t> index_;  // by register: number among the global ones
  uint32_t globals_ = 0;
  size_t words_ = 0;
  std::vector<uint64_t> in_, out_;
};

// Free space of the frame in units; first fit, naturally aligned.
class Units {
 public:
  uint32_t Take(uint32_t size) {
    for (uint32_t at = hint_ & ~(size - 1);; at += size) {
      while (at + size > used_.size()) used_.push_back(false);
      bool free = true;
      for (uint32_t k = 0; k < size; ++k) free &= !used_[at + k];
      if (!free) continue;
      for (uint32_t k = 0; k < size; ++k) used_[at + k] = true;
      while (hint_ < used_.size() && used_[hint_]) ++hint_;
      return at;
    }
  }
  void Give(uint32_t at, uint32_t size) {
    for (uint32_t k = 0; k < size; ++k) used_[at + k] = false;
    hint_ = std::min(hint_, at);
  }
  uint32_t size() const { return static_cast<uint32_t>(used_.size()); }

 private:
  std::vector<bool> used_;
  uint32_t hint_ = 0;  // everything below is taken
};

uint32_t UnitsOf(unsigned lane_bytes) { return std::max(1u, lane_bytes * kWarpSize / kUnit); }

// Places by register. Rows and predicates share nothing: a predicate takes one word at the end of the frame.
struct Places {
  std::vector<uint32_t> at;
  uint32_t row_units = 0, predicates = 0;
};

Places Scan(const std::vector<uint8_t>& vreg_bytes, std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end(), [](const Interval& a, const Interval& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.vreg < b.vreg;
  });
  Places places;
  places.at.assign(vreg_bytes.size(), kNoPlace);
  Units rows, predicates;
  auto later = [](const Interval& a, const Interval& b) { return a.end > b.end; };
  std::vector<Interval> active;  // heap by end
  for (const Interval& i : intervals) {
    // A row is free for others only behind the last reader: an instruction may write its result in several
    // steps.
    while (!active.empty() && active.front().end < i.begin) {
      std::pop_heap(active.begin(), active.end(), later);
      const Interval& old = active.back();
      uint8_t bytes = vreg_bytes[old.vreg];
      if (bytes == 0) {
        predicates.Give(places.at[old.vreg], 1);
      } else {
        rows.Give(places.at[old.vreg], UnitsOf(bytes));
      }
      active.pop_back();
    }
    uint8_t bytes = vreg_bytes[i.vreg];
    places.at[i.vreg] = bytes == 0 ? predicates.Take(1) : rows.Take(UnitsOf(bytes));
    active.push_back(i);
    std::push_heap(active.begin(), active.end(), later);
  }
  places.row_units = rows.size();
  places.predicates = predicates.size();
  return places;
}

void Rewrite(Draft* d, const Touch& t, uint32_t offset) {
  if (t.none) return;
  if (t.field >= static_cast<uint8_t>(Field::kRefs)) {
    d->refs[t.field - static_cast<uint8_t>(Field::kRefs)] = offset;
    return;
  }
  switch (static_cast<Field>(t.field)) {
    case Field::kD:
      d->inst.d = offset;
      break;
    case Field::kA:
      d->inst.a = offset;
      break;
    case Field::kB:
      d->inst.b = offset;
      break;
    case Field::kC:
      d->inst.c = offset;
      break;
    case Field::kP:
      d->inst.p = offset;
      break;
    case Field::kQ:
      d->inst.q = offset;
      break;
    case Field::kImm:
      d->inst.imm = offset;
      break;
    case Field::kRefs:
      break;
  }
}

}  // namespace

std::vector<uint32_t> AllocateRows(const std::vector<uint8_t>& vreg_bytes, LoweredFunction* lowered) {
  std::vector<Draft>& drafts = lowered->drafts;
  Places places = Scan(vreg_bytes, Liveness(drafts, vreg_bytes.size()).Run());
  uint32_t row_bytes = places.row_units * kUnit;
  for (size_t v = 0; v < places.at.size(); ++v) {
    uint32_t& at = places.at[v];
    if (at != kNoPlace) at = vreg_bytes[v] == 0 ? row_bytes + 4 * at : at * kUnit;
  }
  for (Draft& d : drafts) {
    for (const Touch& t : d.touches) Rewrite(&d, t, places.at[t.vreg]);
  }
  lowered->register_units = places.row_units;
  lowered->frame_bytes = row_bytes + 4 * places.predicates;
  return std::move(places.at);
}

}  // namespace softgpu::exec
