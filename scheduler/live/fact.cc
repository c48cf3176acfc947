#include "scheduler/live/fact.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace stasis::scheduler {
namespace {

using Json = nlohmann::json;

// Every kind of fact names its fields once, for writing and for reading.
template <typename Codec, typename T>
void Fields(Codec& codec, T& fact);

class Writer {
 public:
  template <typename T>
  void operator()(const char* name, const T& value) {
    object_[name] = value;
  }
  void operator()(const char* name, const std::vector<PlacedDevices>& value) {
    Json list = Json::array();
    for (const PlacedDevices& share : value)
      list.push_back({{"node", share.node}, {"devices", share.devices}});
    object_[name] = std::move(list);
  }
  void operator()(const char* name, const ActionKind& value) { object_[name] = static_cast<int>(value); }
  Json Take() { return std::move(object_); }

 private:
  Json object_ = Json::object();
};

class Reader {
 public:
  explicit Reader(const Json& object) : object_(object) {}

  void operator()(const char* name, std::string& value) {
    if (const Json* field = Find(name, Json::value_t::string)) value = field->get<std::string>();
  }
  void operator()(const char* name, bool& value) {
    if (const Json* field = Find(name, Json::value_t::boolean)) value = field->get<bool>();
  }
  void operator()(const char* name, double& value) {
    const auto field = object_.find(name);
    if (field == object_.end() || !field->is_number()) return Miss(name);
    value = field->get<double>();
  }
  void operator()(const char* name, int& value) { Integer(name, value); }
  void operator()(const char* name, Time& value) { Integer(name, value); }
  void operator()(const char* name, uint64_t& value) {
    const auto field = object_.find(name);
    if (field == object_.end() || !field->is_number_unsigned()) return Miss(name);
    value = field->get<uint64_t>();
  }
  void operator()(const char* name, std::vector<std::string>& value) {
    const Json* field = Find(name, Json::value_t::array);
    if (field == nullptr) return;
    for (const Json& text : *field) {
      if (!text.is_string()) return Miss(name);
      value.push_back(text.get<std::string>());
    }
  }
  void operator()(const char* name, std::vector<PlacedDevices>& value) {
    const Json* field = Find(name, Json::value_t::array);
    if (field == nullptr) return;
    for (const Json& each : *field) {
      if (!each.is_object()) return Miss(name);
      Reader share(each);
      PlacedDevices placed;
      share("node", placed.node);
      share("devices", placed.devices);
      if (!share.status().ok()) return Miss(name);
      value.push_back(std::move(placed));
    }
  }
  void operator()(const char* name, ActionKind& value) {
    int number = -1;
    Integer(name, number);
    if (number < 0 || number > static_cast<int>(ActionKind::kResize)) return Miss(name);
    value = static_cast<ActionKind>(number);
  }
  const Status& status() const { return status_; }

 private:
  template <typename T>
  void Integer(const char* name, T& value) {
    const auto field = object_.find(name);
    if (field == object_.end() || !field->is_number_integer()) return Miss(name);
    const int64_t number = field->get<int64_t>();
    if (!std::in_range<T>(number)) return Miss(name);
    value = static_cast<T>(number);
  }
  const Json* Find(const char* name, Json::value_t type) {
    const auto field = object_.find(name);
    if (field != object_.end() && field->type() == type) return &*field;
    Miss(name);
    return nullptr;
  }
  void Miss(const char* name) {
    if (status_.ok())
      status_ = Errorf(StatusCode::kCorrupt, "field '%s' of a fact is missing or wrong", name);
  }

