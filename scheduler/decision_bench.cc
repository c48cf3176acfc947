// How long one decision takes on a large cluster: 10,000 devices, 2,000 running jobs, 20,000 waiting.
// With `few-nodes` each gang wants as few nodes as can hold it.
// Prints JSON: {"policy": milliseconds of each round ...}.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "scheduler/policy.h"

namespace stasis::scheduler {
namespace {

constexpr int kNodes = 1250, kDevicesPerNode = 8, kTenants = 50;
constexpr size_t kRunning = 2000, kWaiting = 20000;
constexpr int kRounds = 15;

// 4.75 devices on average, so that 2,000 gangs fill 95 % of the cluster.
int GangSize(size_t job) {
  constexpr int kSizes[] = {1, 1, 2, 2, 4, 4, 8, 16};
  return kSizes[job % std::size(kSizes)];
}

// 2,000 gangs run, half of their leases have just ended; of those that wait some have run before.
State MakeState(unsigned seed, bool few_nodes) {
  std::mt19937 random(seed);
  Settings settings;
  settings.shape = {kNodes, kDevicesPerNode, 16};
  for (int i = 0; i < kTenants; ++i) settings.tenants.push_back({"t" + std::to_string(i), 1.0 + i % 4});
  State state(std::move(settings));
  auto submit = [&] {
    JobSpec spec;
    spec.tenant = random() % kTenants;
    spec.gpus = GangSize(state.jobs().size());
    spec.duration = 100000 * kSecond + static_cast<Time>(random() % 100000) * kSecond;
    spec.submit = state.now();
    if (few_nodes) spec.max_nodes = (spec.gpus + kDevicesPerNode - 1) / kDevicesPerNode;
    return *state.Submit(spec);
  };
  auto start = [&](ActionKind kind, JobId id) {
    const std::optional<Placement> place =
        state.devices().Find(state.job(id).spec.gpus, state.job(id).spec.max_nodes);
    if (!place) return false;
    state.Apply({kind, id, *place}, 0);
    return true;
  };
  for (size_t i = 0; i < kWaiting / 10; ++i) {
    const JobId id = submit();
    if (!start(ActionKind::kStart, id)) continue;
    state.AdvanceTo(state.now() + 50);
    state.Apply({ActionKind::kPause, id, {}}, 0);
  }
  while (state.running().size() < kRunning) {
    STASIS_CHECK(start(ActionKind::kStart, submit()));
    // Half of them start a lease before the moment of the decision.
    if (state.running().size() == kRunning / 2) state.AdvanceTo(state.now() + 100 * kSecond);
  }
  while (state.waiting_count() < kWaiting) submit();
  state.AdvanceTo(state.now() + 800 * kSecond);
  return state;
}

double Milliseconds(Policy& policy, const State& state) {
  const auto start = std::chrono::steady_clock::now();
  const Decision decision = policy.Decide(state, state.now() - 1000 * kSecond);
  const std::chrono::duration<double, std::milli> passed = std::chrono::steady_clock::now() - start;
  STASIS_CHECK(!decision.actions.empty() || policy.name() == "fifo");
  return passed.count();
}

int Main(bool few_nodes) {
  std::map<std::string, std::vector<double>> times;
  for (int round = 0; round < kRounds; ++round) {
    const State state = MakeState(static_cast<unsigned>(round) + 1, few_nodes);
    for (const std::string_view name : PolicyNames()) {
      const std::unique_ptr<Policy> policy = std::move(*MakePolicy(name));
      times[std::string(name)].push_back(Milliseconds(*policy, state));
    }
  }
  std::printf("{");
  const char* comma = "";
  for (const auto& [name, values] : times) {
    std::printf("%s\"%s\": [", comma, name.c_str());
    for (size_t i = 0; i < values.size(); ++i) std::printf("%s%.3f", i == 0 ? "" : ", ", values[i]);
    std::printf("]");
    comma = ", ";
  }
  std::printf("}\n");
  return 0;
}

}  // namespace
}  // namespace stasis::scheduler

int main(int argc, char** argv) {
  return stasis::scheduler::Main(argc == 2 && std::strcmp(argv[1], "few-nodes") == 0);
}
