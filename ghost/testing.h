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

namespace stasis {

// A folder of its own for one test, removed with it.
class TempFolder {
 public:
  TempFolder() {
    char name[] = "/tmp/stasis-ghost-test-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~TempFolder() { EXPECT_TRUE(RemoveTree(path_).ok()); }
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline void WriteText(const std::string& path, const std::string& text) {
  ASSERT_TRUE(WriteFileAtomically(path, text).ok());
}

inline std::string ReadText(const std::string& path) {
  Result<std::string> text = ReadFile(path, 1 << 30);
  return text.ok() ? *text : "<" + text.status().ToString() + ">";
}

#define ASSERT_OK(expression)                                \
  do {                                                       \
    ::stasis::Status test_status = (expression);             \
    ASSERT_TRUE(test_status.ok()) << test_status.ToString(); \
  } while (0)

}  // namespace stasis

#endif  // GHOST_TESTING_H_
