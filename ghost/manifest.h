// What an image says about the task in it: the `meta` of dedup/image.h.
//
// Untrusted input: Parse() checks every field; whoever uses a field as a path, an index or a size may rely on
// what is written here.
#ifndef GHOST_MANIFEST_H_
#define GHOST_MANIFEST_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/task_protocol.h"
#include "dedup/json.h"
#include "ghost/tcp.h"

namespace stasis {

// A file whose replacement would make the restored processes run other code than they have begun.
struct ManifestProgram {
  std::string path;      // absolute
  std::string build_id;  // hexadecimal, empty: it has none
  uint64_t size = 0;
  int64_t mtime = 0;  // seconds; decides only where there is no build id
};

// An open or mapped file with the size that it must have at restore.
struct ManifestFile {
  std::string path;  // absolute
  uint64_t size = 0;
  bool writable = false;
};

// One process of the task that uses CUDA.
struct ManifestMember {
  pid_t nspid = 0;
  TaskStrategy strategy = TaskStrategy::kReconstruct;
  int32_t driver_version = 0;
  std::vector<TaskDevice> devices;        // uuid as raw bytes, as in TaskDevice
  std::vector<std::string> placed_uuids;  // raw, as HeldMember::placed_uuids; empty unless kDriverCheckpoint
  std::string stream;                     // of the image; empty when it has no active memory
  std::vector<TaskExtent> extents;        // ascending by address, disjoint
  std::vector<TaskRange> ranges;  // active: ascending, disjoint, each within one extent; they are the stream
};

struct Manifest {
  Json task;  // task.json
  uint64_t created = 0;
  std::string kernel;
  std::string machine;
  std::string criu;
  std::vector<std::string> cpu_features;
  pid_t init_nspid = 0;
  pid_t program_nspid = 0;
  std::string log;  // absolute path of output.log, empty: none
  bool log_copied = false;
  std::string run;  // absolute path of its run folder
  std::vector<ManifestProgram> programs;
  std::vector<ManifestFile> files;
  std::vector<TcpSocket> tcp;  // state, local, remote
  std::vector<ManifestMember> members;

  uint64_t DeviceBytes() const;  // of extents
  uint64_t ActiveBytes() const;  // of streams
};

// One device as JSON, and back: a failure is noted in `out`.
Json DeviceJson(const TaskDevice& device);
TaskDevice ParseDeviceJson(const Json& json, JsonFields& out);
// Raw bytes as hexadecimal digits, and back; what is no hexadecimal becomes empty.
std::vector<std::string> HexOf(const std::vector<std::string>& raw);
std::vector<std::string> UnhexAll(const std::vector<std::string>& texts);

Json ManifestJson(const Manifest& manifest);
// kCorrupt, naming the field.
Result<Manifest> ParseManifest(const Json& json);

// The instruction set extensions of this machine's CPU that compilers and libraries choose code by, sorted.
std::vector<std::string> CpuFeatures();
std::string KernelRelease();
std::string MachineName();
// OK when a process that started on a CPU with `needed` can go on here; kUnsupported names what is missing.
Status CheckCpuFeatures(const std::vector<std::string>& needed, const std::vector<std::string>& here);

}  // namespace stasis

#endif  // GHOST_MANIFEST_H_
