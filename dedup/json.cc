#include "dedup/json.h"

namespace stasis {
namespace {

const Json kEmptyObject = Json::object();

// Values within values. What copies or writes them calls itself for each level.
constexpr size_t kMaxDepth = 100;

// As far as the text is JSON.
bool TooDeep(std::string_view text) {
  size_t depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (quoted) {
      if (text[i] == '\\')
        ++i;
      else if (text[i] == '"')
        quoted = false;
      continue;
    }
    if (text[i] == '"') quoted = true;
    if ((text[i] == '{' || text[i] == '[') && ++depth > kMaxDepth) return true;
    if ((text[i] == '}' || text[i] == ']') && depth > 0) --depth;
  }
  return false;
}

// A value made from a signed type is stored as such, whatever it is.
bool IsNatural(const Json& value) {
  return value.is_number_unsigned() || (value.is_number_integer() && value.get<int64_t>() >= 0);
}

}  // namespace

Result<Json> ParseJsonObject(std::string_view text) {
  if (TooDeep(text)) return Status(StatusCode::kCorrupt, "this JSON is nested too deeply");
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Status(StatusCode::kCorrupt, "this is no JSON object");
  return json;
}

Result<Json> ParseJsonList(std::string_view text) {
  if (TooDeep(text)) return Status(StatusCode::kCorrupt, "this JSON is nested too deeply");
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_array()) return Status(StatusCode::kCorrupt, "this is no JSON list");
  return json;
}

std::string JsonText(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

JsonFields::JsonFields(const Json& object, std::string what) : object_(object), what_(std::move(what)) {
  if (!object.is_object()) Fail("is no object");
}

void JsonFields::Fail(const std::string& why) {
  if (failure_.empty()) failure_ = why;
}

const Json* JsonFields::Find(const char* name, bool required) {
  asked_.insert(name);
  if (!object_.is_object()) return nullptr;
  auto found = object_.find(name);
  if (found != object_.end()) return &*found;
  if (required) Fail(std::string("has no field '") + name + "'");
  return nullptr;
}

std::string JsonFields::String(const char* name, size_t max_length) {
  const Json* value = Find(name, true);
  if (!value) return "";
  const std::string* text = value->get_ptr<const std::string*>();
  if (text && text->size() <= max_length && text->find('\0') == std::string::npos) return *text;
  Fail(std::string("field '") + name + "' is no string, or too long");
  return "";
}

std::string JsonFields::StringOr(const char* name, std::string fallback, size_t max_length) {
  return Find(name, false) ? String(name, max_length) : std::move(fallback);
}

uint64_t JsonFields::Number(const char* name, uint64_t max) {
  const Json* value = Find(name, true);
  if (!value) return 0;
  if (IsNatural(*value) && value->get<uint64_t>() <= max) return value->get<uint64_t>();
  Fail(std::string("field '") + name + "' is no number, or too large");
  return 0;
}

uint64_t JsonFields::NumberOr(const char* name, uint64_t fallback, uint64_t max) {
  return Find(name, false) ? Number(name, max) : fallback;
}

bool JsonFields::Bool(const char* name) {
  const Json* value = Find(name, true);
  if (!value) return false;
  if (value->is_boolean()) return value->get<bool>();
  Fail(std::string("field '") + name + "' is neither true nor false");
  return false;
}

bool JsonFields::BoolOr(const char* name, bool fallback) { return Find(name, false) ? Bool(name) : fallback; }

std::vector<std::string> JsonFields::Strings(const char* name, size_t max_count, size_t max_length) {
  std::vector<std::string> strings;
  const Json* value = Find(name, true);
  if (!value) return strings;
  if (!value->is_array() || value->size() > max_count) {
    Fail(std::string("field '") + name + "' is no list, or too long");
    return strings;
  }
  for (const Json& element : *value) {
    const std::string* text = element.get_ptr<const std::string*>();
    if (!text || text->size() > max_length || text->find('\0') != std::string::npos) {
      Fail(std::string("field '") + name + "' holds something else than strings");
      return {};
    }
    strings.push_back(*text);
  }
  return strings;
}

std::vector<int> JsonFields::Ordinals(const char* name, bool optional) {
  constexpr size_t kMaxDevices = 64;
  std::vector<int> ordinals;
  const Json* value = Find(name, !optional);
  if (!value) return ordinals;
  if (!value->is_array() || value->size() > kMaxDevices) {
    Fail(std::string("field '") + name + "' is no list of device numbers");
    return ordinals;
  }
  for (const Json& element : *value) {
    if (!IsNatural(element) || element.get<uint64_t>() > 1023) {
      Fail(std::string("field '") + name + "' holds something else than device numbers");
      return {};
    }
    ordinals.push_back(static_cast<int>(element.get<uint64_t>()));
  }
  return ordinals;
}

std::vector<const Json*> JsonFields::Objects(const char* name, size_t max_count, bool optional) {
  std::vector<const Json*> objects;
  const Json* value = Find(name, !optional);
  if (!value) return objects;
  if (!value->is_array() || value->size() > max_count) {
    Fail(std::string("field '") + name + "' is no list, or too long");
    return objects;
  }
  for (const Json& element : *value) {
    if (!element.is_object()) {
      Fail(std::string("field '") + name + "' holds something else than objects");
      return {};
    }
    objects.push_back(&element);
  }
  return objects;
}

const Json& JsonFields::Object(const char* name) {
  const Json* value = Find(name, true);
  if (value && value->is_object()) return *value;
  if (value) Fail(std::string("field '") + name + "' is no object");
  return kEmptyObject;
}

Status JsonFields::Finish() const {
  return failure_.empty() ? Status() : Status(StatusCode::kCorrupt, what_ + " " + failure_);
}

Status JsonFields::FinishStrictly() const {
  RETURN_IF_ERROR(Finish());
  for (auto field = object_.begin(); field != object_.end(); ++field) {
    if (asked_.count(field.key()) == 0) {
      return Status(StatusCode::kInvalidArgument, what_ + " has an unknown field '" + field.key() + "'");
    }
  }
  return Status();
}

}  // namespace stasis
