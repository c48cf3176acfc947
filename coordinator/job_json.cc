#include "coordinator/job_json.h"

#include <algorithm>
#include <set>

#include "base/files.h"
#include "dedup/image_manifest.h"
#include "dedup/json.h"

namespace stasis {
namespace {

constexpr uint64_t kVersion = 1;
constexpr size_t kMaxArguments = 65536, kMaxArgument = 128 << 10;
constexpr size_t kMaxPrefix = 64;

Json NodesJson(const std::vector<JobNode>& nodes) {
  Json list = Json::array();
  for (const JobNode& node : nodes) {
    list.push_back({{"name", node.name},
                    {"address", node.address},
                    {"through", node.through},
                    {"ranks", node.ranks},
                    {"gpus", node.gpus}});
  }
  return list;
}

JobNode NodeFrom(JsonFields& fields) {
  JobNode node;
  node.name = fields.String("name", 255);
  node.address = fields.StringOr("address", node.address, 255);
  node.ranks = static_cast<int>(fields.Number("ranks", kMaxRanks));
  node.gpus = fields.Ordinals("gpus", true);
  return node;
}

Result<std::vector<JobNode>> NodesFrom(const std::vector<const Json*>& objects) {
  std::vector<JobNode> nodes;
  for (const Json* object : objects) {
    JsonFields fields(*object, "node " + std::to_string(nodes.size()));
    nodes.push_back(NodeFrom(fields));
    if (object->contains("through")) nodes.back().through = fields.Strings("through", kMaxPrefix);
    RETURN_IF_ERROR(fields.FinishStrictly());
  }
  RETURN_IF_ERROR(CheckNodes(nodes));
  return nodes;
}

Status Corrupt(const Status& status) { return Status(StatusCode::kCorrupt, std::string(status.message())); }

Status CheckVersion(JsonFields& fields, const char* what) {
  uint64_t version = fields.Number("version");
  if (!fields.ok() || version == kVersion) return Status();
  return Errorf(StatusCode::kUnsupported, "%s has version %llu, this program reads version %llu", what,
                static_cast<unsigned long long>(version), static_cast<unsigned long long>(kVersion));
}

}  // namespace

Status CheckNodes(const std::vector<JobNode>& nodes) {
  auto bad = [](const JobNode& node, const char* why) {
    return Status(StatusCode::kInvalidArgument, "node '" + node.name + "' " + why);
  };
  std::set<std::string> names;
  int ranks = 0;
  for (const JobNode& node : nodes) {
    if (!IsPlainName(node.name)) return bad(node, "has no plain name");
    if (!names.insert(node.name).second) return bad(node, "is named twice");
    if (node.ranks <= 0 || node.ranks > kMaxRanks - ranks) return bad(node, "has no or too many ranks");
    if (node.address.empty()) return bad(node, "has an empty address");
    if (!node.through.empty() && node.through[0].empty())
      return bad(node, "is reached through an empty command");
    if (!node.gpus.empty() && node.gpus.size() < static_cast<size_t>(node.ranks)) {
      return bad(node, "does not have a device in 'gpus' for each of its ranks");
    }
    ranks += node.ranks;
  }
  return nodes.empty() ? Status(StatusCode::kInvalidArgument, "there is no node") : Status();
}

std::string JobRecordText(const JobRecord& record) {
  return JsonText({{"version", kVersion},
                   {"name", record.name},
                   {"argv", record.argv},
                   {"created", record.created},
                   {"master_port", record.master_port},
                   {"nodes", NodesJson(record.nodes)}},
                  2) +
         "\n";
}

std::string JobImageText(const JobImage& image) {
  return JsonText(
             {{"version", kVersion}, {"id", image.id}, {"created", image.created}, {"images", image.images}},
             2) +
         "\n";
}

Result<JobRecord> ParseJobRecord(std::string_view text) {
  ASSIGN_OR_RETURN(Json json, ParseJsonObject(text));
  JsonFields fields(json, "the job");
  RETURN_IF_ERROR(CheckVersion(fields, "the job"));
  JobRecord record;
  record.name = fields.String("name", 255);
  record.argv = fields.Strings("argv", kMaxArguments, kMaxArgument);
  record.created = fields.Number("created");
  record.master_port = static_cast<int>(fields.Number("master_port", 65535));
  std::vector<const Json*> objects = fields.Objects("nodes", kMaxRanks);
  RETURN_IF_ERROR(fields.Finish());
  if (!IsPlainName(record.name)) return Status(StatusCode::kCorrupt, "the job's name is none");
  Result<std::vector<JobNode>> nodes = NodesFrom(objects);
  if (!nodes.ok()) return Corrupt(nodes.status());
  record.nodes = *std::move(nodes);
  return record;
}

Result<JobImage> ParseJobImage(std::string_view text) {
  ASSIGN_OR_RETURN(Json json, ParseJsonObject(text));
  JsonFields fields(json, "the job's image");
  RETURN_IF_ERROR(CheckVersion(fields, "the job's image"));
  JobImage image;
  image.id = fields.String("id", 16);
  image.created = fields.Number("created");
  image.images = fields.Strings("images", kMaxRanks, 16);
  RETURN_IF_ERROR(fields.Finish());
  bool good = IsImageId(image.id) && std::all_of(image.images.begin(), image.images.end(), IsImageId);
  if (!good) return Status(StatusCode::kCorrupt, "the job's image holds an id that is not six digits");
  return image;
}

Result<std::vector<JobNode>> ParseNodes(std::string_view text) {
  auto invalid = [](const Status& status) {
    return Status(StatusCode::kInvalidArgument, std::string(status.message()));
  };
  Result<Json> list = ParseJsonList(text);
  if (!list.ok()) return invalid(list.status());
  Json wrapped = {{"nodes", *std::move(list)}};
  JsonFields fields(wrapped, "the list of nodes");
  std::vector<const Json*> objects = fields.Objects("nodes", kMaxRanks);
  if (!fields.ok()) return invalid(fields.Finish());
  Result<std::vector<JobNode>> nodes = NodesFrom(objects);
  if (!nodes.ok()) return invalid(nodes.status());
  return nodes;
}

}  // namespace stasis
