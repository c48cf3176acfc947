#include "base/field_checks.h"

#include <algorithm>

namespace stasis {
namespace {

constexpr size_t kMaxPath = 4095;

}  // namespace

Status BadField(const std::string& sentence) { return Status(StatusCode::kInvalidArgument, sentence); }

std::string Shown(std::string_view text) { return "'" + std::string(text.substr(0, 100)) + "'"; }

bool HasControls(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; });
}

Status CheckAtMost(const std::string& field, uint64_t value, uint64_t most) {
  if (value <= most) return Status();
  return BadField(field + " is " + std::to_string(value) + "; at most " + std::to_string(most) +
                  " is possible");
}

Status CheckWord(const std::string& field, std::string_view value,
                 std::initializer_list<std::string_view> words) {
  if (value.empty() || std::find(words.begin(), words.end(), value) != words.end()) return Status();
  std::string all;
  for (std::string_view word : words) all += (all.empty() ? "" : ", ") + std::string(word);
  return BadField(field + " is " + Shown(value) + ", which is none of " + all);
}

Status CheckLine(const std::string& field, std::string_view text, size_t most) {
  RETURN_IF_ERROR(CheckAtMost("the length of " + field, text.size(), most));
  return HasControls(text) ? BadField(field + " holds control characters") : Status();
}

Status CheckArgument(const std::string& field, std::string_view text) {
  RETURN_IF_ERROR(CheckAtMost("the length of one of " + field, text.size(), kMaxRequestString - 1));
  return text.find('\0') == std::string_view::npos ? Status() : BadField(field + " holds a zero byte");
}

Status CheckEnvironmentEntry(std::string_view text) {
  size_t equals = text.find('=');
  if (equals != 0 && equals != std::string_view::npos) return Status();
  return BadField(Shown(text) + " is no environment entry: expected KEY=VALUE");
}

Status CheckFolder(const std::string& field, std::string_view folder) {
  if (folder.empty() || folder[0] != '/')
    return BadField(field + " is " + Shown(folder) + ", which is no absolute path");
  RETURN_IF_ERROR(CheckAtMost("the length of " + field, folder.size(), kMaxPath));
  return folder.find('\0') == std::string_view::npos ? Status() : BadField(field + " holds a zero byte");
}

Status CheckIdempotencyKey(std::string_view key) { return CheckLine("idempotency_key", key, kMaxKey); }

}  // namespace stasis
