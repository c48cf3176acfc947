// stasis-sim: what a policy would do with a trace. `stasis sim` runs it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "scheduler/sim/cost_model.h"
#include "scheduler/sim/plot.h"
#include "scheduler/sim/report.h"
#include "scheduler/sim/simulator.h"
#include "scheduler/sim/trace.h"

namespace stasis::scheduler {
namespace {

struct Options {
  std::string trace, layout = "plain", weights, costs = "default", out, samples;
  std::vector<std::string> policies = {"astraea"};
  std::vector<double> gantt_hours, utilization;
  int gpus = 0;
  double lease = 900, least_lease = 60, tick = 0, mtbf_hours = 0, repair = 3600, checkpoint_interval = 1800;
  bool json = false;
  SimOptions sim;
};

Time ToTime(double seconds) { return static_cast<Time>(seconds * kSecond); }

Result<std::string> ReadText(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) return ErrnoStatus(errno, "read " + path);
  return text.str();
}

Status WriteText(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::trunc);
  if (!(file << text) || !file.flush()) return ErrnoStatus(errno, "write " + path);
  return {};
}

Result<CostModel> CostsOf(const std::string& name) {
  if (name == "default") return CostModel::Default();
  if (name == "free") return CostModel::Free();
  ASSIGN_OR_RETURN(const std::string text, ReadText(name));
  return CostModel::FromJson(text, name);
}

Status Complete(Options* options) {
  SimOptions& sim = options->sim;
  if (options->gpus != 0) {
    const int width = sim.shape.devices_per_node;
    if (options->gpus < 0 || width < 1 || options->gpus % width != 0)
      return Errorf(StatusCode::kInvalidArgument, "--gpus %d is no multiple of --devices-per-node %d",
                    options->gpus, width);
    sim.shape.nodes = options->gpus / width;
  }
  sim.lease = ToTime(options->lease);
  sim.least_lease = ToTime(options->least_lease);
  sim.tick = ToTime(options->tick);
  sim.failures.mean_time_between = ToTime(options->mtbf_hours * 3600);
  sim.failures.repair = ToTime(options->repair);
  sim.failures.checkpoint_interval = std::max<Time>(1, ToTime(options->checkpoint_interval));
  sim.habits.seed = sim.failures.seed;
  if (options->utilization.size() == 2) {
    sim.habits.least_utilization = options->utilization[0];
    sim.habits.most_utilization = options->utilization[1];
  }
  ASSIGN_OR_RETURN(sim.costs, CostsOf(options->costs));
  if (options->policies == std::vector<std::string>{"all"})
    options->policies.assign(PolicyNames().begin(), PolicyNames().end());
  return {};
}

Status WriteFiles(const Options& options, const std::vector<SimResult>& results,
                  const std::vector<Figures>& figures) {
  std::error_code error;
  std::filesystem::create_directories(options.out, error);
  if (error) return ErrnoStatus(error.value(), "create " + options.out);
  const std::string folder = options.out + "/";
  RETURN_IF_ERROR(WriteText(folder + "report.csv", FormatCsv(figures)));
  std::vector<NamedResult> named;
  for (size_t i = 0; i < results.size(); ++i) {
    const SimResult& result = results[i];
    const std::string& policy = options.policies[i];
    named.push_back({policy, &result});
    RETURN_IF_ERROR(WriteText(folder + "jobs-" + policy + ".csv", FormatJobs(result)));
    RETURN_IF_ERROR(WriteText(folder + "fairness-" + policy + ".svg", PlotFairness(result)));
    RETURN_IF_ERROR(WriteText(folder + "utilization-" + policy + ".svg",
                              PlotUtilization(result, options.sim.shape.total())));
    const std::vector<double>& hours = options.gantt_hours;
    if (hours.size() == 2) {
      RETURN_IF_ERROR(
          WriteText(folder + "gantt-" + policy + ".svg",
                    PlotGantt(result, options.sim.shape, ToTime(hours[0] * 3600), ToTime(hours[1] * 3600))));
    }
  }
  return WriteText(folder + "completion.svg", PlotCompletionTimes(named));
}

Status Run(Options options) {
  RETURN_IF_ERROR(Complete(&options));
  ASSIGN_OR_RETURN(const TraceLayout layout, ParseTraceLayout(options.layout));
  ASSIGN_OR_RETURN(const Trace trace, ReadTrace(options.trace, layout, options.weights));
  std::vector<SimResult> results;
  std::vector<Figures> figures;
  for (const std::string& policy : options.policies) {
    options.sim.policy = policy;
    ASSIGN_OR_RETURN(SimResult result, Simulate(trace, options.sim));
    figures.push_back(Summarize(result, options.sim));
    results.push_back(std::move(result));
  }
  if (!options.out.empty()) RETURN_IF_ERROR(WriteFiles(options, results, figures));
  std::cout << (options.json ? FormatJson(figures) : FormatTable(figures));
  if (!options.json && trace.without_gpus != 0)
    std::cout << fmt::format("left out: {} rows of the trace that use no GPU or no time\n",
                             trace.without_gpus);
  return {};
}

