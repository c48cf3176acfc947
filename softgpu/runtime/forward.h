// Calls of the runtime that are a driver call under another name: arguments are converted by type, nothing
// else.
#ifndef SOFTGPU_RUNTIME_FORWARD_H_
#define SOFTGPU_RUNTIME_FORWARD_H_

#include <bit>
#include <type_traits>

#include "softgpu/runtime/api.h"

namespace softgpu::runtime {

// A device argument: an ordinal in the runtime, a handle in the driver.
struct Ordinal {
  int value;
};

template <typename T>
concept Complete = requires {
  sizeof(T);
};

// Two structures that the headers declare separately with the same layout; the sizes must at least agree.
template <typename To, typename From>
constexpr bool SameLayout() {
  using ToPointee = std::remove_pointer_t<To>;
  using FromPointee = std::remove_pointer_t<From>;
  if constexpr (std::is_function_v<ToPointee> || std::is_void_v<ToPointee> || std::is_void_v<FromPointee>) {
    return true;
  } else if constexpr (Complete<ToPointee> && Complete<FromPointee>) {
    return sizeof(ToPointee) == sizeof(FromPointee);
  } else {
    return !Complete<ToPointee> && !Complete<FromPointee>;  // opaque handles
  }
}

// The driver's form of a runtime argument.
template <typename To, typename From>
To As(From from) {
  if constexpr (std::is_same_v<To, From>) {
    return from;
  } else if constexpr (std::is_same_v<From, Ordinal>) {
    return HandleOf(from.value);
  } else if constexpr (std::is_pointer_v<To> && std::is_pointer_v<From>) {
    static_assert(SameLayout<To, From>());
    return (To)from;  // one cast that may also drop const, which the driver's prototypes lack in places
  } else if constexpr (std::is_pointer_v<From>) {
    static_assert(sizeof(To) == sizeof(From));
    return reinterpret_cast<To>(from);
  } else if constexpr (std::is_class_v<To>) {
    return std::bit_cast<To>(from);
  } else {
    return static_cast<To>(from);
  }
}

template <typename... Params, typename... Args>
cudaError_t Convert(DriverFunction<CUresult (*)(Params...)>& fn, Args... args) {
  return fn(As<Params>(args)...);
}

}  // namespace softgpu::runtime

#endif  // SOFTGPU_RUNTIME_FORWARD_H_
