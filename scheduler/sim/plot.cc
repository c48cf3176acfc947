#include "scheduler/sim/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

namespace stasis::scheduler {

namespace {

constexpr double kWidth = 900, kHeight = 420, kLeft = 70, kRight = 160, kTop = 30, kBottom = 50;
constexpr const char* kColours[] = {"#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377",
                                    "#bbbbbb", "#000000", "#e69f00", "#56b4e9", "#009e73", "#d55e00"};
constexpr size_t kMostPoints = 1500;  // of a line; more than pixels
constexpr int kMostGanttDevices = 256;

const char* Colour(size_t index) { return kColours[index % std::size(kColours)]; }

std::string Escape(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '&':
        escaped += "&amp;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

struct Axis {
  std::string label;
  double low = 0, high = 1;
  bool logarithmic = false;
  double Part(double value) const {
    if (logarithmic) return (std::log10(value) - std::log10(low)) / (std::log10(high) - std::log10(low));
    return (value - low) / (high - low);
  }
};

// Round steps, so that an axis has about `count` of them.
std::vector<double> Ticks(const Axis& axis, int count) {
  std::vector<double> ticks;
  if (axis.logarithmic) {
    for (double tick = std::pow(10, std::ceil(std::log10(axis.low))); tick <= axis.high; tick *= 10)
      ticks.push_back(tick);
    return ticks;
  }
  const double rough = (axis.high - axis.low) / count;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = power;
  for (const double factor : {2.0, 5.0, 10.0}) {
    if (step < rough) step = power * factor;
  }
  for (double tick = std::ceil(axis.low / step) * step; tick <= axis.high + step * 1e-6; tick += step)
    ticks.push_back(tick);
  return ticks;
}

using Line = std::vector<std::pair<double, double>>;

class Plot {
 public:
  Plot(const std::string& title, Axis x, Axis y) : x_(std::move(x)), y_(std::move(y)) {
    svg_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
        "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n"
        "<text x=\"{2}\" y=\"20\" font-size=\"14\">{3}</text>\n",
        kWidth, kHeight, kLeft, Escape(title));
    DrawAxes();
  }

  void Draw(const std::string& name, const Line& line) {
    std::string points;
    const size_t step = std::max<size_t>(1, line.size() / kMostPoints);
    for (size_t i = 0; i < line.size(); i += step) {
      if (std::isnan(line[i].second)) {
        Stroke(points);
        continue;
      }
      points += fmt::format("{:.1f},{:.1f} ", X(line[i].first), Y(line[i].second));
    }
    Stroke(points);
    Legend(name);
  }

  void Box(double begin, double end, double low, double high, size_t colour, const std::string& name) {
    svg_ += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" "
        "fill=\"{}\"><title>{}</title></rect>\n",
        X(begin), Y(high), std::max(0.3, X(end) - X(begin)), Y(low) - Y(high), Colour(colour), Escape(name));
  }

  void Legend(const std::string& name) {
    const double y = kTop + 16 * static_cast<double>(drawn_) + 8;
    svg_ += fmt::format(
        "<rect x=\"{0}\" y=\"{1}\" width=\"12\" height=\"4\" fill=\"{2}\"/><text x=\"{3}\" "
        "y=\"{4}\">{5}</text>\n",
        kWidth - kRight + 10, y, Colour(drawn_), kWidth - kRight + 28, y + 7, Escape(name));
    ++drawn_;
  }

  std::string Finish() { return svg_ + "</svg>\n"; }

 private:
  double X(double value) const {
    return kLeft + std::clamp(x_.Part(value), 0.0, 1.0) * (kWidth - kLeft - kRight);
  }
  double Y(double value) const {
    return kHeight - kBottom - std::clamp(y_.Part(value), 0.0, 1.0) * (kHeight - kTop - kBottom);
  }

  void Stroke(std::string& points) {
    if (!points.empty())
      svg_ += fmt::format("<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"1.3\" points=\"{}\"/>\n",
                          Colour(drawn_), points);
    points.clear();
  }

