#include "cli/doctor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/fd.h"
#include "coordinator/node/device_choice.h"
#include "coordinator/node/program.h"
#include "coordinator/node/subprocess.h"

namespace stasis {
namespace {

constexpr uint64_t kLittleDisk = 1ull << 30;

Finding CheckFile(const char* name, const std::string& path, int mode, Needed needed) {
  Status there = RequireFile(path, mode, name);
  return {name, needed, there.ok(), path,
          there.ok() ? "" : "build or install Stasis completely: scripts/build.sh"};
}

// Writing is tried, as it alone tells about read-only mounts and quotas; the file has no name.
Finding CheckFolder(const char* name, const std::string& path, const char* variable) {
  Finding finding{name, Needed::kRun, false, path,
                  fmt::format("make it writable for you, or set {} to a folder that is", variable)};
  Status made = MakeFolders(path);
  if (!made.ok()) {
    finding.detail = std::string(made.message());
    return finding;
  }
  Fd file(open(path.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600));
  finding.ok = file.valid() ? pwrite(file.get(), "x", 1, 0) == 1 : access(path.c_str(), W_OK) == 0;
  if (!finding.ok) finding.detail += fmt::format(": {}", std::strerror(errno));
  return finding;
}

Finding CheckDisk(const std::string& path) {
  Finding finding{"disk", Needed::kCheckpoint, false, "",
                  "images need room: free some, or set STASIS_STATE_DIR"};
  struct statvfs info {};
  if (statvfs(path.c_str(), &info) != 0) {
    finding.detail = fmt::format("{}: {}", path, std::strerror(errno));
    return finding;
  }
  uint64_t free = static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
  finding.ok = free >= kLittleDisk;
  finding.detail = fmt::format("{} free at {}", SizeText(free), path);
  return finding;
}

// `version`: set to the driver's, if there is one.
Finding CheckDriver(const char* name, const char* kind, const Context& context, const char* remedy,
                    int* version = nullptr) {
  std::vector<std::string> environment =
      ChangeEnvironment({"SOFTGPU_IDLE_EXIT=10"}, OwnEnvironment());  // only looked at: need not stay
  Result<DeviceChoice> choice = ChooseDevice(kind, context.files, environment);
  Finding finding{name, Needed::kNothing, choice.ok(), "", remedy};
  finding.detail = choice.ok()
                       ? fmt::format("{} (CUDA {}), {}", choice->driver.path,
                                     DriverVersionText(choice->driver.version), DevicesText(choice->driver))
                       : std::string(choice.status().message());
  if (choice.ok() && version != nullptr) *version = choice->driver.version;
  return finding;
}

// One driver is enough; which one is said by the two before.
Finding CheckAnyDriver(const Finding& nvidia, const Finding& soft) {
  bool ok = nvidia.ok || soft.ok;
  return {"device", Needed::kRun, ok,
          nvidia.ok ? "`stasis run` uses NVIDIA's driver"
                    : (soft.ok ? "`stasis run` uses the software device" : "no driver with a device"),
          "install NVIDIA's driver, or build softgpu"};
}

Finding CheckToolkit() {
  const std::vector<std::string> environment = OwnEnvironment();
  const std::string cache =
      EnvironmentValue(environment, "HOME") + "/.cache/stasis";  // as scripts/setup.sh has it
  std::string path =
      EnvironmentValue(environment, "PATH") + ":/usr/local/cuda/bin:" + cache + "/cuda-13.0/bin";
  Result<std::string> nvcc = FindProgram("nvcc", path);
  return {"toolkit", Needed::kNothing, nvcc.ok(), nvcc.ok() ? *nvcc : "no nvcc",
          "only needed to build CUDA programs: scripts/setup.sh installs it"};
}

Json ToJson(const Finding& finding) {
  Json entry = {{"name", finding.name},
                {"ok", finding.ok},
                {"detail", finding.detail},
                {"needed_for", NeededName(finding.needed)}};
  if (!finding.ok) entry["remedy"] = finding.remedy;
  return entry;
}

std::string LineOf(const Finding& finding) {
  std::string line =
      fmt::format("{:<8} {:<18} {}\n", finding.ok ? "ok" : "missing", finding.name, finding.detail);
  if (!finding.ok) line += fmt::format("{:<27} -> {}\n", "", finding.remedy);
  return line;
}

std::string Verdict(const std::vector<Finding>& findings, Needed what) {
  std::string reasons;
  for (const Finding& finding : findings) {
    if (!finding.ok && finding.needed <= what) reasons += (reasons.empty() ? "" : ", ") + finding.name;
  }
  return reasons.empty() ? "works" : "does not work: " + reasons;
}

}  // namespace

const char* NeededName(Needed needed) {
  switch (needed) {
    case Needed::kRun:
      return "run";
    case Needed::kPause:
      return "pause";
    case Needed::kCheckpoint:
      return "checkpoint";
    case Needed::kNothing:
      return "";
  }
  return "";
}

bool Works(const std::vector<Finding>& findings, Needed what) {
  for (const Finding& finding : findings) {
    if (!finding.ok && finding.needed <= what) return false;
  }
  return true;
}

Finding CheckDriverVersion(int version) {
  constexpr int kCarries = 12080, kMoves = 13000;
  const std::string cuda = "CUDA " + DriverVersionText(version);
  // Programs on the driver API alone, and those on the software device, are paused without it.
  Finding finding{"driver's version", Needed::kNothing, version >= kCarries, "",
                  "install NVIDIA's driver 570 or newer; 580 or newer also moves tasks to other devices"};
  if (!finding.ok) {
    finding.detail =
        cuda +
        ": no checkpoint of its own, and programs that use NVIDIA's runtime are not paused without "
        "that; those on the driver alone are, by reconstruct";
  } else if (version < kMoves) {
    finding.detail =
        cuda + ": brings programs back on the devices that they were on, and moves none to others";
  } else {
    finding.detail = cuda + ": carries programs, and moves them between devices of one kind";
  }
  return finding;
}

std::vector<Finding> ExamineInstallation(const Context& context) {
  int version = 0;
  Finding nvidia = CheckDriver(
      "NVIDIA driver", "nvidia", context,
      "only needed for GPUs: install NVIDIA's driver 570 or newer, and see that nvidia-smi works", &version);
  Finding soft = CheckDriver("software device", "soft", context,
                             "only needed without a GPU: scripts/build.sh builds it");
  std::vector<Finding> findings = {CheckFile("interposer", context.files.preload, R_OK, Needed::kRun),
                                   CheckFile("stasis-init", context.files.init, X_OK, Needed::kRun),
                                   CheckFile("stasis-ghost", context.files.ghost, X_OK, Needed::kPause),
                                   CheckFolder("state folder", context.folders.state, "STASIS_STATE_DIR"),
                                   CheckFolder("run folder", context.folders.run, "STASIS_RUN_DIR"),
                                   CheckDisk(context.folders.state),
                                   nvidia,
                                   soft,
                                   CheckAnyDriver(nvidia, soft),
                                   CheckToolkit()};
  if (nvidia.ok) findings.push_back(CheckDriverVersion(version));
  return findings;
}

int DoctorVerb(const Options&, Context& context) {
  std::vector<Finding> findings = ExamineSystem();
  for (Finding& finding : ExamineInstallation(context)) findings.push_back(std::move(finding));
  Json entries = Json::array();
  std::string text;
  for (const Finding& finding : findings) {
    entries.push_back(ToJson(finding));
    text += LineOf(finding);
  }
  Json works;
  text += "\n";
  for (Needed what : {Needed::kRun, Needed::kPause, Needed::kCheckpoint}) {
    const char* name = what == Needed::kPause ? "pause, resume" : NeededName(what);
    if (what == Needed::kCheckpoint) name = "checkpoint, restore";
    text += fmt::format("{:<20} {}\n", name, Verdict(findings, what));
    works[NeededName(what)] = Works(findings, what);
  }
  int exit_code = Works(findings, Needed::kRun) ? kExitOk : kExitFailed;
  return context.reporter.DoneWith(exit_code, {{"findings", entries}, {"works", works}}, text);
}

}  // namespace stasis
