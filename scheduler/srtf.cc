#include "scheduler/policies.h"
#include "scheduler/ranked.h"

namespace stasis::scheduler {
namespace {

class Srtf final : public Policy {
 public:
  std::string_view name() const override { return "srtf"; }
  Decision Decide(const State& state, Time last) override {
    return DecideByRank(state, last, /*preempts=*/true, [](const State& now, const Job& job) {
      return static_cast<double>(job.spec.duration - now.ProgressOf(job));
    });
  }
};

}  // namespace

std::unique_ptr<Policy> MakeSrtf() { return std::make_unique<Srtf>(); }

}  // namespace stasis::scheduler
