#include "cli/top_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/agent_operation.h"
#include "cli/ps_table.h"
#include "cli/report.h"
#include "cli/waterfall.h"

namespace stasis {
namespace {

constexpr int kBarWidth = 20;
constexpr int kUnbounded = 1 << 20;

struct Part {
  std::string title;
  std::vector<TopLine> rows;
};

std::string NameOf(const TopNode& node) {
  return node.info.name().empty() ? node.endpoint : node.info.name();
}

std::string MemoryBar(uint64_t done, uint64_t total) { return BarText(done, total, kBarWidth); }

TopLine NodeRow(const TopNode& node, int64_t now_ms) {
  if (!node.error.empty())
    return {TopLine::Kind::kTrouble, fmt::format("{:<16} {}", NameOf(node), Printable(node.error))};
  size_t live = static_cast<size_t>(
      std::count_if(node.jobs.begin(), node.jobs.end(), [](const v1::Job& job) { return job.live(); }));
  return {TopLine::Kind::kRow,
          fmt::format("{:<16} {:<26} {:>8} {:>5} {:>10} {:>8} {:>5}  {}", NameOf(node), node.endpoint,
                      AgeText((now_ms - node.info.started_ms()) / 1000), node.info.cpus(),
                      SizeText(node.info.memory_bytes()), node.devices.devices_size(), live,
                      node.info.draining() ? "draining" : "ready")};
}

Part NodesPart(const std::vector<TopNode>& nodes, int64_t now_ms) {
  Part part{fmt::format("{:<16} {:<26} {:>8} {:>5} {:>10} {:>8} {:>5}  {}", "NODE", "AGENT", "UP", "CPUS",
                        "MEMORY", "DEVICES", "JOBS", "STATE"),
            {}};
  for (const TopNode& node : nodes) part.rows.push_back(NodeRow(node, now_ms));
  return part;
}

std::string DeviceRow(const TopNode& node, const v1::Device& device) {
  uint64_t used = device.memory_bytes() - std::min(device.free_bytes(), device.memory_bytes());
  std::string jobs;
  for (const std::string& job : device.jobs()) jobs += (jobs.empty() ? "" : " ") + job;
  return fmt::format("{:<16} {:>3} {:<24.24} {} {:>9} / {:<9} {}", NameOf(node), device.ordinal(),
                     Printable(device.name()), MemoryBar(used, device.memory_bytes()), SizeText(used),
                     SizeText(device.memory_bytes()), jobs);
}

Part DevicesPart(const std::vector<TopNode>& nodes) {
  Part part{
      fmt::format("{:<16} {:>3} {:<24} {:<22} {:>21} {}", "NODE", "GPU", "DEVICE", "MEMORY", "", "JOBS"), {}};
  for (const TopNode& node : nodes) {
    for (const v1::Device& device : node.devices.devices())
      part.rows.push_back({TopLine::Kind::kRow, DeviceRow(node, device)});
  }
  return part;
}

TopLine JobRow(const TopNode& node, const v1::Job& job, int64_t now_ms) {
  bool trouble = job.condition() == v1::CONDITION_BROKEN || job.condition() == v1::CONDITION_IN_DOUBT ||
                 job.condition() == v1::CONDITION_STRANDED;
  return {trouble ? TopLine::Kind::kTrouble : TopLine::Kind::kRow,
          fmt::format("{:<16} {:<20} {:<18} {:>5} {:<8} {:>7} {:<8} {:<10} {}", NameOf(node), job.name(),
                      JobStateText(job), job.ranks_size(), JobGpusText(job),
                      AgeText((now_ms - job.created_ms()) / 1000),
                      job.last_image().empty() ? "-" : job.last_image(),
                      job.operation().empty() ? "-" : job.operation(), CommandText(job, 48))};
}

Part JobsPart(const std::vector<TopNode>& nodes, int64_t now_ms) {
  Part part{fmt::format("{:<16} {:<20} {:<18} {:>5} {:<8} {:>7} {:<8} {:<10} {}", "NODE", "JOB", "STATE",
                        "RANKS", "GPUS", "AGE", "IMAGE", "OPERATION", "COMMAND"),
            {}};
  for (const TopNode& node : nodes) {
    for (const v1::Job& job : node.jobs) {
      if (job.live() || job.condition() == v1::CONDITION_CHECKPOINTED)
        part.rows.push_back(JobRow(node, job, now_ms));
    }
  }
  return part;
}

TopLine OperationRow(const TopNode& node, const v1::Operation& operation, int64_t now_ms) {
  bool ended = HasEnded(operation);
  int64_t end = ended ? operation.ended_ms() : now_ms;
  std::string took =
      operation.started_ms() == 0
          ? "-"
          : MillisecondsText(static_cast<double>(std::max<int64_t>(0, end - operation.started_ms())));
  std::string bar = !ended && operation.total_bytes() > 0
                        ? BarText(operation.done_bytes(), operation.total_bytes(), kBarWidth) + " "
                        : std::string();
  bool failed = operation.state() == v1::OPERATION_STATE_FAILED;
  return {failed ? TopLine::Kind::kTrouble : TopLine::Kind::kRow,
          fmt::format("{:<16} {:<12} {:<11} {:<20} {:<10} {:>10}  {}{}", NameOf(node), operation.id(),
                      operation.verb(), operation.job(), OperationStateName(operation.state()), took, bar,
                      OutcomeText(operation))};
}

// What goes on comes before what has ended.
Part OperationsPart(const std::vector<TopNode>& nodes, int64_t now_ms) {
  Part part{fmt::format("{:<16} {:<12} {:<11} {:<20} {:<10} {:>10}  {}", "NODE", "OPERATION", "VERB", "JOB",
                        "STATE", "TOOK", "PHASE OR OUTCOME"),
            {}};
  for (bool ended : {false, true}) {
    for (const TopNode& node : nodes) {
      for (const v1::Operation& operation : node.operations) {
        if (HasEnded(operation) == ended) part.rows.push_back(OperationRow(node, operation, now_ms));
      }
    }
  }
  return part;
}

std::vector<Part> PartsOf(const std::vector<TopNode>& nodes, int64_t now_ms) {
  return {NodesPart(nodes, now_ms), DevicesPart(nodes), JobsPart(nodes, now_ms),
          OperationsPart(nodes, now_ms)};
}

// Rows for each part: what it has, then taken from the one that has most until all fit.
std::vector<size_t> Share(const std::vector<Part>& parts, int height) {
  std::vector<size_t> rows;
  size_t sum = 0;
  for (const Part& part : parts) {
    rows.push_back(std::max<size_t>(part.rows.size(), 1));
    sum += rows.back() + 1;
  }
  while (sum > static_cast<size_t>(std::max(height, 0))) {
    auto most = std::max_element(rows.begin(), rows.end());
    if (*most <= 1) break;
    --*most;
    --sum;
  }
  return rows;
}

std::string Cut(const std::string& text, int width) {
  return text.substr(0, static_cast<size_t>(std::max(width, 0)));
}

}  // namespace

void TopView::Move(int rows) {
  size_t& row = first[static_cast<size_t>(focus)];
  if (rows < 0)
    row -= std::min(row, static_cast<size_t>(-rows));
  else
    row += static_cast<size_t>(rows);
}

std::vector<TopLine> TopLines(const std::vector<TopNode>& nodes, TopView* view, int width, int height,
                              int64_t now_ms) {
  std::vector<Part> parts = PartsOf(nodes, now_ms);
  std::vector<size_t> share = Share(parts, height);
  std::vector<TopLine> lines;
  for (size_t i = 0; i < parts.size(); i++) {
    const std::vector<TopLine>& rows = parts[i].rows;
    bool focused = static_cast<size_t>(view->focus) == i;
    lines.push_back(
        {focused ? TopLine::Kind::kFocusedTitle : TopLine::Kind::kTitle, Cut(parts[i].title, width)});
    size_t last = rows.size() - std::min(rows.size(), share[i]);
    view->first[i] = std::min(view->first[i], last);
    for (size_t row = 0; row < share[i]; row++) {
      size_t at = view->first[i] + row;
      lines.push_back(at < rows.size() ? TopLine{rows[at].kind, Cut(rows[at].text, width)} : TopLine());
    }
  }
  if (lines.size() > static_cast<size_t>(std::max(height, 0)))
    lines.resize(static_cast<size_t>(std::max(height, 0)));
  return lines;
}

std::string TopText(const std::vector<TopNode>& nodes, int64_t now_ms) {
  TopView view;
  std::string text;
  for (const TopLine& line : TopLines(nodes, &view, kUnbounded, kUnbounded, now_ms)) {
    if (!text.empty() && (line.kind == TopLine::Kind::kTitle || line.kind == TopLine::Kind::kFocusedTitle))
      text += "\n";
    if (!line.text.empty()) text += line.text + "\n";
  }
  return text;
}

Json TopDocument(const std::vector<TopNode>& nodes) {
  Json list = Json::array();
  for (const TopNode& node : nodes) {
    Json devices = Json::array(), operations = Json::array();
    for (const v1::Device& device : node.devices.devices()) {
      devices.push_back({{"ordinal", device.ordinal()},
                         {"name", device.name()},
                         {"uuid", device.uuid()},
                         {"memory_bytes", device.memory_bytes()},
                         {"free_bytes", device.free_bytes()},
                         {"jobs", std::vector<std::string>(device.jobs().begin(), device.jobs().end())}});
    }
    for (const v1::Operation& operation : node.operations) operations.push_back(DescribeOperation(operation));
    PsTable table = MakePsTable(node.jobs, false, false, 0);
    list.push_back({{"endpoint", node.endpoint},
                    {"error", node.error},
                    {"name", node.info.name()},
                    {"version", node.info.version()},
                    {"started_ms", node.info.started_ms()},
                    {"cpus", node.info.cpus()},
                    {"memory_bytes", node.info.memory_bytes()},
                    {"draining", node.info.draining()},
                    {"devices", devices},
                    {"tasks", table.tasks},
                    {"jobs", table.jobs},
                    {"operations", operations}});
  }
  return list;
}

}  // namespace stasis
