#include "softgpu/ptx/exec/layout.h"

#include <algorithm>
#include <utility>

#include "softgpu/ptx/exec/ops.h"

namespace softgpu::exec {
namespace {

using Flow = Draft::Flow;
constexpr uint32_t kNone = 0xffffffff;
constexpr int kMaxNesting = 64;        // deeper loops keep the order in which they were written
constexpr uint32_t kPollEvery = 2048;  // drafts of straight code without a poll

struct BasicBlock {
  uint32_t begin, end;  // drafts [begin, end)
  std::vector<uint32_t> next;
};

std::vector<BasicBlock> FindBlocks(const std::vector<Draft>& drafts) {
  std::vector<bool> leader(drafts.size() + 1, false);
  for (size_t i = 0; i < drafts.size(); ++i) {
    const Draft& d = drafts[i];
    if (d.flow == Flow::kGoto || d.flow == Flow::kBranch) leader[d.target] = true;
    for (uint32_t t : d.targets) leader[t] = true;
    if (d.flow != Flow::kNext) leader[i + 1] = true;
  }
  std::vector<BasicBlock> blocks;
  std::vector<uint32_t> block_of(drafts.size());
  for (uint32_t i = 0; i < drafts.size(); ++i) {
    if (i == 0 || leader[i]) blocks.push_back({i, i, {}});
    blocks.back().end = i + 1;
    block_of[i] = static_cast<uint32_t>(blocks.size() - 1);
  }
  for (uint32_t b = 0; b < blocks.size(); ++b) {
    const Draft& last = drafts[blocks[b].end - 1];
    if (last.flow == Flow::kNext || last.flow == Flow::kBranch) blocks[b].next.push_back(b + 1);
    if (last.flow == Flow::kGoto || last.flow == Flow::kBranch)
      blocks[b].next.push_back(block_of[last.target]);
    for (uint32_t t : last.targets) blocks[b].next.push_back(block_of[t]);
  }
  return blocks;
}

// Strongly connected components of the part of the graph whose blocks carry `part`, without the edges into
// `cut`. Each is appended in topological order of the components; within one the first block is where it was
// entered.
class Components {
 public:
  Components(const std::vector<BasicBlock>& blocks, const std::vector<uint32_t>& part_of)
      : blocks_(blocks),
        part_of_(part_of),
        number_(blocks.size(), 0),
        low_(blocks.size(), 0),
        on_stack_(blocks.size(), false) {}

  std::vector<std::vector<uint32_t>> Run(const std::vector<uint32_t>& members, uint32_t part, uint32_t cut) {
    part_ = part;
    cut_ = cut;
    found_.clear();
    for (uint32_t m : members) number_[m] = 0;
    for (uint32_t m : members) {
      if (number_[m] == 0) Search(m);
    }
    std::reverse(found_.begin(), found_.end());
    return std::move(found_);
  }

 private:
  struct Visit {
    uint32_t block;
    size_t edge;
  };

  bool Follows(uint32_t to) const { return part_of_[to] == part_ && to != cut_; }

  // Tarjan's algorithm with its own stack: graphs come from outside and may be deep.
  void Search(uint32_t root) {
    std::vector<Visit> path{{root, 0}};
    Open(root);
    while (!path.empty()) {
      Visit& v = path.back();
      uint32_t block = v.block;
      if (v.edge < blocks_[block].next.size()) {
        uint32_t to = blocks_[block].next[v.edge++];
        if (!Follows(to)) continue;
        if (number_[to] == 0) {
          Open(to);
          path.push_back({to, 0});
        } else if (on_stack_[to]) {
          low_[block] = std::min(low_[block], number_[to]);
        }
        continue;
      }
      path.pop_back();
      if (!path.empty()) low_[path.back().block] = std::min(low_[path.back().block], low_[block]);
      if (low_[block] == number_[block]) Close(block);
    }
  }

  void Open(uint32_t block) {
    number_[block] = low_[block] = ++count_;
    stack_.push_back(block);
    on_stack_[block] = true;
  }

  void Close(uint32_t root) {
    std::vector<uint32_t> component;
    for (;;) {
      uint32_t member = stack_.back();
      stack_.pop_back();
      on_stack_[member] = false;
      component.push_back(member);
      if (member == root) break;
    }
    std::sort(component.begin(), component.end());
    auto at = std::find(component.begin(), component.end(), root);
    std::rotate(component.begin(), at, at + 1);
    found_.push_back(std::move(component));
  }

  const std::vector<BasicBlock>& blocks_;
  const std::vector<uint32_t>& part_of_;
  std::vector<uint32_t> number_, low_;
  std::vector<bool> on_stack_;
  std::vector<uint32_t> stack_;
  std::vector<std::vector<uint32_t>> found_;
  uint32_t part_ = 0, cut_ = kNone, count_ = 0;
};

class Orderer {
 public:
  explicit Orderer(const std::vector<BasicBlock>& blocks)
      : blocks_(blocks), part_of_(blocks.size(), kNone), components_(blocks, part_of_) {}

