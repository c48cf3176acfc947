// Holdings on their way to another process.
#include "ghost/holdings.h"
#include "ghost/manifest.h"

namespace stasis {
namespace {

Json PlacementsJson(const Placements& placements) {
  Json list = Json::array();
  for (auto [ordinal, physical] : placements) list.push_back({ordinal, physical});
  return list;
}

Placements PlacementsOf(const Json& list) {
  Placements placements;
  for (const Json& pair : list) placements[pair.at(0).get<int32_t>()] = pair.at(1).get<int32_t>();
  return placements;
}

Json MemberJson(const HeldMember& member) {
  Json extents = Json::array(), ranges = Json::array(), devices = Json::array();
  for (const HeldExtent& e : member.extents) {
    extents.push_back({e.extent.id, e.extent.device, e.extent.address, e.extent.size, e.physical,
                       e.fd.valid(), e.extent.traits, e.extent.share, e.borrowed});
  }
  for (const TaskRange& range : member.ranges) ranges.push_back({range.address, range.size});
  for (const TaskDevice& device : member.devices) devices.push_back(DeviceJson(device));
  return {{"nspid", member.nspid},
          {"pid", member.pid},
          {"strategy", static_cast<int>(member.strategy)},
          {"driver_version", member.driver_version},
          {"devices", std::move(devices)},
          {"placed", PlacementsJson(member.placed)},
          {"placements", PlacementsJson(member.placements)},
          {"placed_uuids", HexOf(member.placed_uuids)},
          {"extents", std::move(extents)},
          {"ranges", std::move(ranges)}};
}

// The descriptors of another process, in the order of Descriptors().
class Taken {
 public:
  explicit Taken(std::vector<Fd> fds) : fds_(std::move(fds)) {}
  Fd Next() { return next_ < fds_.size() ? std::move(fds_[next_++]) : (lacking_ = true, Fd()); }
  bool lacking() const { return lacking_; }

 private:
  std::vector<Fd> fds_;
  size_t next_ = 0;
  bool lacking_ = false;
};

Result<HeldMember> AdoptMember(const Json& json, Taken& taken) {
  JsonFields in(json, "member");
  HeldMember member;
  member.nspid = static_cast<pid_t>(in.Number("nspid", 1 << 22));
  member.pid = static_cast<pid_t>(in.Number("pid", 1 << 22));
  member.strategy = static_cast<TaskStrategy>(in.Number("strategy", 1));
  member.driver_version = static_cast<int32_t>(in.Number("driver_version", INT32_MAX));
  for (const Json* device : in.Objects("devices", 64)) member.devices.push_back(ParseDeviceJson(*device, in));
  member.placed_uuids = UnhexAll(in.Strings("placed_uuids", 64, 32));
  RETURN_IF_ERROR(in.Finish());
  member.placed = PlacementsOf(json["placed"]);
  member.placements = PlacementsOf(json["placements"]);
  for (const Json& row : json["extents"]) {
    HeldExtent e;
    e.extent = {row.at(0).get<uint64_t>(), row.at(1).get<int32_t>(),  row.at(2).get<uint64_t>(),
                row.at(3).get<uint64_t>(), row.at(6).get<uint32_t>(), row.at(7).get<uint64_t>()};
    e.physical = row.at(4).get<int>();
    if (row.at(5).get<bool>()) e.fd = taken.Next();
    e.borrowed = row.at(8).get<bool>();
    member.extents.push_back(std::move(e));
  }
  for (const Json& row : json["ranges"])
    member.ranges.push_back({row.at(0).get<uint64_t>(), row.at(1).get<uint64_t>()});
  return member;
}

}  // namespace

Json Holdings::Describe() const {
  Json list = Json::array();
  for (const HeldMember& member : members) list.push_back(MemberJson(member));
  return {{"members", std::move(list)}, {"arena", arena_.valid()}, {"disk", on_disk()}, {"key", key_}};
}

std::vector<Fd> Holdings::Descriptors() const {
  std::vector<Fd> fds;
  for (const HeldMember& member : members) {
    for (const HeldExtent& e : member.extents) {
      if (e.fd.valid()) fds.push_back(e.fd.Duplicate());
    }
  }
  if (arena_.valid()) fds.push_back(arena_.Duplicate());
  return fds;
}

Result<Holdings> Holdings::Adopt(const Json& description, std::vector<Fd> fds, const std::string& task) {
  Holdings holdings;
  Taken taken(std::move(fds));
  JsonFields fields(description, "holdings");
  for (const Json* element : fields.Objects("members", 4096)) {
    ASSIGN_OR_RETURN(HeldMember member, AdoptMember(*element, taken));
    holdings.members.push_back(std::move(member));
  }
  if (fields.Bool("arena")) holdings.arena_ = taken.Next();
  holdings.disk_ = fields.Bool("disk");
  holdings.key_ = fields.String("key");
  holdings.task_ = task;
  if (taken.lacking()) fields.Fail("lack descriptors");
  RETURN_IF_ERROR(fields.Finish());
  return holdings;
}

}  // namespace stasis
