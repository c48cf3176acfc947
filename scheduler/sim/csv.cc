#include "scheduler/sim/csv.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <ctime>
#include <istream>
#include <utility>

namespace stasis::scheduler {

namespace {

std::vector<std::string> SplitRow(const std::string& line) {
  std::vector<std::string> fields;
  size_t begin = 0;
  for (;;) {
    const size_t comma = line.find(',', begin);
    fields.push_back(line.substr(begin, comma - begin));
    if (comma == std::string::npos) return fields;
    begin = comma + 1;
  }
}

}  // namespace

CsvTable::CsvTable(std::istream& text, std::string name) : text_(text), name_(std::move(name)) {}

Status CsvTable::ReadHeader(const std::vector<std::string>& wanted) {
  if (!ReadLine()) return Errorf(StatusCode::kInvalidArgument, "%s: is empty", name_.c_str());
  const std::vector<std::string> header = SplitRow(line_);
  width_ = header.size();
  for (const std::string& column : wanted) {
    const auto found = std::find(header.begin(), header.end(), column);
    if (found == header.end())
      return Errorf(StatusCode::kInvalidArgument, "%s: has no column '%s'; its columns are %s", name_.c_str(),
                    column.c_str(), line_.c_str());
    columns_[column] = static_cast<size_t>(found - header.begin());
  }
  return {};
}

Result<bool> CsvTable::Next() {
  do {
    if (!ReadLine()) return false;
  } while (line_.empty());
  fields_ = SplitRow(line_);
  if (fields_.size() != width_)
    return Wrong("has " + std::to_string(fields_.size()) + " fields, the header " + std::to_string(width_));
  return true;
}

Result<double> CsvTable::Number(const std::string& column) const {
  const std::string& text = Text(column);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    return Wrong(column + " '" + text + "' is no number");
  return value;
}

Result<double> CsvTable::Moment(const std::string& column) const {
  std::tm tm{};
  const char* end = strptime(Text(column).c_str(), "%Y-%m-%d %H:%M:%S", &tm);
  if (end == nullptr || *end != '\0') return Wrong(column + " '" + Text(column) + "' is no date and time");
  return static_cast<double>(timegm(&tm));
}

Status CsvTable::Wrong(const std::string& what) const {
  return Errorf(StatusCode::kInvalidArgument, "%s: line %zu: %s", name_.c_str(), number_, what.c_str());
}

bool CsvTable::ReadLine() {
  if (!std::getline(text_, line_)) return false;
  if (!line_.empty() && line_.back() == '\r') line_.pop_back();
  ++number_;
  return true;
}

}  // namespace stasis::scheduler