  std::vector<uint32_t> Run() {
    std::vector<uint32_t> reachable = Reachable();
    Place(reachable, kNone, 0);
    return std::move(order_);
  }

 private:
  std::vector<uint32_t> Reachable() const {
    std::vector<bool> seen(blocks_.size(), false);
    std::vector<uint32_t> stack{0};
    seen[0] = true;
    while (!stack.empty()) {
      uint32_t b = stack.back();
      stack.pop_back();
      for (uint32_t n : blocks_[b].next) {
        if (!seen[n]) stack.push_back(n);
        seen[n] = true;
      }
    }
    std::vector<uint32_t> result;
    for (uint32_t b = 0; b < blocks_.size(); ++b) {
      if (seen[b]) result.push_back(b);
    }
    return result;
  }

  // Appends `members` in order; `header`, one of them, is their entry and the edges back to it do not count.
  void Place(const std::vector<uint32_t>& members, uint32_t header, int depth) {
    if (depth > kMaxNesting) {
      order_.insert(order_.end(), members.begin(), members.end());
      return;
    }
    uint32_t part = parts_++;
    for (uint32_t m : members) part_of_[m] = part;
    for (const std::vector<uint32_t>& c : components_.Run(members, part, header)) {
      if (c.size() == 1) {
        order_.push_back(c[0]);
      } else {
        Place(c, c[0], depth + 1);
      }
    }
  }

  const std::vector<BasicBlock>& blocks_;
  std::vector<uint32_t> part_of_;
  Components components_;
  std::vector<uint32_t> order_;
  uint32_t parts_ = 0;
};

Draft Jump(uint32_t target, uint32_t line) {
  Draft d;
  d.flow = Flow::kGoto;
  d.target = target;
  d.inst.p = d.inst.q = kNoPredicate;
  d.inst.line = line;
  return d;
}

Draft Poll(uint32_t line) {
  Draft d;
  d.inst.fn = &OpPoll;
  d.inst.imm = kPollEvery;
  d.inst.p = d.inst.q = kNoPredicate;
  d.inst.line = line;
  return d;
}

// Copies the blocks in their new order, with jumps where a block no longer falls into its successor.
// Targets stay old draft indices; *moved maps those of block starts to new ones.
std::vector<Draft> Assemble(std::vector<Draft>* drafts, const std::vector<BasicBlock>& blocks,
                            const std::vector<uint32_t>& order, std::vector<uint32_t>* moved) {
  std::vector<Draft> out;
  out.reserve(drafts->size() + order.size());
  moved->assign(drafts->size(), kNone);
  uint32_t straight = 0;
  for (size_t n = 0; n < order.size(); ++n) {
    const BasicBlock& b = blocks[order[n]];
    uint32_t following = n + 1 < order.size() ? blocks[order[n + 1]].begin : kNone;
    (*moved)[b.begin] = static_cast<uint32_t>(out.size());
    for (uint32_t i = b.begin; i < b.end; ++i) {
      bool tied = i > b.begin && (*drafts)[i - 1].guarded_next;
      if (!tied && ++straight >= kPollEvery) {
        out.push_back(Poll((*drafts)[i].inst.line));
        straight = 0;
      }
      if (i + 1 == b.end && (*drafts)[i].flow == Flow::kGoto && (*drafts)[i].target == following) continue;
      out.push_back(std::move((*drafts)[i]));
    }
    if (out.empty()) continue;
    Flow flow = blocks[order[n]].end > b.begin ? out.back().flow : Flow::kNext;
    bool falls =
        !b.next.empty() && b.next[0] == order[n] + 1 && (flow == Flow::kNext || flow == Flow::kBranch);
    if (falls && blocks[b.next[0]].begin != following) {
      out.push_back(Jump(blocks[b.next[0]].begin, out.back().inst.line));
    }
  }
  return out;
}

}  // namespace

void LayOut(std::vector<Draft>* drafts) {
  std::vector<BasicBlock> blocks = FindBlocks(*drafts);
  std::vector<uint32_t> order = Orderer(blocks).Run();
  std::vector<uint32_t> moved;
  std::vector<Draft> out = Assemble(drafts, blocks, order, &moved);
  for (uint32_t i = 0; i < out.size(); ++i) {
    Draft& d = out[i];
    if (d.flow == Flow::kGoto || d.flow == Flow::kBranch) {
      d.target = moved[d.target];
      // The cost of a jump back is the length of the loop, so that quanta are counted in instructions.
      d.inst.imm = d.target <= i ? i - d.target + 1 : 0;
      d.inst.fn = d.flow == Flow::kBranch ? &OpBranchIf : d.target <= i ? &OpBranchBack : &OpBranch;
    }
    for (uint32_t& t : d.targets) t = moved[t];
    if (d.flow == Flow::kTable) d.inst.imm = 64;
  }
  *drafts = std::move(out);
}

}  // namespace softgpu::exec
