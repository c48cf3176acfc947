// Access to what testdata.cmake had the compiler make.
#ifndef SOFTGPU_PTX_TESTDATA_TESTING_H_
#define SOFTGPU_PTX_TESTDATA_TESTING_H_

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

namespace softgpu::ptx {

// The whole file; fails the test when there is none.
inline std::string ReadTestdata(const std::string& name) {
  std::ifstream file(std::string(SOFTGPU_PTX_TESTDATA) + "/" + name, std::ios::binary);
  EXPECT_TRUE(file.good()) << name;
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

}  // namespace softgpu::ptx

#endif  // SOFTGPU_PTX_TESTDATA_TESTING_H_
