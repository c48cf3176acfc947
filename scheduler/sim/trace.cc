#include "scheduler/sim/trace.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <istream>
#include <map>
#include <optional>
#include <utility>

#include "scheduler/sim/csv.h"

namespace stasis::scheduler {

namespace {

// A job's duration or submission beyond this is a mistake in the file: 100 years.
constexpr double kMostSeconds = 100.0 * 365 * 86400;
constexpr int kMostGpus = 1 << 20;

struct Row {
  std::string name, tenant;
  double submit = 0, duration = 0, gpus = 0;  // seconds, seconds, devices
};

std::vector<std::string> ColumnsOf(TraceLayout layout) {
  switch (layout) {
    case TraceLayout::kPlain:
      return {"job_id", "tenant", "submit_s", "gpus", "duration_s"};
    case TraceLayout::kPhilly:
      return {"timestamp", "duration", "num_gpus", "cluster"};
    case TraceLayout::kHelios:
      return {"job_id", "vc", "gpu_num", "submit_time", "duration"};
    case TraceLayout::kAlibaba:
      return {"job_name", "user", "inst_num", "plan_gpu", "start_time", "end_time"};
  }
  return {};
}

Result<Row> ReadPlain(const CsvTable& table) {
  Row row{table.Text("job_id"), table.Text("tenant"), 0, 0, 0};
  ASSIGN_OR_RETURN(row.submit, table.Number("submit_s"));
  ASSIGN_OR_RETURN(row.duration, table.Number("duration_s"));
  ASSIGN_OR_RETURN(row.gpus, table.Number("gpus"));
  return row;
}

Result<Row> ReadPhilly(const CsvTable& table) {
  Row row{"", table.Text("cluster"), 0, 0, 0};
  ASSIGN_OR_RETURN(row.submit, table.Moment("timestamp"));
  ASSIGN_OR_RETURN(row.duration, table.Number("duration"));
  ASSIGN_OR_RETURN(row.gpus, table.Number("num_gpus"));
  return row;
}

Result<Row> ReadHelios(const CsvTable& table) {
  Row row{table.Text("job_id"), table.Text("vc"), 0, 0, 0};
  ASSIGN_OR_RETURN(row.submit, table.Moment("submit_time"));
  ASSIGN_OR_RETURN(row.duration, table.Number("duration"));
  ASSIGN_OR_RETURN(row.gpus, table.Number("gpu_num"));
  return row;
}

Result<Row> ReadAlibaba(const CsvTable& table) {
  Row row{table.Text("job_name"), table.Text("user"), 0, 0, 0};
  ASSIGN_OR_RETURN(row.submit, table.Number("start_time"));
  ASSIGN_OR_RETURN(const double end, table.Number("end_time"));
  ASSIGN_OR_RETURN(const double instances, table.Number("inst_num"));
  ASSIGN_OR_RETURN(const double percent, table.Number("plan_gpu"));
  row.duration = end - row.submit;
  // Parts of a GPU are not modelled: whoever asks for one gets all of it.
  row.gpus = instances * std::ceil(percent / 100);
  return row;
}

Result<Row> ReadRow(const CsvTable& table, TraceLayout layout) {
  switch (layout) {
    case TraceLayout::kPlain:
      return ReadPlain(table);
    case TraceLayout::kPhilly:
      return ReadPhilly(table);
    case TraceLayout::kHelios:
      return ReadHelios(table);
    case TraceLayout::kAlibaba:
      return ReadAlibaba(table);
  }
  return Status(StatusCode::kInternal, "no such layout");
}

Status CheckRow(const CsvTable& table, const Row& row) {
  if (row.duration < 0) return table.Wrong("a negative duration");
  if (row.duration > kMostSeconds) return table.Wrong("a duration of more than 100 years");
  if (row.gpus < 0 || row.gpus != std::floor(row.gpus) || row.gpus > kMostGpus)
    return table.Wrong("a number of devices that cannot be");
  return {};
}

// Names to indices; with weights given, only those.
class Tenants {
 public:
  explicit Tenants(std::vector<TenantSpec> given) : fixed_(!given.empty()), all_(std::move(given)) {
    for (TenantId i = 0; i < all_.size(); ++i) index_[all_[i].name] = i;
  }
  std::optional<TenantId> Find(const std::string& name) {
    const auto known = index_.find(name);
    if (known != index_.end()) return known->second;
    if (fixed_) return std::nullopt;
    const TenantId id = static_cast<TenantId>(all_.size());
    all_.push_back({name, 1});
    index_[name] = id;
    return id;
  }
  std::vector<TenantSpec> Take() { return std::move(all_); }

