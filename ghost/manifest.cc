#include "ghost/manifest.h"

#include <sys/utsname.h>

#include <algorithm>
#include <iterator>
#include <sstream>

#include "base/files.h"
#include "ghost/task_config.h"

namespace stasis {
namespace {

constexpr size_t kMaxPrograms = 1 << 16;
constexpr size_t kMaxFiles = 1 << 20;
constexpr size_t kMaxMembers = 4096;
constexpr size_t kMaxDevices = 64;
constexpr size_t kMaxExtents = 1 << 22;
constexpr size_t kMaxRanges = 1 << 24;
constexpr uint64_t kMaxPid = 1 << 22;
constexpr uint64_t kMaxBytes = 1ull << 50;
constexpr uint64_t kMaxAddress = 1ull << 57;

// Families of x86 and Arm feature names that code is chosen by; the rest of /proc/cpuinfo's flags are about
// the system.
constexpr const char* kFeatureFamilies[] = {
    "sse",     "ssse", "avx",   "fma",     "f16c",  "bmi",    "aes",  "vaes",   "pclmul",
    "vpclmul", "sha",  "movbe", "popcnt",  "lzcnt", "abm",    "adx",  "rdrand", "rdseed",
    "gfni",    "erms", "fsrm",  "amx",     "xsave", "xgetbv", "lahf", "cx16",   "clflushopt",
    "clwb",    "sve",  "asimd", "atomics", "crc32", "fphp",   "i8mm", "bf16"};

bool IsCodeFeature(const std::string& flag) {
  return std::any_of(std::begin(kFeatureFamilies), std::end(kFeatureFamilies),
                     [&](const char* family) { return flag.starts_with(family); });
}

std::string Hex(const std::string& bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (unsigned char byte : bytes) text += {kDigits[byte >> 4], kDigits[byte & 15]};
  return text;
}

bool Unhex(const std::string& text, std::string* bytes) {
  if (text.size() % 2 != 0 || text.find_first_not_of("0123456789abcdef") != std::string::npos) return false;
  bytes->clear();
  for (size_t i = 0; i < text.size(); i += 2) {
    *bytes += static_cast<char>(std::strtoul(text.substr(i, 2).c_str(), nullptr, 16));
  }
  return true;
}

// Absolute and without a step upwards: a manifest must not lead out of what its reader means to touch.
bool IsAbsolute(const std::string& path) {
  return path.starts_with("/") && ("/" + path + "/").find("/../") == std::string::npos;
}

Json MemberJson(const ManifestMember& member) {
  Json devices = Json::array(), extents = Json::array(), ranges = Json::array();
  for (const TaskDevice& device : member.devices) devices.push_back(DeviceJson(device));
  for (const TaskExtent& e : member.extents) {
    extents.push_back({{"id", e.id},
                       {"device", e.device},
                       {"address", e.address},
                       {"size", e.size},
                       {"traits", e.traits},
                       {"share", e.share}});
  }
  for (const TaskRange& range : member.ranges)
    ranges.push_back({{"address", range.address}, {"size", range.size}});
  return {{"nspid", member.nspid},
          {"strategy", TaskStrategyName(member.strategy)},
          {"driver_version", member.driver_version},
          {"devices", std::move(devices)},
          {"placed_uuids", HexOf(member.placed_uuids)},
          {"stream", member.stream},
          {"extents", std::move(extents)},
          {"ranges", std::move(ranges)}};
}

void ParseExtents(const std::vector<const Json*>& list, ManifestMember* member, JsonFields& out) {
  uint64_t end = 0, total = 0;
  for (const Json* element : list) {
    JsonFields fields(*element, "extent");
    TaskExtent e;
    e.id = fields.Number("id");
    e.device = static_cast<int32_t>(fields.Number("device", kMaxDevices - 1));
    e.address = fields.Number("address", kMaxAddress);
    e.size = fields.Number("size", kMaxBytes);
    // Images of earlier versions have neither.
    e.traits = static_cast<uint32_t>(fields.NumberOr("traits", 0, kAllTraits));
    e.share = fields.NumberOr("share", 0);
    if (e.size == 0 || e.address < end) fields.Fail("does not follow the one before it");
    if (!fields.ok()) return out.Fail(std::string(fields.Finish().message()));
    end = e.address + e.size;
    total += e.size;
    if (total > kMaxBytes) return out.Fail("holds more than a machine can");
    member->extents.push_back(e);
  }
}

void ParseRanges(const std::vector<const Json*>& list, ManifestMember* member, JsonFields& out) {
  uint64_t end = 0;
  auto e = member->extents.begin();
  for (const Json* element : list) {
    JsonFields fields(*element, "range");
    TaskRange range;
    range.address = fields.Number("address", kMaxAddress);
    range.size = fields.Number("size", kMaxBytes);
    while (e != member->extents.end() && e->address + e->size <= range.address) ++e;
    bool inside = e != member->extents.end() && range.address >= e->address &&
                  range.size <= e->address + e->size - range.address;
    if (range.size == 0 || range.address < end) fields.Fail("does not follow the one before it");
    if (!inside) fields.Fail("is not within an extent");
    if (!fields.ok()) return out.Fail(std::string(fields.Finish().message()));
    end = range.address + range.size;
    member->ranges.push_back(range);
  }
}

Result<ManifestMember> ParseMember(const Json& json) {
  JsonFields fields(json, "member");
  ManifestMember member;
  member.nspid = static_cast<pid_t>(fields.Number("nspid", kMaxPid));
  std::string strategy = fields.String("strategy", 64);
  member.driver_version = static_cast<int32_t>(fields.Number("driver_version", INT32_MAX));
  for (const Json* device : fields.Objects("devices", kMaxDevices)) {
    member.devices.push_back(ParseDeviceJson(*device, fields));
  }
  member.placed_uuids = UnhexAll(fields.Strings("placed_uuids", kMaxDevices, 32));
  member.stream = fields.String("stream", 255);
  ParseExtents(fields.Objects("extents", kMaxExtents), &member, fields);
  ParseRanges(fields.Objects("ranges", kMaxRanges), &member, fields);
  bool reconstruct = strategy == TaskStrategyName(TaskStrategy::kReconstruct);
  member.strategy = reconstruct ? TaskStrategy::kReconstruct : TaskStrategy::kDriverCheckpoint;
  if (!reconstruct && strategy != TaskStrategyName(TaskStrategy::kDriverCheckpoint)) {
    fields.Fail("has an unknown strategy");
  }
  if (member.ranges.empty() != member.stream.empty() ||
      (!member.stream.empty() && !IsPlainName(member.stream))) {
    fields.Fail("names a stream wrongly");
  }
  RETURN_IF_ERROR(fields.Finish());
  return member;
}

ManifestProgram ParseProgram(const Json& json, JsonFields& out) {
  JsonFields fields(json, "program");
  ManifestProgram program;
  program.path = fields.String("path");
  program.build_id = fields.String("build_id", 256);
  program.size = fields.Number("size", kMaxBytes);
  program.mtime = static_cast<int64_t>(fields.Number("mtime", INT64_MAX));
  if (!IsAbsolute(program.path)) fields.Fail("has an unusable path");
  if (!fields.ok()) out.Fail(std::string(fields.Finish().message()));
  return program;
}

ManifestFile ParseFile(const Json& json, JsonFields& out) {
  JsonFields fields(json, "file");
  ManifestFile file;
  file.path = fields.String("path");
  file.size = fields.Number("size", kMaxBytes);
  file.writable = fields.Bool("writable");
  if (!IsAbsolute(file.path)) fields.Fail("has an unusable path");
  if (!fields.ok()) out.Fail(std::string(fields.Finish().message()));
  return file;
}

Json TcpJson(const TcpSocket& socket) {
  return {{"state", static_cast<int>(socket.state)},
          {"local", socket.local.Text()},
          {"remote", socket.remote.Text()}};
}

TcpSocket ParseTcp(const Json& json, JsonFields& out) {
  JsonFields fields(json, "TCP socket");
  TcpSocket socket;
  uint64_t state = fields.Number("state", static_cast<uint64_t>(TcpState::kClosing));
  if (state == 0) fields.Fail("has no state");
  socket.state = static_cast<TcpState>(state);
  Result<TcpAddress> local = ParseTcpAddress(fields.String("local", 128));
  Result<TcpAddress> remote = ParseTcpAddress(fields.String("remote", 128));
  if (local.ok() && remote.ok()) {
    socket.local = *local;
    socket.remote = *remote;
  } else {
    fields.Fail("has an unreadable address");
  }
  if (!fields.ok()) out.Fail(std::string(fields.Finish().message()));
  return socket;
}

}  // namespace

Json DeviceJson(const TaskDevice& device) {
  return {{"virtual", device.virtual_ordinal},
          {"physical", device.physical_ordinal},
          {"uuid", Hex(device.uuid)},
          {"name", device.name},
          {"memory", device.total_memory},
          {"capability", device.compute_capability},
          {"used", device.used}};
}

TaskDevice ParseDeviceJson(const Json& json, JsonFields& member) {
  JsonFields fields(json, "device");
  TaskDevice device;
  device.virtual_ordinal = static_cast<int32_t>(fields.Number("virtual", kMaxDevices - 1));
  device.physical_ordinal = static_cast<int32_t>(fields.Number("physical", 1023));
  if (!Unhex(fields.String("uuid", 32), &device.uuid)) fields.Fail("has an unreadable uuid");
  device.name = fields.String("name");
  device.total_memory = fields.Number("memory", kMaxBytes);
  device.compute_capability = static_cast<uint32_t>(fields.Number("capability", 100000));
  device.used = fields.Bool("used");
  if (!fields.ok()) member.Fail(std::string(fields.Finish().message()));
  return device;
}

std::vector<std::string> HexOf(const std::vector<std::string>& raw) {
  std::vector<std::string> texts;
  for (const std::string& bytes : raw) texts.push_back(Hex(bytes));
  return texts;
}

std::vector<std::string> UnhexAll(const std::vector<std::string>& texts) {
  std::vector<std::string> raw;
  for (const std::string& text : texts) {
    std::string bytes;
    raw.push_back(Unhex(text, &bytes) ? bytes : "");
  }
  return raw;
}

uint64_t Manifest::DeviceBytes() const {
  uint64_t bytes = 0;
  for (const ManifestMember& member : members) {
    for (const TaskExtent& e : member.extents) bytes += e.size;
  }
  return bytes;
}

uint64_t Manifest::ActiveBytes() const {
  uint64_t bytes = 0;
  for (const ManifestMember& member : members) {
    for (const TaskRange& range : member.ranges) bytes += range.size;
  }
  return bytes;
}

Json ManifestJson(const Manifest& manifest) {
  Json programs = Json::array(), files = Json::array(), members = Json::array();
  Json tcp = Json::array();
  for (const ManifestProgram& p : manifest.programs) {
    programs.push_back({{"path", p.path}, {"build_id", p.build_id}, {"size", p.size}, {"mtime", p.mtime}});
  }
  for (const ManifestFile& f : manifest.files) {
    files.push_back({{"path", f.path}, {"size", f.size}, {"writable", f.writable}});
  }
  for (const TcpSocket& socket : manifest.tcp) tcp.push_back(TcpJson(socket));
  for (const ManifestMember& member : manifest.members) members.push_back(MemberJson(member));
  return {{"task", manifest.task},
          {"created", manifest.created},
          {"kernel", manifest.kernel},
          {"machine", manifest.machine},
          {"criu", manifest.criu},
          {"cpu_features", manifest.cpu_features},
          {"init_nspid", manifest.init_nspid},
          {"program_nspid", manifest.program_nspid},
          {"log", manifest.log},
          {"log_copied", manifest.log_copied},
          {"run", manifest.run},
          {"programs", std::move(programs)},
          {"files", std::move(files)},
          {"tcp", std::move(tcp)},
          {"members", std::move(members)}};
}

Result<Manifest> ParseManifest(const Json& json) {
  JsonFields fields(json, "manifest");
  Manifest manifest;
  manifest.task = fields.Object("task");
  manifest.created = fields.Number("created");
  manifest.kernel = fields.String("kernel");
  manifest.machine = fields.String("machine");
  manifest.criu = fields.String("criu");
  manifest.cpu_features = fields.Strings("cpu_features", 1024, 64);
  manifest.init_nspid = static_cast<pid_t>(fields.Number("init_nspid", kMaxPid));
  manifest.program_nspid = static_cast<pid_t>(fields.Number("program_nspid", kMaxPid));
  manifest.log = fields.String("log");
  manifest.log_copied = fields.Bool("log_copied");
  if (!manifest.log.empty() && !IsAbsolute(manifest.log)) fields.Fail("has an unusable log path");
  manifest.run = fields.String("run");
  if (!IsAbsolute(manifest.run)) fields.Fail("has an unusable run folder");
  for (const Json* p : fields.Objects("programs", kMaxPrograms))
    manifest.programs.push_back(ParseProgram(*p, fields));
  for (const Json* f : fields.Objects("files", kMaxFiles)) manifest.files.push_back(ParseFile(*f, fields));
  // Images from before there were any have no such list.
  if (json.contains("tcp")) {
    for (const Json* s : fields.Objects("tcp", kMaxFiles)) manifest.tcp.push_back(ParseTcp(*s, fields));
  }
  std::vector<const Json*> members = fields.Objects("members", kMaxMembers);
  RETURN_IF_ERROR(fields.Finish());
  for (const Json* element : members) {
    ASSIGN_OR_RETURN(ManifestMember member, ParseMember(*element));
    manifest.members.push_back(std::move(member));
  }
  RETURN_IF_ERROR(ParseTaskConfig(manifest.task).status());
  return manifest;
}

std::vector<std::string> CpuFeatures() {
  std::vector<std::string> features;
  Result<std::string> text = ReadFile("/proc/cpuinfo", 64 << 20);
  if (!text.ok()) return features;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("flags") && !line.starts_with("Features")) continue;
    std::istringstream flags(line.substr(line.find(':') + 1));
    for (std::string flag; flags >> flag;) {
      if (IsCodeFeature(flag)) features.push_back(flag);
    }
    break;
  }
  std::sort(features.begin(), features.end());
  return features;
}

std::string KernelRelease() {
  utsname name{};
  return uname(&name) == 0 ? name.release : "";
}

std::string MachineName() {
  utsname name{};
  return uname(&name) == 0 ? name.machine : "";
}

Status CheckCpuFeatures(const std::vector<std::string>& needed, const std::vector<std::string>& here) {
  std::string missing;
  for (const std::string& feature : needed) {
    if (std::find(here.begin(), here.end(), feature) == here.end()) missing += " " + feature;
  }
  if (missing.empty()) return Status();
  return Status(StatusCode::kUnsupported,
                "this machine's CPU lacks what the task was started with:" + missing);
}

}  // namespace stasis
