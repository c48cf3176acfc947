#include "scheduler/live/fact.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "scheduler/live/fields.h"

namespace stasis::scheduler {

template <typename Codec>
void Fields(Codec& codec, PlacedDevices& share) {
  codec("node", share.node);
  codec("devices", share.devices);
}

template <typename Codec>
void Fields(Codec& codec, TenantSet& fact) {
  codec("name", fact.name);
  codec("weight", fact.weight);
}

template <typename Codec>
void Fields(Codec& codec, NodeJoined& fact) {
  codec("name", fact.name);
  codec("address", fact.address);
  codec("devices", fact.devices);
  codec("agent_id", fact.agent_id);
  codec("kind", fact.kind);
  codec.Optional("device_bytes", fact.device_bytes);
}

template <typename Codec>
void Fields(Codec& codec, NodeChanged& fact) {
  codec("name", fact.name);
  codec("reachable", fact.reachable);
  codec("draining", fact.draining);
  codec("reason", fact.reason);
  codec.Optional("deadline", fact.deadline);
}

template <typename Codec>
void Fields(Codec& codec, JobSubmitted& fact) {
  Fields(codec, fact.request);
  codec("key", fact.key);
}

template <typename Codec>
void Fields(Codec& codec, Decided& fact) {
  codec("kind", fact.kind);
  codec("job", fact.job);
  codec("to", fact.to);
  codec("with", fact.with);
}

template <typename Codec>
void Fields(Codec& codec, OrderEnded& fact) {
  codec("order", fact.order);
  codec("ok", fact.ok);
  codec("message", fact.message);
  codec("image", fact.image);
  codec.Optional("late", fact.late);
}

template <typename Codec>
void Fields(Codec& codec, JobEnded& fact) {
  codec("job", fact.job);
  codec("ok", fact.ok);
  codec("exit_code", fact.exit_code);
  codec("message", fact.message);
}

template <typename Codec>
void Fields(Codec& codec, JobLost& fact) {
  codec("job", fact.job);
  codec("image_node", fact.image_node);
  codec("message", fact.message);
  codec("program_failed", fact.program_failed);
  codec("planned", fact.planned);
}

template <typename Codec>
void Fields(Codec& codec, JobCancelled& fact) {
  codec("job", fact.job);
}

template <typename Codec>
void Fields(Codec& codec, MaintenanceSet& fact) {
  codec("name", fact.name);
  codec("start", fact.start);
  codec("end", fact.end);
}

template <typename Codec>
void Fields(Codec& codec, ImageKept& fact) {
  codec("job", fact.job);
  codec("node", fact.node);
  codec.Optional("made", fact.made);
  codec.Optional("took", fact.took);
  codec.Optional("last", fact.last);
}

template <typename Codec>
void Fields(Codec& codec, RateMeasured& fact) {
  codec("job", fact.job);
  codec("rate", fact.rate);
  codec("unit", fact.unit);
  codec("beside", fact.beside);
}

template <typename Codec>
void Fields(Codec& codec, JobsForgotten& fact) {
  codec("before", fact.before);
}

template <typename Codec>
void Fields(Codec& codec, SaveBegun& fact) {
  codec("job", fact.job);
  codec("node", fact.node);
}

namespace {

using Json = nlohmann::json;

constexpr const char* kNames[] = {"tenant", "node",      "node-changed", "submitted",  "decided",
                                  "order",  "job-ended", "job-lost",     "cancelled",  "maintenance",
                                  "image",  "rate",      "forgotten",    "save-begun", "save-ended"};
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
  Json object = std::visit([](const auto& each) { return Writer::ToJson(each); }, fact);
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