  const Json& object_;
  Status status_;
};

template <typename Codec, typename T>
void Fields(Codec& codec, T& fact) {
  using Plain = std::remove_const_t<T>;
  if constexpr (std::is_same_v<Plain, TenantSet>) {
    codec("name", fact.name);
    codec("weight", fact.weight);
  } else if constexpr (std::is_same_v<Plain, NodeJoined>) {
    codec("name", fact.name);
    codec("address", fact.address);
    codec("devices", fact.devices);
    codec("agent_id", fact.agent_id);
    codec("kind", fact.kind);
  } else if constexpr (std::is_same_v<Plain, NodeChanged>) {
    codec("name", fact.name);
    codec("reachable", fact.reachable);
    codec("draining", fact.draining);
    codec("reason", fact.reason);
  } else if constexpr (std::is_same_v<Plain, JobSubmitted>) {
    Fields(codec, fact.request);
    codec("key", fact.key);
  } else if constexpr (std::is_same_v<Plain, JobRequest>) {
    codec("name", fact.name);
    codec("tenant", fact.tenant);
    codec("argv", fact.argv);
    codec("environment", fact.environment);
    codec("folder", fact.folder);
    codec("device", fact.device);
    codec("gpus", fact.gpus);
    codec("ranks", fact.ranks);
    codec("priority", fact.priority);
    codec("weight", fact.weight);
    codec("estimate", fact.estimate);
    codec("min_gpus", fact.min_gpus);
    codec("max_gpus", fact.max_gpus);
    codec("checkpoint_interval", fact.checkpoint_interval);
    codec("max_restarts", fact.max_restarts);
  } else if constexpr (std::is_same_v<Plain, Decided>) {
    codec("kind", fact.kind);
    codec("job", fact.job);
    codec("to", fact.to);
    codec("with", fact.with);
  } else if constexpr (std::is_same_v<Plain, OrderEnded>) {
    codec("order", fact.order);
    codec("ok", fact.ok);
    codec("message", fact.message);
    codec("image", fact.image);
  } else if constexpr (std::is_same_v<Plain, JobEnded>) {
    codec("job", fact.job);
    codec("ok", fact.ok);
    codec("exit_code", fact.exit_code);
    codec("message", fact.message);
  } else if constexpr (std::is_same_v<Plain, JobLost>) {
    codec("job", fact.job);
    codec("image_node", fact.image_node);
    codec("message", fact.message);
    codec("program_failed", fact.program_failed);
    codec("planned", fact.planned);
  } else if constexpr (std::is_same_v<Plain, JobCancelled>) {
    codec("job", fact.job);
  } else if constexpr (std::is_same_v<Plain, MaintenanceSet>) {
    codec("name", fact.name);
    codec("start", fact.start);
    codec("end", fact.end);
  } else {
    static_assert(std::is_same_v<Plain, ImageKept>);
    codec("job", fact.job);
    codec("node", fact.node);
  }
}

constexpr const char* kNames[] = {"tenant",    "node",     "node-changed", "submitted",   "decided", "order",
                                  "job-ended", "job-lost", "cancelled",    "maintenance", "image"};
static_assert(std::size(kNames) == std::variant_size_v<Fact>);

template <size_t kIndex = 0>
Result<Fact> Parse(std::string_view name, const Json& object) {
  if constexpr (kIndex == std::variant_size_v<Fact>) {
    return Status(StatusCode::kCorrupt, "a fact of a kind that is not known");
  } else {
    if (name != kNames[kIndex]) return Parse<kIndex + 1>(name, object);
    std::variant_alternative_t<kIndex, Fact> fact;
    Reader reader(object);
    Fields(reader, fact);
    if (!reader.status().ok()) return reader.status();
    return Fact(std::move(fact));
  }
}

}  // namespace

std::string FactText(const Fact& fact) {
  Writer writer;
  std::visit([&writer](const auto& each) { Fields(writer, each); }, fact);
  Json object = writer.Take();
  object["fact"] = kNames[fact.index()];
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<Fact> ParseFact(std::string_view text) {
  const Json object = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return Status(StatusCode::kCorrupt, "a fact is a JSON object");
  const auto name = object.find("fact");
  if (name == object.end() || !name->is_string())
    return Status(StatusCode::kCorrupt, "a fact without a kind");
  return Parse(name->get<std::string>(), object);
}

}  // namespace stasis::scheduler
