#include "ghost/task_files.h"

#include "base/files.h"
#include "ghost/proc.h"

namespace stasis {
namespace {

constexpr size_t kMaxTaskFile = 16 << 20;
constexpr uint64_t kMaxPid = 1 << 22;

Result<Json> ReadJson(const std::string& path) {
  ASSIGN_OR_RETURN(std::string text, ReadFile(path, kMaxTaskFile));
  Result<Json> json = ParseJsonObject(text);
  if (!json.ok()) return std::move(json).status().WithContext(path);
  return json;
}

Status CheckVersion(JsonFields& fields) {
  uint64_t version = fields.Number("version");
  if (fields.ok() && version != 1)
    return Status(StatusCode::kUnsupported, "written by another version of stasis");
  return Status();
}

}  // namespace

TaskPaths PathsOf(const std::string& state_dir, const std::string& run_dir, const std::string& name) {
  return {name, state_dir + "/tasks/" + name, run_dir + "/tasks/" + name, state_dir + "/store",
          state_dir + "/images/" + name};
}

Result<Json> ReadTaskJson(const TaskPaths& paths) { return ReadJson(paths.state + "/task.json"); }

Result<TaskProcess> ReadTaskProcess(const TaskPaths& paths) {
  ASSIGN_OR_RETURN(Json json, ReadJson(paths.state + "/process.json"));
  JsonFields fields(json, "process.json");
  RETURN_IF_ERROR(CheckVersion(fields));
  TaskProcess process;
  process.init_pid = static_cast<pid_t>(fields.Number("init_pid", kMaxPid));
  process.init_start_time = fields.Number("init_start_time");
  process.pid = static_cast<pid_t>(fields.NumberOr("pid", 0, kMaxPid));
  process.nspid = static_cast<pid_t>(fields.NumberOr("nspid", 0, kMaxPid));
  process.boot_id = fields.String("boot_id", 64);
  RETURN_IF_ERROR(fields.Finish());
  if (process.init_pid <= 1) return Status(StatusCode::kCorrupt, "process.json names no process");
  return process;
}

Status WriteTaskProcess(const TaskPaths& paths, const TaskProcess& process) {
  Json json = {
      {"version", 1},       {"init_pid", process.init_pid}, {"init_start_time", process.init_start_time},
      {"pid", process.pid}, {"nspid", process.nspid},       {"boot_id", process.boot_id}};
  return WriteFileAtomically(paths.state + "/process.json", JsonText(json, 1) + "\n");
}

bool IsAlive(const TaskProcess& process) {
  const std::string boot = BootId();
  if (!boot.empty() && process.boot_id != boot) return false;
  Result<ProcStat> stat = ReadProcStat(process.init_pid);
  if (!stat.ok()) return stat.status().code() != StatusCode::kNotFound;
  return stat->start_time == process.init_start_time && stat->state != 'Z' && stat->state != 'X';
}

TaskRecord ReadTaskRecord(const TaskPaths& paths) {
  TaskRecord record;
  Result<Json> json = ReadJson(paths.state + "/status.json");
  if (!json.ok()) return record;
  JsonFields fields(*json, "status.json");
  record.state = fields.String("state", 64);
  record.residency = fields.StringOr("residency", "", 64);
  record.since = fields.NumberOr("since", 0);
  record.device_bytes = fields.NumberOr("device_bytes", 0);
  record.last_image = fields.StringOr("last_image", "", 255);
  record.ended_by = fields.StringOr("ended_by", "", 255);
  record.ghost_pid = static_cast<pid_t>(fields.NumberOr("ghost_pid", 0, kMaxPid));
  record.error = fields.StringOr("error", "", 1 << 16);
  record.gpus = fields.Ordinals("gpus", true);
  record.last_operation = fields.StringOr("last_operation", "", 255);
  if (!record.last_operation.empty()) record.last_result = fields.Object("last_result");
  return fields.ok() ? record : TaskRecord();
}

Json RecordJson(const TaskRecord& record) {
  Json json = {{"version", 1},
               {"state", record.state},
               {"residency", record.residency},
               {"since", record.since},
               {"device_bytes", record.device_bytes},
               {"last_image", record.last_image},
               {"ended_by", record.ended_by},
               {"ghost_pid", record.ghost_pid},
               {"error", record.error},
               {"gpus", record.gpus}};
  if (record.last_operation.empty()) return json;
  json["last_operation"] = record.last_operation;
  json["last_result"] = record.last_result;
  return json;
}

Status WriteTaskRecord(const TaskPaths& paths, const TaskRecord& record) {
  return WriteFileAtomically(paths.state + "/status.json", JsonText(RecordJson(record), 1) + "\n");
}

}  // namespace stasis
