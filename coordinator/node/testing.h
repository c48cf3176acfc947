// Helpers of the tests in this folder.
#ifndef COORDINATOR_NODE_TESTING_H_
#define COORDINATOR_NODE_TESTING_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace stasis {

// A folder that is gone with the object.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = testing::TempDir() + "stasis-cli-XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline void WriteText(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

inline void AppendText(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::app) << text;
}

}  // namespace stasis

#endif  // COORDINATOR_NODE_TESTING_H_
