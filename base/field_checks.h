// What the fields of a message from outside must be, whatever they are of.
//
// All return kInvalidArgument with a sentence for people that names the field.
#ifndef BASE_FIELD_CHECKS_H_
#define BASE_FIELD_CHECKS_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/status.h"

namespace stasis {

inline constexpr size_t kMaxKey = 128;                  // bytes of an idempotency key
inline constexpr size_t kMaxRequestStrings = 16384;     // arguments, variables; of each kind
inline constexpr size_t kMaxRequestString = 128 << 10;  // bytes of one: what execve(2) takes

Status BadField(const std::string& sentence);
// Text from outside as a message repeats it.
std::string Shown(std::string_view text);
bool HasControls(std::string_view text);

Status CheckAtMost(const std::string& field, uint64_t value, uint64_t most);
// One of `words`, or empty.
Status CheckWord(const std::string& field, std::string_view value,
                 std::initializer_list<std::string_view> words);
// A line of at most `most` bytes; may be empty.
Status CheckLine(const std::string& field, std::string_view text, size_t most);
// What execve(2) takes: no zero bytes, not too long.
Status CheckArgument(const std::string& field, std::string_view text);
// KEY=VALUE with a key that is not empty.
Status CheckEnvironmentEntry(std::string_view text);
// An absolute path.
Status CheckFolder(const std::string& field, std::string_view folder);
Status CheckIdempotencyKey(std::string_view key);

// Arguments, or variables.
template <typename Strings>
Status CheckArguments(const std::string& field, const Strings& strings) {
  RETURN_IF_ERROR(
      CheckAtMost("the number of " + field, static_cast<uint64_t>(strings.size()), kMaxRequestStrings));
  for (const std::string& text : strings) RETURN_IF_ERROR(CheckArgument(field, text));
  return Status();
}

}  // namespace stasis

#endif  // BASE_FIELD_CHECKS_H_
