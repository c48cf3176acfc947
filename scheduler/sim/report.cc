#include "scheduler/sim/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace stasis::scheduler {

namespace {

constexpr double kFairLow = 0.95, kFairHigh = 1.05;

double Seconds(Time time) { return static_cast<double>(time) / kSecond; }
double DeviceHours(double device_milliseconds) { return device_milliseconds / kSecond / 3600; }

// Of sorted values, by nearest rank.
double Percentile(const std::vector<double>& sorted, double part) {
  if (sorted.empty()) return 0;
  const auto rank = static_cast<size_t>(std::ceil(part * static_cast<double>(sorted.size())));
  return sorted[std::min(sorted.size(), std::max<size_t>(rank, 1)) - 1];
}

void SummarizeJobs(const SimResult& result, Figures* figures) {
  std::vector<double> times;
  double sum = 0;
  for (const Job& job : result.jobs) {
    times.push_back(Seconds(job.finished - job.spec.submit));
    sum += times.back();
    figures->pauses += job.pauses;
    figures->migrations += job.migrations;
    if (job.fairness < kFairLow) {
      ++figures->jobs_below;
    } else if (job.fairness <= kFairHigh) {
      ++figures->jobs_fair;
    }
  }
  std::sort(times.begin(), times.end());
  figures->jobs = times.size();
  figures->jct_mean = times.empty() ? 0 : sum / static_cast<double>(times.size());
  figures->jct_median = Percentile(times, 0.5);
  figures->jct_p95 = Percentile(times, 0.95);
  figures->jct_p99 = Percentile(times, 0.99);
}

void SummarizeTenants(const SimResult& result, const SimOptions& options, Figures* figures) {
  std::vector<double> fairness;
  for (const Ledger::Totals& totals : result.all_time) {
    if (totals.deserved > 0) fairness.push_back(totals.fairness());
  }
  figures->tenant_jain = JainIndex(fairness);
  figures->tenant_min = std::numeric_limits<double>::infinity();
  for (const double value : fairness) {
    figures->tenant_min = std::min(figures->tenant_min, value);
    figures->tenant_max = std::max(figures->tenant_max, value);
    figures->tenant_mean += value / static_cast<double>(fairness.size());
  }
  double least = std::numeric_limits<double>::quiet_NaN();
  for (const Sample& sample : result.samples) {
    if (sample.at < options.fairness_window) continue;
    for (const double value : sample.fairness) least = std::fmin(least, value);
  }
  figures->tenant_sliding_min = least;
}

// Every figure once: the name that programs read, what people read, and how.
struct Column {
  const char* name;
  const char* label;
  int digits;
  double (*value)(const Figures&);
};
constexpr Column kColumns[] = {
    {"jobs", "jobs", 0, [](const Figures& f) { return static_cast<double>(f.jobs); }},
    {"dropped", "jobs larger than the cluster, left out", 0,
     [](const Figures& f) { return static_cast<double>(f.dropped); }},
    {"jct_mean_s", "completion time mean s", 1, [](const Figures& f) { return f.jct_mean; }},
    {"jct_median_s", "median s", 1, [](const Figures& f) { return f.jct_median; }},
    {"jct_p95_s", "p95 s", 0, [](const Figures& f) { return f.jct_p95; }},
    {"jct_p99_s", "p99 s", 0, [](const Figures& f) { return f.jct_p99; }},
    {"makespan_s", "makespan s", 0, [](const Figures& f) { return f.makespan; }},
    {"utilization", "utilization while jobs arrive", 3, [](const Figures& f) { return f.utilization; }},
    {"tenant_fairness_min", "tenant F min", 3, [](const Figures& f) { return f.tenant_min; }},
    {"tenant_fairness_mean", "tenant F mean", 3, [](const Figures& f) { return f.tenant_mean; }},
    {"tenant_fairness_max", "tenant F max", 3, [](const Figures& f) { return f.tenant_max; }},
    {"tenant_fairness_jain", "tenant F Jain index", 3, [](const Figures& f) { return f.tenant_jain; }},
    {"tenant_fairness_sliding_min", "tenant F sliding min", 3,
     [](const Figures& f) { return f.tenant_sliding_min; }},
    {"jobs_fair", "jobs with F in [0.95, 1.05]", 0,
     [](const Figures& f) { return static_cast<double>(f.jobs_fair); }},
    {"jobs_below", "jobs with F below 0.95", 0,
     [](const Figures& f) { return static_cast<double>(f.jobs_below); }},
    {"pauses", "pauses", 0, [](const Figures& f) { return static_cast<double>(f.pauses); }},
    {"lease_cuts", "of them within a lease", 0,
     [](const Figures& f) { return static_cast<double>(f.lease_cuts); }},
    {"migrations", "migrations", 0, [](const Figures& f) { return static_cast<double>(f.migrations); }},
    {"packed", "times a job was put beside another", 0,
     [](const Figures& f) { return static_cast<double>(f.packed); }},
    {"node_failures", "node failures", 0,
     [](const Figures& f) { return static_cast<double>(f.node_failures); }},
    {"overhead_gpu_hours", "GPU-hours lost to overhead", 1,
     [](const Figures& f) { return f.overhead_hours; }},
    {"lost_gpu_hours", "GPU-hours of work done twice", 1, [](const Figures& f) { return f.lost_hours; }},
    {"events", "events", 0, [](const Figures& f) { return static_cast<double>(f.events); }},
    {"decisions", "decisions", 0, [](const Figures& f) { return static_cast<double>(f.decisions); }},
    {"wall_s", "simulated in s", 2, [](const Figures& f) { return f.wall_seconds; }},
    {"jobs_per_s", "jobs a second", 0,
     [](const Figures& f) { return static_cast<double>(f.jobs) / f.wall_seconds; }},
    {"events_per_s", "events a second", 0,
     [](const Figures& f) { return static_cast<double>(f.events) / f.wall_seconds; }},
};

std::string Cell(const Column& column, const Figures& figures) {
  const double value = column.value(figures);
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, column.digits) : "-";
}

}  // namespace

