// Reader of gzipped IDX files, the format in which MNIST and Fashion-MNIST are distributed.
#pragma once

#include <stdint.h>

#include <string>
#include <vector>

namespace sample {

struct ImageSet {
  int count = 0;
  int pixels = 0;               // of one image
  std::vector<uint8_t> images;  // count x pixels, 0 to 255
  std::vector<uint8_t> labels;  // count, each below kClasses
};

constexpr int kClasses = 10;

// Reads DIR/PREFIX-images-idx3-ubyte.gz and its labels; prefix is "train" or "t10k". Ends the program with a
// clear line when a file is missing or is not what it should be.
ImageSet LoadImageSet(const std::string& dir, const std::string& prefix);

}  // namespace sample
