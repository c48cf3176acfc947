// Driving CRIU: its command line, its log, its list of files.
//
// The command line and not the RPC of `criu swrk`: a failed run must be understood from its log either way
// (the RPC's answer is an errno), the RPC's protobuf would be a dependency of its own, and a criu that is a
// plain child can be waited for by another ghost when this one dies.
#ifndef GHOST_CRIU_H_
#define GHOST_CRIU_H_

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "ghost/child.h"
#include "ghost/tcp.h"

namespace stasis {

// What went wrong in words, and what the user can do about it (may be empty).
struct CriuFailure {
  std::string message;
  std::string remedy;
};
// The cause that a log shows: the first error that is not a consequence of another.
CriuFailure ExplainCriuLog(const std::string& log);

// `option` if not empty, else $STASIS_CRIU, the one of our package, PATH, ~/.cache/stasis/criu/bin/criu.
// kNotFound names all of them.
Result<std::string> FindCriu(const std::string& option);
// "4.2.1"
Result<std::string> CriuVersion(const std::string& criu);
// kPermissionDenied when this process lacks the capabilities to dump and restore.
Status CheckCriuPrivileges();

// Whether connections are dumped. Their packets are dropped meanwhile, by nftables in the network namespace
// of the caller; that namespace must be the tree's.
enum class DumpTcp { kNone, kConnections };
// How the tree is left by a dump that succeeds. After one that fails it always runs.
enum class DumpEnd { kRunning, kStopped };
// Starts `criu dump` of the tree below `root` into the folder `images`; the log is images/dump.log. Wait for
// it with AwaitDump(), and never kill it: a dump that is killed leaves the tree with foreign code in it.
Result<HeldChild> StartCriuDump(const std::string& criu, pid_t root, const std::string& images, DumpEnd end,
                                DumpTcp tcp);
// Waits for the end of the process `criu`, a child or not, that dumps the tree below `root`: for as long as
// the tree lives. One whose root dies, or that waits for another process that dies, has `patience` to notice;
// then it is killed, and what is left of a root that dies is awaited. What cannot be seen of either has not
// happened, so a shortage of descriptors only makes it wait.
void AwaitDump(pid_t criu, pid_t root, Duration patience = std::chrono::seconds(5));
// What takes the place of everything that processes of the dump had open as `path`.
struct CriuInherited {
  std::string path;  // absolute
  Fd fd;
};
// Starts `criu restore`; the log is `work`/restore.log, the pid of the new root is written to `work`/pid. The
// new root is a child of this process.
Result<HeldChild> StartCriuRestore(const std::string& criu, const std::string& images,
                                   const std::string& work, std::span<const CriuInherited> inherited);
// What a finished run means: OK, or kUnsupported with the failure's message, its remedy in *remedy.
Status CriuStatus(int exit_status, const std::string& log_path, std::string* remedy);

// A regular file that a process of the dump has open or mapped, as CRIU will ask for it at restore.
struct CriuFile {
  std::string path;
  // CRIU compares the size at restore, except of files that are only appended to: those have none here.
  bool sized = false;
  uint64_t size = 0;
  uint64_t position = 0;  // of the descriptor; of one that appends: where its last write ended
  bool writable = false;
};
// From the bytes of the dump's files.img; kCorrupt for anything malformed.
Result<std::vector<CriuFile>> ParseCriuFiles(std::span<const std::byte> image);

struct CriuTcp {
  TcpSocket socket;  // without `unaccepted`
  bool reuse_address = false;
};
// Every TCP socket, from the same bytes.
Result<std::vector<CriuTcp>> ParseCriuTcp(std::span<const std::byte> image);

}  // namespace stasis

#endif  // GHOST_CRIU_H_