 private:
  const bool fixed_;
  std::vector<TenantSpec> all_;
  std::map<std::string, TenantId> index_;
};

Time ToTime(double seconds) { return static_cast<Time>(std::llround(seconds * kSecond)); }

}  // namespace

Result<TraceLayout> ParseTraceLayout(std::string_view name) {
  if (name == "plain") return TraceLayout::kPlain;
  if (name == "philly") return TraceLayout::kPhilly;
  if (name == "helios") return TraceLayout::kHelios;
  if (name == "alibaba") return TraceLayout::kAlibaba;
  return Errorf(StatusCode::kInvalidArgument, "no layout '%.*s'; there are plain, philly, helios, alibaba",
                static_cast<int>(name.size()), name.data());
}

Result<std::vector<TenantSpec>> ParseWeights(std::istream& text, const std::string& name) {
  CsvTable table(text, name);
  RETURN_IF_ERROR(table.ReadHeader({"name", "share"}));
  std::vector<TenantSpec> tenants;
  for (;;) {
    ASSIGN_OR_RETURN(const bool more, table.Next());
    if (!more) break;
    ASSIGN_OR_RETURN(const double share, table.Number("share"));
    if (share <= 0) return table.Wrong("a share that is not positive");
    for (const TenantSpec& tenant : tenants) {
      if (tenant.name == table.Text("name")) return table.Wrong("tenant " + tenant.name + " once more");
    }
    tenants.push_back({table.Text("name"), share});
  }
  if (tenants.empty()) return Errorf(StatusCode::kInvalidArgument, "%s: names no tenant", name.c_str());
  return tenants;
}

Result<Trace> ParseTrace(std::istream& text, const std::string& name, TraceLayout layout,
                         std::vector<TenantSpec> given) {
  CsvTable table(text, name);
  RETURN_IF_ERROR(table.ReadHeader(ColumnsOf(layout)));
  Tenants tenants(std::move(given));
  Trace trace;
  std::vector<std::pair<double, JobSpec>> jobs;  // with the moment of submission as the file has it
  for (;;) {
    ASSIGN_OR_RETURN(const bool more, table.Next());
    if (!more) break;
    ASSIGN_OR_RETURN(Row row, ReadRow(table, layout));
    RETURN_IF_ERROR(CheckRow(table, row));
    JobSpec job;
    job.duration = ToTime(row.duration);
    if (row.gpus == 0 || job.duration == 0) {
      ++trace.without_gpus;
      continue;
    }
    const std::optional<TenantId> tenant = tenants.Find(row.tenant);
    if (!tenant) return table.Wrong("tenant '" + row.tenant + "' has no weight");
    job.name = row.name.empty() ? std::to_string(jobs.size()) : std::move(row.name);
    job.tenant = *tenant;
    job.gpus = static_cast<int>(row.gpus);
    jobs.emplace_back(row.submit, std::move(job));
  }
  if (jobs.empty())
    return Errorf(StatusCode::kInvalidArgument, "%s: has no job that uses a GPU", name.c_str());
  std::stable_sort(jobs.begin(), jobs.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  if (jobs.back().first - jobs.front().first > kMostSeconds)
    return Errorf(StatusCode::kInvalidArgument, "%s: its submissions span more than 100 years", name.c_str());
  for (auto& [submit, job] : jobs) {
    job.submit = ToTime(submit - jobs.front().first);
    trace.jobs.push_back(std::move(job));
  }
  trace.tenants = tenants.Take();
  return trace;
}

Result<Trace> ReadTrace(const std::string& path, TraceLayout layout, const std::string& weights) {
  std::vector<TenantSpec> tenants;
  if (!weights.empty()) {
    std::ifstream text(weights);
    if (!text) return ErrnoStatus(errno, "open " + weights);
    ASSIGN_OR_RETURN(tenants, ParseWeights(text, weights));
  }
  std::ifstream text(path);
  if (!text) return ErrnoStatus(errno, "open " + path);
  return ParseTrace(text, path, layout, std::move(tenants));
}

}  // namespace stasis::scheduler
