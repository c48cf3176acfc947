// JSON from outside, read without surprises: every field is checked for its type and bounds, and the library
// never throws or aborts on what came in.
#ifndef DEDUP_JSON_H_
#define DEDUP_JSON_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace stasis {

using Json = nlohmann::json;

// kCorrupt when `text` is no JSON object, or one that is nested more than a hundred levels deep.
Result<Json> ParseJsonObject(std::string_view text);
// The same for a list.
Result<Json> ParseJsonList(std::string_view text);
// Bytes that are no UTF-8 become U+FFFD: text for people may hold file names of any kind.
std::string JsonText(const Json& json, int indent = -1);

// Reads the fields of one object. The first field that is missing, of the wrong type or out of bounds makes
// Finish() fail and name it; later ones read as zero or empty. So a parser reads all and asks once.
class JsonFields {
 public:
  // `object` must outlive the reader; `what` is named in errors.
  JsonFields(const Json& object, std::string what);

  std::string String(const char* name, size_t max_length = 4096);
  std::string StringOr(const char* name, std::string fallback, size_t max_length = 4096);
  uint64_t Number(const char* name, uint64_t max = UINT64_MAX);
  uint64_t NumberOr(const char* name, uint64_t fallback, uint64_t max = UINT64_MAX);
  bool Bool(const char* name);
  bool BoolOr(const char* name, bool fallback);
  std::vector<std::string> Strings(const char* name, size_t max_count, size_t max_length = 4096);
  std::vector<int> Ordinals(const char* name, bool optional);  // small numbers, at most 64 of them
  // The elements of a list of objects; empty after a failure, or when it is not there and need not be.
  std::vector<const Json*> Objects(const char* name, size_t max_count, bool optional = false);
  // A nested object; an empty one after a failure.
  const Json& Object(const char* name);

  bool ok() const { return failure_.empty(); }
  void Fail(const std::string& why);
  // kCorrupt, naming the field.
  Status Finish() const;
  // Like Finish(), and every field of the object must have been asked for.
  Status FinishStrictly() const;

 private:
  const Json* Find(const char* name, bool required);

  const Json& object_;
  std::string what_;
  std::string failure_;
  std::set<std::string, std::less<>> asked_;
};

}  // namespace stasis

#endif  // DEDUP_JSON_H_
