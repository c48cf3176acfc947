// Random branchy kernels against a scalar evaluator: whatever order lanes run in, each thread's result is its
// own.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "softgpu/ptx/exec/exec_testing.h"

namespace softgpu::exec {
namespace {

constexpr unsigned kRegisters = 8;

// A structured program over kRegisters registers, kept as a tree so that it can be printed as PTX and
// evaluated.
struct Node {
  enum class Kind { kOp, kIf, kLoop, kBreakIf, kExitIf, kCall } kind;
  unsigned op = 0, d = 0, a = 0, b = 0;
  uint32_t constant = 0;
  bool immediate = false;
  std::vector<Node> body, other;
};

constexpr const char* kOps[] = {"add.u32", "sub.u32", "mul.lo.u32", "xor.b32",
                                "and.b32", "or.b32",  "min.u32",    "max.u32"};

uint32_t Apply(unsigned op, uint32_t a, uint32_t b) {
  switch (op) {
    case 0:
      return a + b;
    case 1:
      return a - b;
    case 2:
      return a * b;
    case 3:
      return a ^ b;
    case 4:
      return a & b;
    case 5:
      return a | b;
    case 6:
      return std::min(a, b);
    default:
      return std::max(a, b);
  }
}

class Generator {
 public:
  explicit Generator(uint32_t seed) : random_(seed) {}

  std::vector<Node> Block(int depth, bool in_loop) {
    std::vector<Node> nodes;
    for (unsigned n = 2 + Pick(5); n > 0; --n) nodes.push_back(Statement(depth, in_loop));
    return nodes;
  }

 private:
  unsigned Pick(unsigned n) { return random_() % n; }

  Node Statement(int depth, bool in_loop) {
    unsigned choice = Pick(12);
    Node node;
    node.d = Pick(kRegisters);
    node.a = Pick(kRegisters);
    node.b = Pick(kRegisters);
    node.constant = Pick(4) ? Pick(16) : random_();
    node.immediate = Pick(3) == 0;
    node.op = Pick(8);
    node.kind = Node::Kind::kOp;
    if (depth > 0 && choice == 0) {
      node.kind = Node::Kind::kLoop;
      node.constant = Pick(7);
      node.body = Block(depth - 1, true);
    } else if (depth > 0 && choice <= 3) {
      node.kind = Node::Kind::kIf;
      node.body = Block(depth - 1, in_loop);
      if (Pick(2)) node.other = Block(depth - 1, in_loop);
    } else if (in_loop && choice == 4) {
      node.kind = Node::Kind::kBreakIf;
    } else if (choice == 5 && Pick(4) == 0) {
      node.kind = Node::Kind::kExitIf;
    } else if (choice == 6) {
      node.kind = Node::Kind::kCall;
    }
    return node;
  }

  std::mt19937 random_;
};

std::string R(unsigned n) { return "%r" + std::to_string(10 + n); }

// Conditions compare a part of two registers, so that lanes often differ.
class Printer {
 public:
  std::string Run(const std::vector<Node>& program) {
    for (unsigned n = 0; n < kRegisters; ++n) {
      Line("mad.lo.u32 " + R(n) + ", %r0, " + std::to_string(2 * n + 1) + ", " + std::to_string(n) + ";");
    }
    Print(program, "");
    text_ += "END:\n";
    Line("mov.u32 %r2, 0;");
    for (unsigned n = 0; n < kRegisters; ++n) {
      Line("mul.lo.u32 %r2, %r2, 31;");
      Line("add.u32 %r2, %r2, " + R(n) + ";");
    }
    Line("st.global.u32 [%rd0], %r2;");
    return text_;
  }

 private:
  void Line(const std::string& s) { text_ += "  " + s + "\n"; }
  std::string Label() { return "L" + std::to_string(labels_++); }

  void Condition(const Node& n) {
    Line("xor.b32 %r3, " + R(n.a) + ", " + R(n.b) + ";");
    Line("and.b32 %r3, %r3, 7;");
    Line("setp.lt.u32 %p1, %r3, " + std::to_string(n.constant & 7) + ";");
  }

  void Print(const std::vector<Node>& nodes, const std::string& out) {
    for (const Node& n : nodes) One(n, out);
  }

