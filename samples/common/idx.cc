#include "idx.h"

#include <zlib.h>

#include "fail.h"

namespace sample {
namespace {

constexpr uint32_t kImageMagic = 0x00000803;  // unsigned bytes, three dimensions
constexpr uint32_t kLabelMagic = 0x00000801;  // unsigned bytes, one dimension
constexpr uint32_t kMaxCount = 1000000;
constexpr uint32_t kMaxSide = 1024;

class GzipFile {
 public:
  explicit GzipFile(const std::string& path) : path_(path), file_(gzopen(path.c_str(), "rb")) {
    if (file_ == nullptr) {
      Fail(kExitFailure, "cannot open %s (Debian package dataset-fashion-mnist, or --data DIR)",
           path.c_str());
    }
  }
  GzipFile(const GzipFile&) = delete;
  GzipFile& operator=(const GzipFile&) = delete;
  ~GzipFile() { gzclose(file_); }

  void Read(uint8_t* out, size_t size) {
    if (gzread(file_, out, static_cast<unsigned>(size)) != static_cast<int>(size)) {
      Fail(kExitFailure, "%s is truncated or corrupt", path_.c_str());
    }
  }

  uint32_t ReadBigEndian() {
    uint8_t bytes[4];
    Read(bytes, sizeof(bytes));
    return static_cast<uint32_t>(bytes[0]) << 24 | bytes[1] << 16 | bytes[2] << 8 | bytes[3];
  }

  void Expect(bool condition, const char* what) const {
    if (!condition) Fail(kExitFailure, "%s: %s", path_.c_str(), what);
  }

 private:
  std::string path_;
  gzFile file_;
};

void ReadImages(const std::string& path, ImageSet* set) {
  GzipFile file(path);
  file.Expect(file.ReadBigEndian() == kImageMagic, "not an IDX file of images");
  const uint32_t count = file.ReadBigEndian();
  const uint32_t rows = file.ReadBigEndian();
  const uint32_t columns = file.ReadBigEndian();
  file.Expect(count > 0 && count <= kMaxCount, "unreasonable number of images");
  file.Expect(rows > 0 && rows <= kMaxSide && columns > 0 && columns <= kMaxSide, "unreasonable image size");
  file.Expect(uint64_t{count} * rows * columns <= INT32_MAX, "too large");
  file.Expect(rows * columns % 4 == 0, "the pixels of an image must be a multiple of 4");
  set->count = static_cast<int>(count);
  set->pixels = static_cast<int>(rows * columns);
  set->images.resize(size_t{count} * rows * columns);
  file.Read(set->images.data(), set->images.size());
}

void ReadLabels(const std::string& path, ImageSet* set) {
  GzipFile file(path);
  file.Expect(file.ReadBigEndian() == kLabelMagic, "not an IDX file of labels");
  file.Expect(file.ReadBigEndian() == static_cast<uint32_t>(set->count), "not one label for each image");
  set->labels.resize(set->count);
  file.Read(set->labels.data(), set->labels.size());
  for (const uint8_t label : set->labels) file.Expect(label < kClasses, "a label is out of range");
}

}  // namespace

ImageSet LoadImageSet(const std::string& dir, const std::string& prefix) {
  ImageSet set;
  ReadImages(dir + "/" + prefix + "-images-idx3-ubyte.gz", &set);
  ReadLabels(dir + "/" + prefix + "-labels-idx1-ubyte.gz", &set);
  return set;
}

}  // namespace sample
