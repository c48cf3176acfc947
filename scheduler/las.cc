#include "scheduler/policies.h"
#include "scheduler/ranked.h"

namespace stasis::scheduler {
namespace {

// Device-hours of attained service from which on a job belongs to the next queue.
constexpr double kQueues[] = {1, 10, 100};
constexpr double kDeviceHour = 3600.0 * kSecond;

double QueueOf(double attained) {
  double queue = 0;
  for (const double threshold : kQueues) queue += attained >= threshold * kDeviceHour ? 1 : 0;
  return queue;
}

class Las final : public Policy {
 public:
  std::string_view name() const override { return "las"; }
  Decision Decide(const State& state, Time last) override {
    return DecideByRank(state, last, /*preempts=*/false, [](const State& now, const Job& job) {
      return QueueOf(now.ledger().JobUtilized(job.account, now.now()));
    });
  }
};

}  // namespace

std::unique_ptr<Policy> MakeLas() { return std::make_unique<Las>(); }

}  // namespace stasis::scheduler
