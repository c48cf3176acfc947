// Plain structs as JSON objects and back. A function `template <typename Codec> void Fields(Codec&, T&)`
// names the fields of a struct once, for writing and for reading; LastOf(E) is the last value of an
// enumeration, which begins at 0 and has no gaps.
#ifndef SCHEDULER_LIVE_CODEC_H_
#define SCHEDULER_LIVE_CODEC_H_

#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/status.h"

namespace stasis::scheduler {

class Writer {
 public:
  template <typename T>
  void operator()(const char* name, const T& value) {
    object_[name] = ToJson(value);
  }
  template <typename T>
  void Optional(const char* name, const T& value) {
    object_[name] = ToJson(value);
  }
  nlohmann::json Take() { return std::move(object_); }

  template <typename T>
  static nlohmann::json ToJson(const T& value) {
    if constexpr (std::is_enum_v<T>) {
      return static_cast<int>(value);
    } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
      return value;
    } else {
      Writer writer;
      Fields(writer, const_cast<T&>(value));  // it only reads
      return writer.Take();
    }
  }
  template <typename T>
  static nlohmann::json ToJson(const std::vector<T>& values) {
    nlohmann::json list = nlohmann::json::array();
    for (const T& value : values) list.push_back(ToJson(value));
    return list;
  }

 private:
  nlohmann::json object_ = nlohmann::json::object();
};

// What is missing, of another type or out of its type's range is an error; what else is in the object is not
// looked at.
class Reader {
 public:
  explicit Reader(const nlohmann::json& object) : object_(object) {}

  template <typename T>
  void operator()(const char* name, T& value) {
    const auto field = object_.find(name);
    if ((field == object_.end() || !FromJson(*field, value)) && status_.ok())
      status_ = Errorf(StatusCode::kCorrupt, "field '%s' is missing or wrong", name);
  }
  // For fields that are newer than some of what is on record: stays as it is where there is none.
  template <typename T>
  void Optional(const char* name, T& value) {
    if (object_.contains(name)) (*this)(name, value);
  }
  const Status& status() const { return status_; }

  template <typename T>
  static bool FromJson(const nlohmann::json& from, T& value) {
    if constexpr (std::is_enum_v<T>) {
      int number = 0;
      if (!Integer(from, number) || number < 0 || number > static_cast<int>(LastOf(value))) return false;
      value = static_cast<T>(number);
      return true;
    } else if constexpr (std::is_same_v<T, bool>) {
      return from.is_boolean() && (value = from.get<bool>(), true);
    } else if constexpr (std::is_integral_v<T>) {
      return Integer(from, value);
    } else if constexpr (std::is_floating_point_v<T>) {
      return from.is_number() && (value = from.get<T>(), true);
    } else if constexpr (std::is_same_v<T, std::string>) {
      return from.is_string() && (value = from.get<std::string>(), true);
    } else {
      if (!from.is_object()) return false;
      Reader reader(from);
      Fields(reader, value);
      return reader.status().ok();
    }
  }
  template <typename T>
  static bool FromJson(const nlohmann::json& from, std::vector<T>& values) {
    if (!from.is_array()) return false;
    for (const nlohmann::json& each : from) {
      T value{};
      if (!FromJson(each, value)) return false;
      values.push_back(std::move(value));
    }
    return true;
  }

 private:
  template <typename T>
  static bool Integer(const nlohmann::json& from, T& value) {
    if (from.is_number_unsigned()) {
      const uint64_t number = from.get<uint64_t>();
      return std::in_range<T>(number) && (value = static_cast<T>(number), true);
    }
    if (!from.is_number_integer()) return false;
    const int64_t number = from.get<int64_t>();
    return std::in_range<T>(number) && (value = static_cast<T>(number), true);
  }

  const nlohmann::json& object_;
  Status status_;
};

}  // namespace stasis::scheduler

#endif  // SCHEDULER_LIVE_CODEC_H_
