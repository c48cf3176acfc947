// Reads the regular files of a dump from CRIU's files.img. CRIU looks at sizes while every process stands
// still, so its numbers are the ones that count.
//
// The format is CRIU's public image format: two magic words, then entries of a 32-bit length and one protobuf
// message (file_entry of fdinfo.proto, with reg_file_entry of regfile.proto as its field 3). Only a handful
// of integer and string fields are wanted, so the wire format is read here rather than through a library.
#include <fcntl.h>

#include <cstring>

#include "ghost/criu.h"

namespace stasis {
namespace {

constexpr uint32_t kCommonMagic = 0x54564319;
constexpr uint32_t kFilesMagic = 0x56303138;

class Wire {
 public:
  explicit Wire(std::span<const std::byte> bytes) : rest_(bytes) {}
  bool empty() const { return rest_.empty() || !ok_; }
  bool ok() const { return ok_; }

  uint64_t Varint() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      uint8_t byte = static_cast<uint8_t>(rest_[0]);
      rest_ = rest_.subspan(1);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return value;
    }
    ok_ = false;
    return 0;
  }
  std::span<const std::byte> Bytes(uint64_t size) {
    if (size > rest_.size()) {
      ok_ = false;
      return {};
    }
    std::span<const std::byte> bytes = rest_.first(size);
    rest_ = rest_.subspan(size);
    return bytes;
  }

 private:
  std::span<const std::byte> rest_;
  bool ok_ = true;
};

// One field of a message: an integer, or bytes.
struct Field {
  uint64_t number = 0;
  uint64_t value = 0;
  std::span<const std::byte> bytes;
};

Field NextField(Wire& wire, bool* ok) {
  Field field;
  uint64_t tag = wire.Varint();
  field.number = tag >> 3;
  switch (tag & 7) {
    case 0:
      field.value = wire.Varint();
      break;
    case 1:
      wire.Bytes(8);
      break;
    case 2:
      field.bytes = wire.Bytes(wire.Varint());
      break;
    case 5:
      wire.Bytes(4);
      break;
    default:
      *ok = false;
  }
  *ok = *ok && wire.ok();
  return field;
}

// True for what has a size, as regular files have, or is appended to.
bool ReadRegular(std::span<const std::byte> bytes, CriuFile* file, bool* ok) {
  bool appends = false;
  Wire wire(bytes);
  while (*ok && !wire.empty()) {
    Field field = NextField(wire, ok);
    if (field.number == 2) {
      uint64_t access = field.value & O_ACCMODE;
      file->writable = access == O_WRONLY || access == O_RDWR;
      appends = (field.value & O_APPEND) != 0;
    }
    if (field.number == 3) file->position = field.value;
    if (field.number == 6)
      file->path.assign(reinterpret_cast<const char*>(field.bytes.data()), field.bytes.size());
    if (field.number == 8) {
      file->size = field.value;
      file->sized = true;
    }
  }
  if (!file->path.empty() && file->path[0] != '/') file->path.insert(0, "/");
  return file->sized || appends;
}

uint32_t Word(std::span<const std::byte> bytes) {
  uint32_t word;
  std::memcpy(&word, bytes.data(), sizeof word);
  return word;
}

}  // namespace

Result<std::vector<CriuFile>> ParseCriuFiles(std::span<const std::byte> image) {
  if (image.size() < 8 || Word(image) != kCommonMagic || Word(image.subspan(4)) != kFilesMagic) {
    return Status(StatusCode::kCorrupt, "files.img is no list of files by CRIU");
  }
  image = image.subspan(8);
  std::vector<CriuFile> files;
  while (!image.empty()) {
    if (image.size() < 4 || Word(image) > image.size() - 4)
      return Status(StatusCode::kCorrupt, "files.img is cut");
    Wire wire(image.subspan(4, Word(image)));
    image = image.subspan(4 + Word(image));
    bool ok = true;
    while (ok && !wire.empty()) {
      Field field = NextField(wire, &ok);
      CriuFile file;
      if (field.number == 3 && ReadRegular(field.bytes, &file, &ok) && ok) files.push_back(std::move(file));
    }
    if (!ok) return Status(StatusCode::kCorrupt, "files.img holds an unreadable entry");
  }
  return files;
}

}  // namespace stasis
