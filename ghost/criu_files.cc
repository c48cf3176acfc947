// Reads the regular files of a dump from CRIU's files.img. CRIU looks at sizes while every process stands
// still, so its numbers are the ones that count.
//
// Entries are file_entry of fdinfo.proto, with reg_file_entry of regfile.proto as its field 3.
#include <fcntl.h>

#include "ghost/criu.h"
#include "ghost/criu_wire.h"

namespace stasis {
namespace {

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

}  // namespace

Result<std::vector<CriuFile>> ParseCriuFiles(std::span<const std::byte> image) {
  std::vector<CriuFile> files;
  RETURN_IF_ERROR(ForCriuEntries(image, kCriuFilesMagic, [&](std::span<const std::byte> entry) {
                    Wire wire(entry);
                    bool ok = true;
                    while (ok && !wire.empty()) {
                      Field field = NextField(wire, &ok);
                      CriuFile file;
                      if (field.number == 3 && ReadRegular(field.bytes, &file, &ok) && ok)
                        files.push_back(std::move(file));
                    }
                    return ok;
                  }).WithContext("files.img"));
  return files;
}

}  // namespace stasis
