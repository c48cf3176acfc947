// The conversation between a task's interposer (libstasis.so, server) and its ghost (client).
//
// Each CUDA process of a task listens on <task run folder>/ctl/<pid as the process sees it>.sock and serves
// one ghost at a time. Every request gets one reply with the same request_id: kOk with the payload named
// below, or kError with a TaskError. What the end of the connection means is said below.
// clang-format off
//   state     request       -> state       payload of the request            payload of kOk
//   any       kHello        -> same        u32 kTaskProtocolVersion          TaskHello
//   any       kStatus       -> same        -                                 TaskStatus
//   any       kProgress     -> same        -                                 TaskProgress
//   Running,  kClose        -> Quiescing   TaskClose                         CutReport (base/rank_protocol.h)
//   Quiescing
//   Quiescing kCut          -> same        TaskCut (base/rank_protocol.h)    CutReport
//   Quiescing kDrain        -> Drained     u32 deadline in milliseconds      CutReport, of where the ranks are
//   Drained   kHold         -> same        -                                 -
//   Drained   kGiveUp       -> Quiesced    -                                 TaskQuiesced
//   Quiesced  kHandover     -> same        u32 index of the first extent     at most kTaskBatch TaskExtents from that
//                                                                            index on, one fd each; empty: no more
//   Quiesced  kActive       -> same        u32 index of the first range      at most kTaskRangeBatch TaskRanges from
//                                                                            that index on; empty: no more
//   Quiesced  kRelease      -> Released    u8 TaskStrategy                   -
//   Released  kPrepareDump  -> Deaf        -                                 - (then closes every socket of its own)
//   Released  kAttach       -> Attaching   TaskAttach                        - (opens the driver, makes the contexts)
//   Attaching kImport       -> same        at most kTaskBatch TaskExtents,   -
//                                          one fd each
//   Attaching kRebuild      -> Quiesced    -                                 - (needs every extent; everything but the
//                                                                            libraries' objects)
//   Quiesced  kComms        -> same        -                                 list of CommReport
//   Quiesced  kRejoin       -> Drained     CommRejoin                        -
//   Quiescing, kResume      -> Running     TaskResume, and two fds when      -
//   Drained                                it holds a snapshot
//   Running   kSnapshotDone -> same        -                                 -
// clang-format on
//
// kClose shuts the library gate, at the low point or at once; again where the process is Quiescing already,
// because kDrain has found a capture that only the program can end (kUnavailable) and has opened the gates
// for it. kCut, in rounds: each lets calls pass that this process or another one waits for (CutTargets), and
// comes back when nothing is missing here or nothing moves. When the whole job is at the cut, kDrain closes
// the driver's gate and waits for the devices. Up to then the process can go on as it is. kGiveUp ends the
// libraries' objects; from then on communicators that reach other processes are only made again by all of
// those together (kComms, kRejoin). kGiveUp that fails leaves the process Quiesced, with some of them ended:
// kRejoin makes those again. kRejoin that fails has made none.
//
// The end of the connection in Quiescing and in Drained opens the gates; in Quiesced the process makes the
// libraries' objects again and runs on, unless some of them need other processes: then it waits for the next
// ghost. After kHold it waits for the next ghost in each of these, until it runs again. From Released on it
// waits for the next ghost in any case, up to kResume.
//
// kActive: the bytes of the extents whose content the program can rely on, sorted by address, disjoint; all
// else is free memory of an allocator and may come back with any content.
//
// TaskClose::wait_low_ms: how long the process may go on running before it is stopped, to be stopped where
// it holds least active memory. It is stopped at the low point that it has learned, or when that time is
// over. Whatever comes from the ghost meanwhile, be it the end of the connection, ends the waiting: kClose
// fails with kCancelled, the process runs on, and what has come is answered.
//
// TaskResume::held: device memory (virtual ordinal, bytes) that the ghost keeps for a snapshot while the
// program runs. The process counts it as free. The two descriptors are eventfds: the process adds to the
// first when the program has asked for memory that there is not, and waits, within kTaskPressureWait, until
// the ghost, having given the memory back, adds to the second. kSnapshotDone, and the end of the connection,
// say that nothing is held any more.
//
// kAttach, kImport or kRebuild that fails, and a connection that ends while attaching, take the process back
// to Released: the ghost may try again, elsewhere if it must. Batches keep a program with many allocations
// within its own RLIMIT_NOFILE. Deaf: of ours only the folder of the control sockets is open, so CRIU can
// dump the process, and one that is restored elsewhere finds its place by it. Sending kTaskWakeSignal with
// rt_tgsigqueueinfo(2) and the value kTaskWakeValue to the thread named kTaskThreadName makes it listen again
// (-> Released), in the dumped process as in the restored one.
//
// kClose, kCut or kDrain that fails otherwise (a call that does not return, a capture that does not end)
// leaves the process Quiescing and the gates as they are, so that the ghost can look at the blocked threads;
// kResume or the end of the connection opens them.
// With TaskStrategy::kDriverCheckpoint the ghost itself calls cuCheckpointProcess{Lock,Checkpoint} after
// kRelease and {Restore,Unlock} before kAttach.
#ifndef BASE_TASK_PROTOCOL_H_
#define BASE_TASK_PROTOCOL_H_

