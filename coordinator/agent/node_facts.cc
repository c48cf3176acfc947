#include "coordinator/agent/node_facts.h"

#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "base/environment.h"
#include "base/process.h"
#include "coordinator/node/criu_program.h"
#include "coordinator/node/device_memory.h"

#ifndef STASIS_VERSION
#error "the build tells the version"
#endif

namespace stasis {
namespace {

constexpr uint32_t kApi = 1;
// Opening a driver takes up to seconds, and what devices a machine has changes rarely.
constexpr auto kProbeLife = std::chrono::minutes(5);

int64_t RealtimeUs() {
  auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

std::string CriuHere() {
  std::string criu = FindCriu();
  if (criu.empty()) return "";
  Result<SubprocessResult> ran = RunCriu(criu, {"--version"});
  int version = ran.ok() && ran->exit_code == 0 && ran->signal == 0 ? ParseCriuVersion(ran->output) : 0;
  return version == 0 ? "" : std::to_string(version / 100) + "." + std::to_string(version % 100);
}

bool HoldsDevice(const v1::Rank& rank) {
  switch (rank.condition()) {
    case v1::CONDITION_RUNNING:
    case v1::CONDITION_CHECKPOINTING:
    case v1::CONDITION_RESTORING:
    case v1::CONDITION_IN_DOUBT:
    case v1::CONDITION_STRANDED:
      return true;
    case v1::CONDITION_PAUSED:
      return rank.residency() == "device" || rank.residency().empty();
    default:
      return false;
  }
}

bool IsOn(const v1::Job& job, const std::string& kind, uint32_t ordinal) {
  return std::any_of(job.ranks().begin(), job.ranks().end(), [&](const v1::Rank& rank) {
    const std::string& device = rank.device().empty() ? job.device() : rank.device();
    bool has = rank.gpus().empty() ||
               std::find(rank.gpus().begin(), rank.gpus().end(), ordinal) != rank.gpus().end();
    return device == kind && has && HoldsDevice(rank);
  });
}

}  // namespace

NodeFacts::NodeFacts(Site site, std::string name, std::string peer_address, std::string agent_id)
    : site_(std::move(site)) {
  struct utsname kernel {};
  struct sysinfo memory {};
  uname(&kernel);
  sysinfo(&memory);
  info_.set_name(std::move(name));
  info_.set_version(STASIS_VERSION);
  info_.set_api(kApi);
  Result<std::string> boot = ThisBootId();
  if (boot.ok()) info_.set_boot_id(*boot);
  info_.set_agent_id(std::move(agent_id));
  info_.set_started_ms(RealtimeUs() / 1000);
  info_.set_kernel(kernel.release);
  info_.set_criu(CriuHere());
  info_.set_cpus(static_cast<uint32_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN))));
  info_.set_memory_bytes(static_cast<uint64_t>(memory.totalram) * memory.mem_unit);
  info_.set_peer_address(std::move(peer_address));
}

v1::NodeInfo NodeFacts::Info() const {
  v1::NodeInfo info = info_;
  info.set_draining(draining_);
  info.set_now_us(static_cast<uint64_t>(RealtimeUs()));
  return info;
}

Result<DeviceChoice> NodeFacts::Choose(const std::string& kind) {
  MonotonicTime now = Clock::Real().Now();
  {
    std::lock_guard lock(mutex_);
    auto found = probes_.find(kind);
    if (found != probes_.end() && now - found->second.at < kProbeLife) return found->second.choice;
  }
  ASSIGN_OR_RETURN(DeviceChoice choice, ChooseDevice(kind, site_.files, OwnEnvironment()));
  std::lock_guard lock(mutex_);
  probes_[kind] = {choice, now};
  return choice;
}

Result<v1::DevicesResponse> NodeFacts::Devices(const std::string& kind, const std::vector<JobPicture>& jobs) {
  ASSIGN_OR_RETURN(DeviceChoice choice, Choose(kind.empty() ? "auto" : kind));
  FreeMemory free = ReadFreeMemory(choice.kind, site_.files);
  v1::DevicesResponse response;
  response.set_kind(choice.kind);
  response.set_driver(choice.driver.path);
  response.set_driver_version(DriverVersionText(choice.driver.version));
  uint32_t ordinal = 0;
  for (const DriverDevice& device : choice.driver.devices) {
    v1::Device* entry = response.add_devices();
    entry->set_ordinal(ordinal++);
    entry->set_name(device.name);
    entry->set_uuid(device.uuid);
    entry->set_memory_bytes(device.memory);
    auto found = free.find(device.uuid);
    if (found != free.end()) entry->set_free_bytes(found->second);
  }
  PlaceJobs(jobs, &response);
  return response;
}

void PlaceJobs(const std::vector<JobPicture>& jobs, v1::DevicesResponse* devices) {
  for (v1::Device& device : *devices->mutable_devices()) {
    for (const JobPicture& job : jobs) {
      if (IsOn(*job, devices->kind(), device.ordinal())) device.add_jobs(job->name());
    }
  }
}

}  // namespace stasis
