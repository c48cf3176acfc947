// Folders of unix sockets that the processes of a dump are bound in. Programs clean such folders up when one
// of their processes is killed and the others notice, as PyTorch's loaders do, or a reboot takes them; CRIU
// binds the sockets again and makes no folder.
#ifndef GHOST_SOCKET_FOLDERS_H_
#define GHOST_SOCKET_FOLDERS_H_

#include <sys/types.h>

#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace stasis {

struct SocketFolder {
  std::string path;  // absolute
  // Of the socket in it.
  uid_t uid = 0;
  gid_t gid = 0;
};
// From the bytes of the dump's files.img, each once, in ascending order; without those of sockets that have
// no name in a file system, or whose file was gone already. kCorrupt for anything malformed.
Result<std::vector<SocketFolder>> ParseSocketFolders(std::span<const std::byte> image);

// Those that were made for a restore, and are removed again unless it has succeeded.
class MadeFolders {
 public:
  MadeFolders() = default;
  MadeFolders(const MadeFolders&) = delete;
  MadeFolders& operator=(const MadeFolders&) = delete;
  ~MadeFolders();
  // Makes the folder and those above it that are missing, for the owner of the socket alone.
  Status Make(const SocketFolder& folder);
  void Keep() { made_.clear(); }

 private:
  std::vector<std::string> made_;
};

// Makes all that the dump in the folder `images` needs.
Status MakeSocketFolders(const std::string& images, MadeFolders* made);

}  // namespace stasis

#endif  // GHOST_SOCKET_FOLDERS_H_
