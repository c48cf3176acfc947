#include "scheduler/sim/cost_model.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "scheduler/sim/csv.h"

namespace stasis::scheduler {

namespace {

struct Operation {
  const char* name;
  CostLine CostModel::*line;
};
constexpr Operation kOperations[] = {{"pause", &CostModel::pause},
                                     {"resume", &CostModel::resume},
                                     {"migrate", &CostModel::migrate},
                                     {"checkpoint", &CostModel::checkpoint},
                                     {"restart", &CostModel::restart}};

Result<double> Positive(const nlohmann::json& object, const char* key, const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number())
    return Errorf(StatusCode::kInvalidArgument, "%s: '%s' is no number", where.c_str(), key);
  const double value = found->get<double>();
  if (!std::isfinite(value) || value < 0)
    return Errorf(StatusCode::kInvalidArgument, "%s: '%s' is negative", where.c_str(), key);
  return value;
}

CostLine Fit(const std::vector<const CostSample*>& samples) {
  const double n = static_cast<double>(samples.size());
  double bytes = 0, seconds = 0;
  for (const CostSample* sample : samples) {
    bytes += sample->bytes_per_gpu / n;
    seconds += sample->seconds / n;
  }
  double spread = 0, together = 0;
  for (const CostSample* sample : samples) {
    spread += (sample->bytes_per_gpu - bytes) * (sample->bytes_per_gpu - bytes);
    together += (sample->bytes_per_gpu - bytes) * (sample->seconds - seconds);
  }
  const double slope = spread > 0 ? together / spread : 0;
  if (slope <= 0) return {seconds, 0};
  return {std::max(0.0, seconds - slope * bytes), 1 / slope};
}

}  // namespace

Time CostLine::Of(int64_t bytes_per_gpu) const {
  const double bytes = bytes_per_second > 0 ? static_cast<double>(bytes_per_gpu) / bytes_per_second : 0;
  return static_cast<Time>(std::llround(std::max(0.0, fixed + bytes) * kSecond));
}

// No fit: of the order that scripts/bench.sh pause shows on softgpu with memory held in the host.
CostModel CostModel::Default() {
  CostModel model;
  model.pause = {0.06, 1.5e9};
  model.resume = {0.02, 1.5e9};
  model.migrate = {0.3, 1.0e9};
  model.checkpoint = {0.2, 0};
  model.restart = {0.3, 1.5e9};
  return model;
}

Result<CostModel> CostModel::FromJson(std::string_view text, const std::string& name) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Errorf(StatusCode::kInvalidArgument, "%s: is no JSON object", name.c_str());
  CostModel model;
  for (const Operation& operation : kOperations) {
    const auto found = json.find(operation.name);
    const std::string where = name + ": " + operation.name;
    if (found == json.end() || !found->is_object())
      return Errorf(StatusCode::kInvalidArgument, "%s: is missing", where.c_str());
    CostLine& line = model.*operation.line;
    ASSIGN_OR_RETURN(line.fixed, Positive(*found, "fixed_s", where));
    ASSIGN_OR_RETURN(line.bytes_per_second, Positive(*found, "bytes_per_s", where));
  }
  return model;
}

std::string CostModel::ToJson() const {
  nlohmann::ordered_json json;
  for (const Operation& operation : kOperations) {
    const CostLine& line = this->*operation.line;
    json[operation.name] = {{"fixed_s", line.fixed}, {"bytes_per_s", line.bytes_per_second}};
  }
  return json.dump(2) + "\n";
}

Result<std::vector<CostSample>> ParseCostSamples(std::istream& text, const std::string& name) {
  CsvTable table(text, name);
  RETURN_IF_ERROR(table.ReadHeader({"operation", "bytes_per_gpu", "seconds"}));
  std::vector<CostSample> samples;
  for (;;) {
    ASSIGN_OR_RETURN(const bool more, table.Next());
    if (!more) return samples;
    CostSample sample;
    sample.operation = table.Text("operation");
    const bool known =
        std::any_of(std::begin(kOperations), std::end(kOperations),
                    [&](const Operation& operation) { return sample.operation == operation.name; });
    if (!known) return table.Wrong("no operation '" + sample.operation + "'");
    ASSIGN_OR_RETURN(sample.bytes_per_gpu, table.Number("bytes_per_gpu"));
    ASSIGN_OR_RETURN(sample.seconds, table.Number("seconds"));
    if (sample.bytes_per_gpu < 0 || sample.seconds < 0) return table.Wrong("a negative figure");
    samples.push_back(std::move(sample));
  }
}

Result<CostModel> FitCosts(const std::vector<CostSample>& samples) {
  CostModel model;
  for (const Operation& operation : kOperations) {
    std::vector<const CostSample*> own;
    for (const CostSample& sample : samples) {
      if (sample.operation == operation.name) own.push_back(&sample);
    }
    if (own.empty())
      return Errorf(StatusCode::kInvalidArgument, "no sample of operation '%s'", operation.name);
    model.*operation.line = Fit(own);
  }
  return model;
}

Time LeaseFor(const CostModel& costs, int64_t bytes_per_gpu, double budget, Time least) {
  const Time cost = costs.pause.Of(bytes_per_gpu) + costs.resume.Of(bytes_per_gpu);
  const double shortest = static_cast<double>(cost) / budget;
  return std::max(least, static_cast<Time>(std::ceil(shortest)));
}

}  // namespace stasis::scheduler
