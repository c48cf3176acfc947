// What unit tests of any folder share.
#ifndef BASE_TESTING_H_
#define BASE_TESTING_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>

#include "base/files.h"
#include "base/status.h"

namespace stasis {

#define ASSERT_OK(expression)                                \
  do {                                                       \
    ::stasis::Status test_status = (expression);             \
    ASSERT_TRUE(test_status.ok()) << test_status.ToString(); \
  } while (0)

// A folder of its own for one test, removed with it.
class TempFolder {
 public:
  TempFolder() {
    char name[] = "/tmp/stasis-unit-test-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~TempFolder() { EXPECT_TRUE(RemoveTree(path_).ok()); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace stasis

#endif  // BASE_TESTING_H_
