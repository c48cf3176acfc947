#include "ghost/socket_folders.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <map>

#include "base/files.h"
#include "ghost/criu_wire.h"

namespace stasis {
namespace {

constexpr size_t kMaxImage = 256 << 20;

struct UnixSocket {
  std::string name;
  bool deleted = false;
  uint64_t uid = 0, gid = 0;
};

bool ReadOwner(std::span<const std::byte> bytes, UnixSocket* socket) {
  bool ok = true;
  Wire wire(bytes);
  while (ok && !wire.empty()) {
    const Field field = NextField(wire, &ok);
    if (field.number == 2) socket->uid = field.value;
    if (field.number == 3) socket->gid = field.value;
  }
  return ok;
}

// unix_sk_entry of sk-unix.proto.
bool ReadUnix(std::span<const std::byte> bytes, UnixSocket* socket) {
  bool ok = true;
  Wire wire(bytes);
  while (ok && !wire.empty()) {
    const Field field = NextField(wire, &ok);
    if (field.number == 11)
      socket->name.assign(reinterpret_cast<const char*>(field.bytes.data()), field.bytes.size());
    if (field.number == 13) ok = ok && ReadOwner(field.bytes, socket);
    if (field.number == 15) socket->deleted = field.value != 0;
  }
  return ok;
}

// The folder in which CRIU will bind it; empty when there is none to make. Names are ended by a zero as the
// kernel has them; one that goes up by ".." is left to CRIU.
std::string FolderOf(const UnixSocket& socket) {
  const std::string path = socket.name.substr(0, socket.name.find('\0'));
  const size_t end = path.rfind('/');
  if (socket.deleted || path.empty() || path[0] != '/' || end == 0 || path.find("/../") != std::string::npos)
    return "";
  return path.substr(0, end);
}

}  // namespace

Result<std::vector<SocketFolder>> ParseSocketFolders(std::span<const std::byte> image) {
  std::map<std::string, SocketFolder> folders;
  RETURN_IF_ERROR(ForCriuEntries(image, kCriuFilesMagic, [&](std::span<const std::byte> entry) {
                    Wire wire(entry);
                    bool ok = true;
                    while (ok && !wire.empty()) {
                      const Field field = NextField(wire, &ok);
                      if (!ok || field.number != 16) continue;
                      UnixSocket socket;
                      ok = ReadUnix(field.bytes, &socket);
                      const std::string path = FolderOf(socket);
                      if (ok && !path.empty())
                        folders.emplace(path, SocketFolder{path, static_cast<uid_t>(socket.uid),
                                                           static_cast<gid_t>(socket.gid)});
                    }
                    return ok;
                  }).WithContext("files.img"));
  std::vector<SocketFolder> list;
  for (auto& [path, folder] : folders) list.push_back(std::move(folder));
  return list;
}

MadeFolders::~MadeFolders() {
  for (auto path = made_.rbegin(); path != made_.rend(); ++path) (void)rmdir(path->c_str());
}

Status MadeFolders::Make(const SocketFolder& folder) {
  for (size_t end = folder.path.find('/', 1);; end = folder.path.find('/', end + 1)) {
    const std::string path = folder.path.substr(0, end);
    if (mkdir(path.c_str(), 0700) == 0) {
      made_.push_back(path);
      if (chown(path.c_str(), folder.uid, folder.gid) != 0) return ErrnoStatus(errno, "give away " + path);
    } else if (errno != EEXIST) {
      return ErrnoStatus(errno, "make " + path + ", in which a socket of the program was");
    }
    if (end == std::string::npos) return Status();
  }
}

Status MakeSocketFolders(const std::string& images, MadeFolders* made) {
  ASSIGN_OR_RETURN(std::string image, ReadFile(images + "/files.img", kMaxImage));
  ASSIGN_OR_RETURN(std::vector<SocketFolder> folders, ParseSocketFolders(std::as_bytes(std::span(image))));
  for (const SocketFolder& folder : folders) RETURN_IF_ERROR(made->Make(folder));
  return Status();
}

}  // namespace stasis