  void One(const Node& n, const std::string& out) {
    switch (n.kind) {
      case Node::Kind::kOp:
        Line(std::string(kOps[n.op]) + " " + R(n.d) + ", " + R(n.a) + ", " +
             (n.immediate ? std::to_string(n.constant) : R(n.b)) + ";");
        break;
      case Node::Kind::kIf: {
        std::string other = Label(), end = Label();
        Condition(n);
        Line("@!%p1 bra " + other + ";");
        Print(n.body, out);
        Line("bra.uni " + end + ";");
        text_ += other + ":\n";
        Print(n.other, out);
        text_ += end + ":\n";
        break;
      }
      case Node::Kind::kLoop: {
        // Each lane has its own number of rounds, below constant + 4.
        std::string begin = Label(), end = Label(), counter = "%r" + std::to_string(20 + loops_++);
        Line("and.b32 " + counter + ", " + R(n.a) + ", 3;");
        Line("add.u32 " + counter + ", " + counter + ", " + std::to_string(n.constant) + ";");
        text_ += begin + ":\n";
        Line("setp.eq.u32 %p2, " + counter + ", 0;");
        Line("@%p2 bra " + end + ";");
        Line("sub.u32 " + counter + ", " + counter + ", 1;");
        Print(n.body, end);
        Line("bra " + begin + ";");
        text_ += end + ":\n";
        --loops_;
        break;
      }
      case Node::Kind::kBreakIf:
        Condition(n);
        Line("@%p1 bra " + out + ";");
        break;
      case Node::Kind::kExitIf:
        Condition(n);
        Line("@%p1 bra END;");
        break;
      case Node::Kind::kCall:
        Line("call (" + R(n.d) + "), mix, (" + R(n.a) + ", " + R(n.b) + ");");
        break;
    }
  }

  std::string text_;
  unsigned labels_ = 0, loops_ = 0;
};

class Evaluator {
 public:
  explicit Evaluator(uint32_t thread) {
    for (unsigned n = 0; n < kRegisters; ++n) r_[n] = thread * (2 * n + 1) + n;
  }
  uint32_t Run(const std::vector<Node>& program) {
    Block(program);
    uint32_t hash = 0;
    for (uint32_t v : r_) hash = hash * 31 + v;
    return hash;
  }

 private:
  enum class Flow { kNext, kBreak, kExit };

  bool Holds(const Node& n) const { return ((r_[n.a] ^ r_[n.b]) & 7) < (n.constant & 7); }

  Flow Block(const std::vector<Node>& nodes) {
    for (const Node& n : nodes) {
      Flow flow = One(n);
      if (flow != Flow::kNext) return flow;
    }
    return Flow::kNext;
  }

  Flow One(const Node& n) {
    switch (n.kind) {
      case Node::Kind::kOp:
        r_[n.d] = Apply(n.op, r_[n.a], n.immediate ? n.constant : r_[n.b]);
        return Flow::kNext;
      case Node::Kind::kIf:
        return Block(Holds(n) ? n.body : n.other);
      case Node::Kind::kLoop:
        for (uint32_t rounds = (r_[n.a] & 3) + n.constant; rounds > 0; --rounds) {
          Flow flow = Block(n.body);
          if (flow == Flow::kExit) return flow;
          if (flow == Flow::kBreak) break;
        }
        return Flow::kNext;
      case Node::Kind::kBreakIf:
        return Holds(n) ? Flow::kBreak : Flow::kNext;
      case Node::Kind::kExitIf:
        return Holds(n) ? Flow::kExit : Flow::kNext;
      case Node::Kind::kCall: {
        uint32_t a = r_[n.a], b = r_[n.b];
        r_[n.d] = a & 1 ? a * 3 + b : b - a;
        return Flow::kNext;
      }
    }
    return Flow::kNext;
  }

  uint32_t r_[kRegisters];
};

constexpr const char* kMix = R"(
.func (.reg .b32 result) mix(.reg .b32 a, .reg .b32 b)
{
  .reg .pred %p<2>;
  .reg .b32 %t<3>;
  and.b32 %t1, a, 1;
  setp.eq.u32 %p1, %t1, 0;
  @%p1 bra EVEN;
  mad.lo.u32 result, a, 3, b;
  ret;
EVEN:
  sub.u32 result, b, a;
  ret;
}
)";

TEST(ExecRandomTest, BranchyProgramsAgreeWithAScalarEvaluator) {
  constexpr uint32_t kThreads = 96;
  for (uint32_t seed = 1; seed <= 150; ++seed) {
    std::vector<Node> program = Generator(seed).Block(4, false);
    std::string text = SimpleKernel(Printer().Run(program), kMix);
    TestDevice device;
    device.Load(text);
    ASSERT_FALSE(HasFatalFailure()) << text;
    uint32_t* out = device.Alloc<uint32_t>(kThreads);
    Fault fault = device.Launch("k", {1}, {kThreads}, Pass(out, uint64_t{0}));
    ASSERT_EQ(fault.kind, FaultKind::kNone) << fault.message;
    for (uint32_t i = 0; i < kThreads; ++i) {
      ASSERT_EQ(out[i], Evaluator(i).Run(program)) << "seed " << seed << " thread " << i << "\n" << text;
    }
  }
}

}  // namespace
}  // namespace softgpu::exec
