#include "ghost/task_config.h"

#include "base/files.h"

namespace stasis {
namespace {

std::optional<JobRank> ReadRank(JsonFields& fields) {
  JobRank rank;
  rank.job = fields.StringOr("job", "", 255);
  if (rank.job.empty()) return std::nullopt;
  rank.rank = static_cast<int>(fields.Number("rank", kMaxJobRanks));
  rank.ranks = static_cast<int>(fields.Number("ranks", kMaxJobRanks));
  if (!IsPlainName(rank.job) || rank.rank >= rank.ranks) fields.Fail("names no usable job");
  return rank;
}

}  // namespace

Result<TaskConfig> ParseTaskConfig(const Json& json) {
  JsonFields fields(json, "task.json");
  if (fields.Number("version") != 1 && fields.ok())
    return Status(StatusCode::kUnsupported, "task.json: written by another version of stasis");
  TaskConfig config;
  config.name = fields.String("name", 255);
  config.argv = fields.Strings("argv", 1 << 16, 2 << 20);
  config.cwd = fields.String("cwd");
  config.created = fields.Number("created");
  config.uid = static_cast<uid_t>(fields.Number("uid", UINT32_MAX));
  config.device = fields.String("device", 64);
  config.driver = fields.String("driver");
  config.strategy = fields.StringOr("strategy", "auto", 64);
  config.gpus = fields.Ordinals("gpus", true);
  config.pid_namespace = fields.BoolOr("pid_namespace", false);
  config.log = fields.StringOr("log", "");
  config.rank = ReadRank(fields);
  RETURN_IF_ERROR(fields.Finish());
  if (!IsPlainName(config.name)) return Status(StatusCode::kCorrupt, "task.json has no usable name");
  return config;
}

}  // namespace stasis
