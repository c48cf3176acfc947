// The number that the server counts, kept on the device or, for comparison, on the host.
#pragma once

#include <stdint.h>

#include <memory>

namespace counter {

class Counter {
 public:
  virtual ~Counter() = default;
  virtual uint64_t Increment() = 0;  // returns the new value
  virtual uint64_t Value() = 0;
};

std::unique_ptr<Counter> MakeDeviceCounter(int device);

}  // namespace counter