#include <chrono>
#include <csignal>
#include <cstdint>
#include <string>
#include <vector>

#include "base/message.h"
#include "base/payload.h"
#include "base/status.h"

namespace stasis {

inline constexpr uint32_t kTaskProtocolVersion = 4;
inline constexpr char kTaskThreadName[] = "stasis-control";
// Extents, and descriptors, in one message.
inline constexpr size_t kTaskBatch = kMaxFdsPerBatch;
inline constexpr size_t kTaskRangeBatch = 32768;
inline constexpr std::chrono::seconds kTaskPressureWait(10);
inline constexpr uint64_t kTaskWakeValue = 0x5354415349530001;
// The real-time signal that wakes a deaf control thread: blocked there, sent to that thread alone.
inline int TaskWakeSignal() { return SIGRTMAX - 3; }

// Environment of a task, set by the launcher.
inline constexpr char kTaskFolderVariable[] = "STASIS_TASK";        // run folder; unset: not managed
inline constexpr char kTaskDriverVariable[] = "STASIS_DRIVER";      // absolute path of the real libcuda.so.1
inline constexpr char kTaskStrategyVariable[] = "STASIS_STRATEGY";  // auto, reconstruct, driver-checkpoint
inline constexpr char kTaskGpusVariable[] = "STASIS_GPUS";          // "2,0": physical ordinals; unset: all
// "00ab...@0000:3b:00.0,...": UUIDs and PCI ids of the machine's devices in the driver's numbering; unset:
// unknown
inline constexpr char kTaskDevicesVariable[] = "STASIS_DEVICES";
inline constexpr char kTaskManagedVariable[] = "STASIS_MANAGED";  // refuse, host: see docs/checkpoint.md

enum class TaskMessage : uint32_t {
  kHello = 1,
  kStatus = 2,
  kClose = 3,
  kCut = 4,
  kDrain = 5,
  kHold = 6,
  kGiveUp = 7,
  kHandover = 8,
  kActive = 9,
  kRelease = 10,
  kPrepareDump = 11,
  kAttach = 12,
  kImport = 13,
  kRebuild = 14,
  kComms = 15,
  kRejoin = 16,
  kResume = 17,
  kSnapshotDone = 18,
  kProgress = 19,
  kOk = 100,
  kError = 101,
};

enum class TaskState : uint8_t {
  kRunning = 0,
  kQuiescing,
  kDrained,
  kQuiesced,
  kReleased,
  kDeaf,
  kAttaching
};
const char* TaskStateName(TaskState state);

enum class TaskStrategy : uint8_t { kReconstruct = 0, kDriverCheckpoint = 1 };
const char* TaskStrategyName(TaskStrategy strategy);  // "reconstruct", "driver-checkpoint"

// A call that keeps the program from standing still.
struct TaskBlocker {
  int32_t tid = 0;   // as the process sees it
  std::string call;  // "cuStreamSynchronize"; or what else is waited for ("stream capture", "device work")
};

struct TaskError {
  Status status;
  std::vector<TaskBlocker> blockers;
};

// One device as the program sees it. What it saw at start is what it sees for ever.
struct TaskDevice {
  int32_t virtual_ordinal = 0;
  int32_t physical_ordinal = 0;  // where it is now, as a driver numbers that has all of the machine's devices
  std::string uuid;              // 16 raw bytes, of the device at start
  std::string name;
  uint64_t total_memory = 0;
  uint32_t compute_capability = 0;  // major * 10 + minor
  bool used = false;                // a context was made on it
};

// A call that created state we do not track. `both`: no strategy can carry it; else only kReconstruct cannot.
struct TaskTaint {
  std::string call;
  bool both = true;
};

struct TaskHello {
  int32_t pid = 0;  // as the process sees it
  TaskState state = TaskState::kRunning;
  TaskStrategy strategy = TaskStrategy::kReconstruct;  // what it would use by itself
  std::string driver_path;
  int32_t driver_version = 0;
  uint32_t generation = 0;  // how often it was rebuilt
  std::string failed;       // name of the sticky error of a broken context; empty: none
  std::vector<TaskTaint> taints;
  std::vector<TaskDevice> devices;
};

// Counts, for display and for finding leaks.
struct TaskStatus {
  TaskState state = TaskState::kRunning;
  uint32_t threads = 0;          // that have called CUDA and live
  uint64_t records = 0;          // objects in the replay table
  uint64_t allocations = 0;      // live device allocations of the program
  uint64_t allocated_bytes = 0;  // what the program asked for
  uint64_t extents = 0;
  uint64_t extent_bytes = 0;  // physical device memory behind them
  uint64_t host_bytes = 0;    // pinned host memory
  // What of the device memory the program can rely on now; low and high are those of TaskQuiesced.
  uint64_t active_bytes = 0;
  uint64_t low_bytes = 0;
  uint64_t high_bytes = 0;
  uint64_t iterations = 0;     // boundaries that the program has told through include/stasis/memory.h
  uint64_t ignored_notes = 0;  // its notes that made no sense
};

// How far the program has come since it began: both ascend, also over a restore.
struct TaskProgress {
  uint64_t iterations = 0;  // boundaries that the program has told through include/stasis/memory.h
  uint64_t launches = 0;    // of kernels and graphs, by all threads
  bool operator==(const TaskProgress&) const = default;
};

// Properties of physical memory that whoever makes it anew asks for.
inline constexpr uint32_t kTraitCompressed = 1;  // CU_MEM_ALLOCATION_COMP_GENERIC
inline constexpr uint32_t kTraitRdma = 2;        // CUmemAllocationProp::gpuDirectRDMACapable
inline constexpr uint32_t kAllTraits = kTraitCompressed | kTraitRdma;

// One piece of physical device memory. `address` orders the pieces of a process and tells their bytes apart:
// it is where the program sees them, or, of memory that it maps nowhere or only in part, one from
// kTaskUnmappedBase on, where no device memory can be.
struct TaskExtent {
  uint64_t id = 0;     // stable while the extent lives
  int32_t device = 0;  // virtual ordinal
  uint64_t address = 0;
  uint64_t size = 0;    // bytes, multiple of the granularity
  uint32_t traits = 0;  // of kAllTraits
  uint64_t share = 0;   // the same in all processes of the task that have this memory; 0: in no other
};
inline constexpr uint64_t kTaskUnmappedBase = 1ull << 56;

// Bytes within an extent.
struct TaskRange {
  uint64_t address = 0;
  uint64_t size = 0;
  bool operator==(const TaskRange&) const = default;
};

struct TaskClose {
  uint32_t deadline_ms = 0;  // for captures to end, after the waiting
  uint32_t wait_low_ms = 0;  // 0: at once
};

// Where the process was stopped, in bytes of active device memory.
struct TaskQuiesced {
  uint64_t active_bytes = 0;
  uint64_t low_bytes = 0;   // each of the latest cycles has come down to it; 0: no cycle has been seen
  uint64_t high_bytes = 0;  // the most of the latest cycles
  uint32_t waited_ms = 0;
  bool at_low = false;  // stopped at the low point, and not because the time was over
};

struct TaskResume {
  struct Held {
    int32_t virtual_ordinal = 0;
    uint64_t bytes = 0;
  };
  std::vector<Held> held;
};

struct TaskAttach {
  bool restored = false;  // the process was dumped and restored since kRelease
  std::string driver_path;
  struct Placement {
    int32_t virtual_ordinal = 0;
    int32_t physical_ordinal = 0;
  };
  // Where the devices are now: with kDriverCheckpoint those of kHello, since the driver moves a process under
  // the numbers that it knows.
  std::vector<Placement> placements;
};

// Encoding; each Decode checks every bound and fails with kCorrupt.
std::vector<std::byte> Encode(const TaskHello& hello);
std::vector<std::byte> Encode(const TaskStatus& status);
std::vector<std::byte> Encode(const TaskProgress& progress);
std::vector<std::byte> Encode(const TaskError& error);
std::vector<std::byte> Encode(const TaskAttach& attach);
std::vector<std::byte> Encode(const std::vector<TaskExtent>& extents);
std::vector<std::byte> Encode(const std::vector<TaskRange>& ranges);
std::vector<std::byte> Encode(const TaskClose& close);
std::vector<std::byte> Encode(const TaskQuiesced& quiesced);
std::vector<std::byte> Encode(const TaskResume& resume);
Result<TaskHello> DecodeTaskHello(std::span<const std::byte> payload);
Result<TaskStatus> DecodeTaskStatus(std::span<const std::byte> payload);
Result<TaskProgress> DecodeTaskProgress(std::span<const std::byte> payload);
Result<TaskError> DecodeTaskError(std::span<const std::byte> payload);
Result<TaskAttach> DecodeTaskAttach(std::span<const std::byte> payload);
Result<std::vector<TaskExtent>> DecodeTaskExtents(std::span<const std::byte> payload);
Result<std::vector<TaskRange>> DecodeTaskRanges(std::span<const std::byte> payload);
Result<TaskClose> DecodeTaskClose(std::span<const std::byte> payload);
Result<TaskQuiesced> DecodeTaskQuiesced(std::span<const std::byte> payload);
Result<TaskResume> DecodeTaskResume(std::span<const std::byte> payload);

}  // namespace stasis

#endif  // BASE_TASK_PROTOCOL_H_
