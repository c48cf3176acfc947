// Status and Result: how every fallible function outside the CUDA hooks reports what happened.
//
// A Status is a code plus a message that grows a context in front at each layer ("restore rank 3: map chunk: ...").
// OK is a null pointer, so success costs one word and no allocation. Thread-compatible, like any value.
#ifndef BASE_STATUS_H_
#define BASE_STATUS_H_

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace stasis {

enum class StatusCode : int {
  kOk = 0,
  kInvalidArgument,    // the caller's input is wrong
  kNotFound,           // the thing named does not exist
  kAlreadyExists,      // it exists and must not
  kFailedPrecondition, // the state of the object forbids it
  kPermissionDenied,   // the kernel or a policy refuses it to this user
  kResourceExhausted,  // memory, disk, descriptors, device memory
  kUnavailable,        // a peer cannot be reached at the moment
  kTimeout,            // a deadline passed
  kPeerDied,           // a process or connection that we needed is gone
  kCorrupt,            // bytes that cannot be what they claim to be
  kUnsupported,        // understood, and not offered
  kCancelled,          // given up on request
  kDriver,             // the CUDA driver reported an error; the message names it
  kInternal,           // a bug of ours
};

// The field name of a code, e.g. "CORRUPT". Never null.
const char* StatusCodeName(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // OK
  Status(StatusCode code, std::string message);
  Status(const Status& other) : rep_(other.rep_ ? std::make_unique<Rep>(*other.rep_) : nullptr) {}
  Status& operator=(const Status& other) {
    if (this != &other) rep_ = other.rep_ ? std::make_unique<Rep>(*other.rep_) : nullptr;
    return *this;
  }
  Status(Status&&) noexcept = default;
  Status& operator=(Status&&) noexcept = default;

  bool ok() const { return rep_ == nullptr; }
  StatusCode code() const { return rep_ ? rep_->code : StatusCode::kOk; }
  std::string_view message() const { return rep_ ? std::string_view(rep_->message) : std::string_view(); }
  // "CODE: message", or "OK".
  std::string ToString() const;
  // The same status with "context: " in front of its message; OK stays OK.
  Status WithContext(std::string_view context) &&;
  Status WithContext(std::string_view context) const&;

 private:
  struct Rep {
    StatusCode code;
    std::string message;
  };
  std::unique_ptr<Rep> rep_;
};

// A status for a failed system call: the code that fits `err`, and "context: text of err (number)".
Status ErrnoStatus(int err, std::string_view context);

// printf-style construction; the format is checked by the compiler.
Status Errorf(StatusCode code, const char* format, ...) __attribute__((format(printf, 2, 3)));

// Prints the reason on stderr and aborts. For broken invariants only; stays on in release builds.
[[noreturn]] void CheckFailed(const char* file, int line, const char* expression);

#define STASIS_CHECK(condition)                                               \
  do {                                                                        \
    if (__builtin_expect(!(condition), 0)) {                                  \
      ::stasis::CheckFailed(__FILE__, __LINE__, #condition);                  \
    }                                                                         \
  } while (0)

// A value of T, or the Status that says why there is none. Never holds an OK status.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : rep_(std::in_place_index<1>, std::move(value)) {}
  Result(Status status) : rep_(std::in_place_index<0>, std::move(status)) {
    STASIS_CHECK(!std::get<0>(rep_).ok());
  }

  bool ok() const { return rep_.index() == 1; }
  // OK when there is a value.
  Status status() const& { return ok() ? Status() : std::get<0>(rep_); }
  Status status() && { return ok() ? Status() : std::move(std::get<0>(rep_)); }
  // Need ok().
  T& value() & {
    STASIS_CHECK(ok());
    return std::get<1>(rep_);
  }
  const T& value() const& {
    STASIS_CHECK(ok());
    return std::get<1>(rep_);
  }
  T&& value() && {
    STASIS_CHECK(ok());
    return std::move(std::get<1>(rep_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<Status, T> rep_;
};

#define STASIS_CONCAT_INNER(a, b) a##b
#define STASIS_CONCAT(a, b) STASIS_CONCAT_INNER(a, b)

#define RETURN_IF_ERROR(expression)                     \
  do {                                                  \
    ::stasis::Status status_macro_value = (expression); \
    if (!status_macro_value.ok()) return status_macro_value; \
  } while (0)

#define ASSIGN_OR_RETURN(lhs, expression) \
  STASIS_ASSIGN_OR_RETURN_IMPL(STASIS_CONCAT(result_macro_value_, __LINE__), lhs, expression)
#define STASIS_ASSIGN_OR_RETURN_IMPL(result, lhs, expression) \
  auto result = (expression);                                 \
  if (!result.ok()) return std::move(result).status();        \
  lhs = std::move(result).value()

}  // namespace stasis

#endif  // BASE_STATUS_H_