  void DrawAxes() {
    for (const double tick : Ticks(x_, 8)) {
      svg_ += fmt::format(
          "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" stroke=\"#dddddd\"/>"
          "<text x=\"{0:.1f}\" y=\"{3}\" text-anchor=\"middle\">{4:g}</text>\n",
          X(tick), kTop, kHeight - kBottom, kHeight - kBottom + 16, tick);
    }
    for (const double tick : Ticks(y_, 6)) {
      svg_ += fmt::format(
          "<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"#dddddd\"/>"
          "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5:g}</text>\n",
          kLeft, kWidth - kRight, Y(tick), kLeft - 6, Y(tick) + 4, tick);
    }
    svg_ += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                        (kLeft + kWidth - kRight) / 2, kHeight - 12, Escape(x_.label));
    svg_ += fmt::format("<text transform=\"translate(16,{}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
                        kHeight / 2, Escape(y_.label));
  }

  Axis x_, y_;
  std::string svg_;
  size_t drawn_ = 0;
};

double Hours(Time time) { return static_cast<double>(time) / kSecond / 3600; }

double LastHour(const SimResult& result) { return std::max(1.0, Hours(result.last_submit)); }

}  // namespace

std::string PlotCompletionTimes(const std::vector<NamedResult>& results) {
  std::vector<std::vector<double>> times(results.size());
  double longest = 10;
  for (size_t i = 0; i < results.size(); ++i) {
    for (const Job& job : results[i].result->jobs)
      times[i].push_back(std::max(1.0, static_cast<double>(job.finished - job.spec.submit) / kSecond));
    std::sort(times[i].begin(), times[i].end());
    if (!times[i].empty()) longest = std::max(longest, times[i].back());
  }
  Plot plot("Completion times", {"seconds", 1, longest, true}, {"share of jobs", 0, 1, false});
  for (size_t i = 0; i < results.size(); ++i) {
    Line line;
    for (size_t j = 0; j < times[i].size(); ++j)
      line.emplace_back(times[i][j], static_cast<double>(j + 1) / static_cast<double>(times[i].size()));
    plot.Draw(results[i].policy, line);
  }
  return plot.Finish();
}

std::string PlotFairness(const SimResult& result) {
  Plot plot("Tenants' fairness over the sliding window", {"hours", 0, LastHour(result), false},
            {"F", 0, 2.5, false});
  for (size_t tenant = 0; tenant < result.tenants.size(); ++tenant) {
    Line line;
    for (const Sample& sample : result.samples) line.emplace_back(Hours(sample.at), sample.fairness[tenant]);
    plot.Draw(result.tenants[tenant].name, line);
  }
  return plot.Finish();
}

std::string PlotUtilization(const SimResult& result, int devices) {
  double most = devices;
  Line busy, waiting;
  for (const Sample& sample : result.samples) {
    busy.emplace_back(Hours(sample.at), sample.busy);
    waiting.emplace_back(Hours(sample.at), sample.waiting);
    most = std::max(most, static_cast<double>(sample.waiting));
  }
  Plot plot(fmt::format("Devices at work, of {}, and jobs waiting", devices),
            {"hours", 0, LastHour(result), false}, {"devices, jobs", 0, most * 1.05, false});
  plot.Draw("devices", busy);
  plot.Draw("waiting", waiting);
  return plot.Finish();
}

std::string PlotGantt(const SimResult& result, const ClusterShape& shape, Time begin, Time end) {
  const int devices = std::min(shape.total(), kMostGanttDevices);
  Plot plot(fmt::format("Devices 0 to {}", devices - 1), {"hours", Hours(begin), Hours(end), false},
            {"device", 0, static_cast<double>(devices), false});
  for (const Span& span : result.spans) {
    if (span.end <= begin || span.begin >= end) continue;
    const Job& job = result.jobs[span.job];
    for (const NodeShare& share : span.placement) {
      for (int bit = 0; bit < shape.devices_per_node; ++bit) {
        const int device = static_cast<int>(share.node) * shape.devices_per_node + bit;
        if ((share.devices >> bit & 1) == 0 || device >= devices) continue;
        plot.Box(Hours(std::max(begin, span.begin)), Hours(std::min(end, span.end)), device, device + 1,
                 job.spec.tenant, result.tenants[job.spec.tenant].name + ": " + job.spec.name);
      }
    }
  }
  for (const TenantSpec& tenant : result.tenants) plot.Legend(tenant.name);
  return plot.Finish();
}

}  // namespace stasis::scheduler