Status FitSamples(const std::string& path) {
  std::ifstream file(path);
  if (!file) return ErrnoStatus(errno, "open " + path);
  ASSIGN_OR_RETURN(const std::vector<CostSample> samples, ParseCostSamples(file, path));
  ASSIGN_OR_RETURN(const CostModel model, FitCosts(samples));
  std::cout << model.ToJson();
  return {};
}

void AddOptions(CLI::App& app, Options& options) {
  SimOptions& sim = options.sim;
  app.add_option("--trace", options.trace, "CSV file with the jobs");
  app.add_option("--layout", options.layout, "its columns: plain, philly, helios, alibaba")
      ->capture_default_str();
  app.add_option("--tenants", options.weights,
                 "CSV file `name,share`; without it all tenants weigh the same");
  app.add_option("--policy", options.policies, PolicyList() + ", or all")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--gpus", options.gpus, "devices of the cluster; instead of --nodes");
  app.add_option("--nodes", sim.shape.nodes, "nodes of the cluster")->capture_default_str();
  app.add_option("--devices-per-node", sim.shape.devices_per_node, "at most 64")->capture_default_str();
  app.add_option("--nodes-per-switch", sim.shape.nodes_per_switch, "nodes that are near each other")
      ->capture_default_str();
  app.add_option("--lease", options.lease, "seconds a job keeps its devices")->capture_default_str();
  app.add_option("--lease-budget", sim.lease_budget,
                 "shortest lease that keeps pausing below this part of the time, instead of --lease");
  app.add_option("--least-lease", options.least_lease, "seconds; bound of --lease-budget")
      ->capture_default_str();
  app.add_option("--tick", options.tick, "events take effect at multiples of so many seconds")
      ->capture_default_str();
  app.add_flag("--lose-running-lease", sim.lose_running_lease,
               "a job paused within its lease loses what it did in it");
  app.add_option("--costs", options.costs, "JSON file of `stasis sim fit`, or default, or free")
      ->capture_default_str();
  app.add_option("--active-bytes", sim.active_bytes_per_gpu,
                 "device memory that a job has in use on each device")
      ->capture_default_str();
  app.add_flag("--few-nodes", sim.few_nodes,
               "a gang runs on as few nodes as can hold it; jobs are moved together for it where that pays");
  app.add_option("--device-bytes", sim.device_bytes,
                 "memory of a device; gandiva lets jobs share one only if given")
      ->capture_default_str();
  app.add_option("--utilization", options.utilization,
                 "how busy jobs keep their devices: least, most; drawn by --seed")
      ->expected(2);
  app.add_option("--sharing-loss", sim.habits.sharing_loss, "part of the work that sharing a device loses")
      ->capture_default_str();
  app.add_option("--elastic", sim.habits.elastic,
                 "part of the jobs that half or twice as many devices suit, too")
      ->capture_default_str();
  app.add_option("--mtbf", options.mtbf_hours, "mean hours between failures of a node; 0: none")
      ->capture_default_str();
  app.add_option("--repair", options.repair, "seconds until a failed node is back")->capture_default_str();
  app.add_option("--checkpoint-interval", options.checkpoint_interval,
                 "seconds between images; lost at a failure")
      ->capture_default_str();
  app.add_option("--seed", sim.failures.seed, "of the failures, and of what the trace does not tell")
      ->capture_default_str();
  app.add_option("--out", options.out, "folder for report.csv, jobs-POLICY.csv and plots");
  app.add_option("--gantt", options.gantt_hours, "plot who held which device: from, to (hours)")->expected(2);
  app.add_flag("--json", options.json, "figures as JSON");
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app{"Runs scheduling policies over a trace of jobs and reports completion times and fairness."};
  app.name("stasis sim");
  AddOptions(app, options);
  CLI::App* fit =
      app.add_subcommand("fit", "a cost model from measured operations: CSV operation,bytes_per_gpu,seconds");
  fit->add_option("SAMPLES", options.samples, "CSV file with the measured operations")->required();
  CLI11_PARSE(app, argc, argv);
  Status status;
  if (fit->parsed()) {
    status = FitSamples(options.samples);
  } else if (options.trace.empty()) {
    status = Status(StatusCode::kInvalidArgument, "--trace is required");
  } else {
    status = Run(std::move(options));
  }
  if (status.ok()) return 0;
  std::fprintf(stderr, "stasis sim: %s\n", std::string(status.message()).c_str());
  return status.code() == StatusCode::kInvalidArgument ? 2 : 1;
}

}  // namespace
}  // namespace stasis::scheduler

int main(int argc, char** argv) { return stasis::scheduler::Main(argc, argv); }
