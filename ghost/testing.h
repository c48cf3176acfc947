// What the ghost's unit tests share.
#ifndef GHOST_TESTING_H_
#define GHOST_TESTING_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstddef>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/status.h"
#include "base/testing.h"

namespace stasis {

inline void WriteText(const std::string& path, const std::string& text) {
  ASSERT_TRUE(WriteFileAtomically(path, text).ok());
}

inline std::string ReadText(const std::string& path) {
  Result<std::string> text = ReadFile(path, 1 << 30);
  return text.ok() ? *text : "<" + text.status().ToString() + ">";
}

}  // namespace stasis

#endif  // GHOST_TESTING_H_
