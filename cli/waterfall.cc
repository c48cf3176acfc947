#include "cli/waterfall.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <map>
#include <set>
#include <vector>

#include "cli/agent_operation.h"
#include "coordinator/node/text.h"

namespace stasis {
namespace {

constexpr int kBarWidth = 48;
constexpr int kMaxDepth = 16;

// The whole: to its last end, or to where a step that goes on has come.
int64_t EndOf(const v1::Operation& operation) {
  int64_t end = 1;
  for (const v1::Span& span : operation.spans()) {
    end = std::max({end, span.end_us(), span.start_us() + 1});
  }
  if (operation.ended_ms() > 0 && operation.started_ms() > 0) return end;
  auto now = std::chrono::duration_cast<std::chrono::milliseconds>(
                 std::chrono::system_clock::now().time_since_epoch())
                 .count();
  return std::max(end, operation.started_ms() > 0 ? (now - operation.started_ms()) * 1000 : end);
}

std::string SpanBar(const v1::Span& span, int64_t whole, int width) {
  auto column = [&](int64_t at) {
    double part = static_cast<double>(std::clamp<int64_t>(at, 0, whole)) / static_cast<double>(whole);
    return static_cast<int>(std::lround(part * width));
  };
  int begin = std::min(column(span.start_us()), width - 1);
  int end = std::max(begin + 1, column(span.end_us() == 0 ? whole : span.end_us()));
  std::string bar(static_cast<size_t>(width), ' ');
  for (int i = begin; i < end; i++) bar[static_cast<size_t>(i)] = '=';
  if (span.end_us() == 0) bar[static_cast<size_t>(end - 1)] = '>';
  return bar;
}

class Waterfall {
 public:
  Waterfall(const v1::Operation& operation, int width) : whole_(EndOf(operation)), width_(width) {
    std::set<uint32_t> ids;
    for (const v1::Span& span : operation.spans()) ids.insert(span.id());
    for (const v1::Span& span : operation.spans()) {
      // One whose parent is not told stands at the top.
      uint32_t parent = span.parent() != span.id() && ids.count(span.parent()) > 0 ? span.parent() : 0;
      below_[parent].push_back(&span);
    }
    for (auto& [parent, spans] : below_) {
      std::stable_sort(spans.begin(), spans.end(),
                       [](const v1::Span* a, const v1::Span* b) { return a->start_us() < b->start_us(); });
    }
  }

  std::string Text() {
    Add(0, 0);
    return text_;
  }

 private:
  void Add(uint32_t parent, int depth) {
    auto found = below_.find(parent);
    if (found == below_.end() || depth > kMaxDepth) return;
    for (const v1::Span* span : found->second) {
      AddLine(*span, depth);
      if (span->id() != 0) Add(span->id(), depth + 1);
    }
  }

  void AddLine(const v1::Span& span, int depth) {
    std::string name = std::string(static_cast<size_t>(depth) * 2, ' ') + Printable(span.name());
    if (!span.rank().empty()) name += " [" + Printable(span.rank()) + "]";
    int64_t end = span.end_us() == 0 ? whole_ : span.end_us();
    std::string took =
        MillisecondsText(static_cast<double>(std::max<int64_t>(0, end - span.start_us())) / 1e3);
    text_ += fmt::format("{:<30} {:>10} |{}|{}\n", name, took, SpanBar(span, whole_, width_),
                         span.bytes() == 0 ? "" : " " + SizeText(span.bytes()));
  }

  const int64_t whole_;
  const int width_;
  std::map<uint32_t, std::vector<const v1::Span*>> below_;  // by parent
  std::string text_;
};

std::string TimeText(int64_t milliseconds) {
  if (milliseconds == 0) return "-";
  std::time_t seconds = milliseconds / 1000;
  std::tm local{};
  localtime_r(&seconds, &local);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local);
  return fmt::format("{}.{:03}", text, milliseconds % 1000);
}

std::string Line(const char* what, const std::string& value) {
  return fmt::format("{:<10} {}\n", what, value);
}

}  // namespace

Json DescribeOperation(const v1::Operation& operation) {
  Json entry = {{"id", operation.id()},
                {"verb", operation.verb()},
                {"job", operation.job()},
                {"actor", operation.actor()},
                {"state", OperationStateName(operation.state())},
                {"created_ms", operation.created_ms()},
                {"started_ms", operation.started_ms()},
                {"ended_ms", operation.ended_ms()},
                {"notes", std::vector<std::string>(operation.notes().begin(), operation.notes().end())}};
  if (HasEnded(operation)) {
    entry["result"] = ResultOf(operation);
  } else {
    entry["phase"] = operation.phase();
    entry["done_bytes"] = operation.done_bytes();
    entry["total_bytes"] = operation.total_bytes();
    entry["percent"] = operation.percent();
  }
  return entry;
}

Json DescribeSpans(const v1::Operation& operation) {
  Json spans = Json::array();
  for (const v1::Span& span : operation.spans()) {
    spans.push_back({{"id", span.id()},
                     {"parent", span.parent()},
                     {"name", span.name()},
                     {"rank", span.rank()},
                     {"start_us", span.start_us()},
                     {"end_us", span.end_us()},
                     {"bytes", span.bytes()}});
  }
  return spans;
}

std::string OutcomeText(const v1::Operation& operation) {
  if (!HasEnded(operation)) {
    std::string phase = Printable(operation.phase());
    return operation.total_bytes() == 0 ? phase : fmt::format("{} {:.0f} %", phase, operation.percent());
  }
  Json result = ResultOf(operation);
  if (BoolField(result, "ok")) return OperationStateName(operation.state());
  return Printable(fmt::format("{}: {}", TextField(result, "code"), TextField(result, "message")));
}

std::string OperationText(const v1::Operation& operation) {
  std::string text = Line("operation", operation.id());
  text += Line("verb", operation.verb() + (operation.job().empty() ? "" : " " + operation.job()));
  text += Line("by", Printable(operation.actor()));
  text += Line("state", OperationStateName(operation.state()));
  text += Line("created", TimeText(operation.created_ms()));
  text += Line("started", TimeText(operation.started_ms()));
  text += Line("ended", TimeText(operation.ended_ms()));
  text += Line("outcome", OutcomeText(operation));
  for (const std::string& note : operation.notes()) text += Line("note", Printable(note));
  std::string waterfall = WaterfallText(operation, kBarWidth);
  return waterfall.empty() ? text : text + "\n" + waterfall;
}

std::string WaterfallText(const v1::Operation& operation, int width) {
  return Waterfall(operation, width).Text();
}

}  // namespace stasis