Figures Summarize(const SimResult& result, const SimOptions& options) {
  Figures figures;
  figures.policy = options.policy;
  figures.dropped = result.dropped;
  SummarizeJobs(result, &figures);
  SummarizeTenants(result, options, &figures);
  figures.makespan = Seconds(result.end);
  const double span = static_cast<double>(result.last_submit) * options.shape.total();
  figures.utilization = span > 0 ? result.busy / span : 0;
  figures.lease_cuts = result.lease_cuts;
  figures.node_failures = result.node_failures;
  figures.packed = result.packed;
  figures.overhead_hours = DeviceHours(result.overhead);
  figures.lost_hours = DeviceHours(result.lost);
  figures.events = result.events;
  figures.decisions = result.decisions;
  figures.wall_seconds = result.wall_seconds;
  return figures;
}

std::string FormatTable(const std::vector<Figures>& figures) {
  std::string table = fmt::format("{:<40}", "");
  for (const Figures& one : figures) table += fmt::format("{:>14}", one.policy);
  table += "\n";
  for (const Column& column : kColumns) {
    table += fmt::format("{:<40}", column.label);
    for (const Figures& one : figures) table += fmt::format("{:>14}", Cell(column, one));
    table += "\n";
  }
  return table;
}

std::string FormatCsv(const std::vector<Figures>& figures) {
  std::string csv = "policy";
  for (const Column& column : kColumns) csv += fmt::format(",{}", column.name);
  csv += "\n";
  for (const Figures& one : figures) {
    csv += one.policy;
    for (const Column& column : kColumns) csv += fmt::format(",{:.{}f}", column.value(one), column.digits);
    csv += "\n";
  }
  return csv;
}

std::string FormatJson(const std::vector<Figures>& figures) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Figures& one : figures) {
    nlohmann::ordered_json object;
    object["policy"] = one.policy;
    for (const Column& column : kColumns) {
      const double value = column.value(one);
      object[column.name] =
          std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
    }
    all.push_back(std::move(object));
  }
  return all.dump(2) + "\n";
}

std::string FormatJobs(const SimResult& result) {
  std::string csv = "job_id,tenant,submit_s,start_s,end_s,gpus,fairness,pauses,migrations\n";
  for (const Job& job : result.jobs) {
    csv +=
        fmt::format("{},{},{:.3f},{:.3f},{:.3f},{},{:.4f},{},{}\n", job.spec.name,
                    result.tenants[job.spec.tenant].name, Seconds(job.spec.submit), Seconds(job.first_start),
                    Seconds(job.finished), job.spec.gpus, job.fairness, job.pauses, job.migrations);
  }
  return csv;
}

}  // namespace stasis::scheduler
