#include "coordinator/node/device_memory.h"

#include <charconv>
#include <chrono>

#include "coordinator/node/layout.h"
#include "coordinator/node/program.h"
#include "coordinator/node/subprocess.h"

namespace stasis {
namespace {

constexpr auto kToolTime = std::chrono::seconds(60);
constexpr size_t kUuidDigits = 32;

// "GPU-01234567-89ab-..." without what is no digit; empty when it is no uuid.
std::string UuidDigits(std::string_view text) {
  if (!text.starts_with("GPU-")) return "";
  std::string digits;
  for (char c : text.substr(4)) {
    if (c != '-') digits += c;
  }
  bool good =
      digits.size() == kUuidDigits && digits.find_first_not_of("0123456789abcdef") == std::string::npos;
  return good ? digits : "";
}

std::string OutputOf(std::vector<std::string> argv) {
  SubprocessOptions options{std::move(argv), EnvironmentWithoutLoader({})};
  Result<SubprocessResult> ran = RunSubprocess(options, Deadline::After(kToolTime));
  return ran.ok() && ran->signal == 0 && ran->exit_code == 0 ? ran->output : "";
}

void TakeLine(std::string_view line, FreeMemory* memory) {
  size_t comma = line.find(',');
  if (comma == std::string_view::npos) return;
  std::string uuid = UuidDigits(line.substr(0, comma));
  std::string_view number = line.substr(comma + 1);
  while (number.starts_with(" ")) number.remove_prefix(1);
  uint64_t mebibytes = 0;
  auto [rest, error] = std::from_chars(number.data(), number.data() + number.size(), mebibytes);
  bool good = error == std::errc() && rest == number.data() + number.size() && mebibytes < (1ull << 40);
  if (good && !uuid.empty()) (*memory)[uuid] = mebibytes << 20;
}

}  // namespace

FreeMemory ParseNvidiaSmi(std::string_view text) {
  FreeMemory memory;
  while (!text.empty()) {
    size_t end = std::min(text.find('\n'), text.size());
    TakeLine(text.substr(0, end), &memory);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return memory;
}

FreeMemory ParseSoftgpuSmi(std::string_view text) {
  FreeMemory memory;
  Json report = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!report.is_object() || !report.contains("devices") || !report["devices"].is_array()) return memory;
  for (const Json& device : report["devices"]) {
    std::string uuid = UuidDigits(TextField(device, "uuid"));
    int64_t free = IntegerField(device, "memory_free", -1);
    if (!uuid.empty() && free >= 0) memory[uuid] = static_cast<uint64_t>(free);
  }
  return memory;
}

FreeMemory ReadFreeMemory(const std::string& kind, const OwnFiles& files) {
  if (kind == "soft") return ParseSoftgpuSmi(OutputOf({files.softgpu_smi, "--json"}));
  Result<std::string> tool = FindProgram("nvidia-smi", EnvironmentValue(OwnEnvironment(), "PATH"));
  if (!tool.ok()) return {};
  return ParseNvidiaSmi(OutputOf({*tool, "--query-gpu=uuid,memory.free", "--format=csv,noheader,nounits"}));
}

}  // namespace stasis
