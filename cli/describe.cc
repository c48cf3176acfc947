#include "cli/describe.h"

#include <fmt/format.h>

#include <iterator>

#include "coordinator/node/text.h"
#include "coordinator/node/values.h"

namespace stasis {
namespace {

std::string Ms(const Json& result, const char* key) { return MillisecondsText(NumberField(result, key)); }
std::string Bytes(const Json& result, const char* key) {
  return SizeText(static_cast<uint64_t>(IntegerField(result, key)));
}

bool IsOfJob(const Json& result) { return result.contains("job"); }

std::string Ranks(const Json& result) {
  auto ranks = result.find("ranks");
  size_t count = ranks != result.end() && ranks->is_array() ? ranks->size() : 0;
  return fmt::format("{} rank{}", count, count == 1 ? "" : "s");
}

std::string Attempts(const Json& result) {
  int64_t attempts = IntegerField(result, "attempts");
  return attempts > 1 ? fmt::format(", in attempt {}", attempts) : "";
}

std::string DescribePause(const std::string& name, const Json& result) {
  std::string whose = IsOfJob(result) ? " of its " + Ranks(result) : "";
  return fmt::format("{} is paused after {}{}: {} of device memory{} held in {}", name,
                     Ms(result, "pause_ms"), Attempts(result), Bytes(result, "device_bytes"), whose,
                     TextField(result, "residency"));
}

std::string DescribeResume(const std::string& name, const Json& result) {
  return fmt::format("{} runs on after {}", name, Ms(result, IsOfJob(result) ? "total_ms" : "resume_ms"));
}

std::string DescribeCheckpoint(const std::string& name, const Json& result) {
  const char* who = IsOfJob(result) ? "they" : "it";
  std::string after = fmt::format("{} stood still for {}", who, Ms(result, "standstill_ms"));
  if (BoolField(result, "stopped")) after = "it is ended; `stasis restore " + name + "` brings it back";
  std::string of = IsOfJob(result) ? Ranks(result) + " and " : "";
  return fmt::format("{}: image {} of {}{}, {} of it new to the store, after {}{}; {}", name,
                     TextField(result, "image"), of, Bytes(result, "image_bytes"),
                     Bytes(result, "added_bytes"), Ms(result, "total_ms"), Attempts(result), after);
}

std::string DescribeRestore(const std::string& name, const Json& result) {
  return fmt::format("{} runs again from image {} after {}", name, TextField(result, "image"),
                     Ms(result, "total_ms"));
}

std::string DescribeMigrate(const std::string& name, const Json& result) {
  std::string node = TextField(result, "moved_to");
  if (!node.empty()) {
    return fmt::format("{} is on {} now; it stood still for {}, {} sent", name, node,
                       Ms(result, "standstill_ms"), Bytes(result, "sent_bytes"));
  }
  if (IsOfJob(result)) {
    return fmt::format("the {} of {} are on other GPUs now; they stood still for {}, {} moved{}",
                       Ranks(result), name, Ms(result, "standstill_ms"), Bytes(result, "device_bytes"),
                       Attempts(result));
  }
  return fmt::format("{} is on GPU {} now; it stood still for {}, {} moved", name,
                     GpuListText(IntegersField(result, "gpus")), Ms(result, "standstill_ms"),
                     Bytes(result, "device_bytes"));
}

std::string DescribeCopy(const std::string& name, const Json& result) {
  std::string what = fmt::format("image {} of {}", TextField(result, "image"), name);
  if (BoolField(result, "known"))
    return fmt::format("{} is on {} already, as {}", what, TextField(result, "node"),
                       TextField(result, "copy"));
  return fmt::format("{} is on {}, too, as {}; {} sent", what, TextField(result, "node"),
                     TextField(result, "copy"), Bytes(result, "sent_bytes"));
}

std::string DescribeCancel(const std::string& name, const Json& result) {
  if (TextField(result, "what") == "operation") return "the operation on " + name + " is given up";
  return fmt::format("{} is ended", name);
}

std::string DescribeRemove(const std::string& name, const Json& result) {
  bool had_images = IntegerField(result, "images") > 0 || BoolField(result, "had_old");
  return fmt::format("removed {}{}, {}", name, had_images ? " and its images" : "", Bytes(result, "bytes"));
}

constexpr struct {
  const char* verb;
  std::string (*describe)(const std::string& name, const Json& result);
} kVerbs[] = {
    {"pause", DescribePause},     {"resume", DescribeResume},   {"checkpoint", DescribeCheckpoint},
    {"restore", DescribeRestore}, {"migrate", DescribeMigrate}, {"cancel", DescribeCancel},
    {"remove", DescribeRemove},   {"copy", DescribeCopy},
};

}  // namespace

std::string DescribeResult(const std::string& verb, const std::string& name, const Json& result) {
  for (const auto& each : kVerbs) {
    if (verb == each.verb) return each.describe(name, result);
  }
  return "";
}

}  // namespace stasis
