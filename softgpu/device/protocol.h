// The protocol between softgpud and its clients: what each message holds, field by field.
//
// Transport: base/message.h frames over a unix stream socket. Fields follow each other as base/payload.h
// writes them (host byte order, no padding); "string" and "bytes" are a u32 length and that many bytes;
// "list" is a u32 count and the elements. A client speaks first, with Hello. The daemon drops a client whose
// message is malformed, of unknown type, too large, or before Hello, and a client that does not read what it
// is sent.
//
// Requests (client to daemon). Those marked > are answered by one Reply that carries the same request id (not
// zero); the others are not answered and carry request id 0.
//
//   1 Hello >             u32 protocol (kProtocolVersion), u8 flags (1 = observer, 2 = resumed), string name
//   (<= 64)
//                         body of the answer: string node name, list of Device
//   2 Devices >           -; answer: list of Device
//   3 CtxCreate >         u32 device
//   4 CtxDestroy >        u32 device
//   5 MemCreate >         u32 device, u64 size; answer: u64 id, u32 device, u64 size, with one descriptor:
//   the memfd 6 MemRelease >        u64 id 7 MemExport >         u64 id; answer: no body, one descriptor: the
//   token 8 MemImport >         -, with one descriptor: a token; answer as for MemCreate 9 MemInfo > u32
//   device; answer: u64 free bytes, u64 total bytes
//  10 SliceRequest        u32 device, u32 serial (chosen by the client, comes back in the events)
//  11 SliceRelease        u32 device
//  12 CheckpointRequest > i32 pid, u8 op, u32 timeout ms (for the process), u32 wait ms (for the daemon),
//  bytes args
//                         (<= 32 KiB); answer: i32 result, u8 state, u64 value
//  13 CheckpointReply     u64 token, i32 result, u8 state, u64 value
//  14 Inventory >         -; answer: Inventory
//  15 InjectFault >       u32 device, Fault
//  16 Bye                 -; the client lets go of everything it has; it sends nothing afterwards but closes
//
// 100 Reply               u32 StatusCode, string message; if the code is 0, the body named above follows
//
// Events (daemon to client), request id 0:
// 200 SliceGranted        u32 device, u32 serial of the request
// 201 SliceRevoke         u32 device, u32 serial of the request that holds the slice
// 202 DeviceFault         u32 device, Fault
// 203 CheckpointEvent     u64 token, u8 op, u32 timeout ms, bytes args
//
// Structures: Fault = u8 kind, f64 factor, u64 count. Device = the fields of DeviceInfo in order, uuid as 16
// u8, peer_access as a list of u8. Inventory = string node name, i32 daemon pid, list of {Device, u64 used,
// u8 oom armed, u64 oom after}, list of {i32 pid, u32 uid, string name, u8 state, list of u32 contexts, list
// of u64 memory}.
//
// Exported memory: the token is the write end of a pipe whose read end the daemon keeps. Nobody reads or
// writes it; its last close, wherever the copies went, raises EPOLLHUP at the daemon, which then drops the
// reference that the token stands for. The daemon recognises a token by device and inode number of the pipe.
//
// Time slices: a device is leased to one client. The lease stays, without further messages, until another
// client asks; then, when the slice is over, the holder is told to release it. The queue is first in, first
// out. A lease is never taken from a living process: a kernel that does not end keeps its device, as it would
// on hardware.
//
// Checkpoint rendezvous: CheckpointRequest about a pid becomes a CheckpointEvent at that process's
// connection, and its CheckpointReply becomes the answer. Only a process of the same user, or root, may ask.
// One operation per process at a time. Checkpoint, answered with state kCheckpointed, reaches the caller only
// when the process has closed its connection; the daemon remembers the pid until the process dies or comes
// back. Restore about a process without a connection waits until that process says Hello with the flag
// "resumed" and is then handed to it; when it fails and leaves the process checkpointed, the caller hears of it
// once the connection is closed again. GetState is answered from the daemon's memory when the process has no
// connection or an operation is under way.
#ifndef SOFTGPU_DEVICE_PROTOCOL_H_
#define SOFTGPU_DEVICE_PROTOCOL_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/fd.h"
#include "base/message.h"
#include "base/payload.h"
#include "base/status.h"
#include "softgpu/device/types.h"

namespace softgpu {

inline constexpr uint32_t kProtocolVersion = 1;
inline constexpr size_t kMaxNameLength = 64;
inline constexpr size_t kMaxCheckpointArgs = 32 << 10;

// What a client may send, and what the daemon may answer (an inventory may be long).
inline constexpr stasis::MessageLimits kRequestLimits{64 << 10, 1};
inline constexpr stasis::MessageLimits kReplyLimits{4 << 20, 1};

enum class MessageType : uint32_t {
  kHello = 1,
  kDevices = 2,
  kCtxCreate = 3,
  kCtxDestroy = 4,
  kMemCreate = 5,
  kMemRelease = 6,
  kMemExport = 7,
  kMemImport = 8,
  kMemInfo = 9,
  kSliceRequest = 10,
  kSliceRelease = 11,
  kCheckpointRequest = 12,
  kCheckpointReply = 13,
  kInventory = 14,
  kInjectFault = 15,
  kBye = 16,
  kReply = 100,
  kSliceGranted = 200,
  kSliceRevoke = 201,
  kDeviceFault = 202,
  kCheckpointEvent = 203,
};

// Each message is a struct whose Fields() names its fields once, for writing and for reading.
template <typename T>
concept WireMessage = requires {
  T::kType;
};

struct HelloRequest {
  static constexpr MessageType kType = MessageType::kHello;
  static constexpr uint8_t kObserver = 1, kResumed = 2;
  uint32_t protocol = kProtocolVersion;
  uint8_t flags = 0;
  std::string name;
  void Fields(auto& f) { f(protocol), f(flags), f(name, kMaxNameLength); }
};

struct DevicesRequest {
  static constexpr MessageType kType = MessageType::kDevices;
  void Fields(auto&) {}
};

template <MessageType type>
struct OfDevice {
  static constexpr MessageType kType = type;
  uint32_t device = 0;
  void Fields(auto& f) { f(device); }
};
using CtxCreateRequest = OfDevice<MessageType::kCtxCreate>;
using CtxDestroyRequest = OfDevice<MessageType::kCtxDestroy>;
using MemInfoRequest = OfDevice<MessageType::kMemInfo>;
using SliceReleaseRequest = OfDevice<MessageType::kSliceRelease>;

struct MemCreateRequest {
  static constexpr MessageType kType = MessageType::kMemCreate;
  uint32_t device = 0;
  uint64_t size = 0;
  void Fields(auto& f) { f(device), f(size); }
};

template <MessageType type>
struct OfAllocation {
  static constexpr MessageType kType = type;
  uint64_t id = 0;
  void Fields(auto& f) { f(id); }
};
using MemReleaseRequest = OfAllocation<MessageType::kMemRelease>;
using MemExportRequest = OfAllocation<MessageType::kMemExport>;

struct MemImportRequest {
  static constexpr MessageType kType = MessageType::kMemImport;
  stasis::Fd token;
  void Fields(auto&) {}
};

template <MessageType type>
struct OfSlice {
  static constexpr MessageType kType = type;
  uint32_t device = 0;
  uint32_t serial = 0;
  void Fields(auto& f) { f(device), f(serial); }
};
using SliceRequest = OfSlice<MessageType::kSliceRequest>;
using SliceGrantedEvent = OfSlice<MessageType::kSliceGranted>;
using SliceRevokeEvent = OfSlice<MessageType::kSliceRevoke>;

struct CheckpointProcessRequest {
  static constexpr MessageType kType = MessageType::kCheckpointRequest;
  int32_t pid = 0;
  CheckpointOp op = CheckpointOp::kLock;
  uint32_t timeout_ms = 0;
  uint32_t wait_ms = 0;
  std::vector<std::byte> args;
  void Fields(auto& f) { f(pid), f(op), f(timeout_ms), f(wait_ms), f(args, kMaxCheckpointArgs); }
};

struct CheckpointReplyRequest {
  static constexpr MessageType kType = MessageType::kCheckpointReply;
  uint64_t token = 0;
  CheckpointResult result;
  void Fields(auto& f) { f(token), f(result.result), f(result.state), f(result.value); }
};

struct InventoryRequest {
  static constexpr MessageType kType = MessageType::kInventory;
  void Fields(auto&) {}
};

struct InjectFaultRequest {
  static constexpr MessageType kType = MessageType::kInjectFault;
  uint32_t device = 0;
  Fault fault;
  void Fields(auto& f) { f(device), f(fault.kind), f(fault.factor), f(fault.count); }
};

struct ByeRequest {
  static constexpr MessageType kType = MessageType::kBye;
  void Fields(auto&) {}
};

struct DeviceFaultEvent {
  static constexpr MessageType kType = MessageType::kDeviceFault;
  uint32_t device = 0;
  Fault fault;
  void Fields(auto& f) { f(device), f(fault.kind), f(fault.factor), f(fault.count); }
};

struct CheckpointProcessEvent {
  static constexpr MessageType kType = MessageType::kCheckpointEvent;
  uint64_t token = 0;
  CheckpointOp op = CheckpointOp::kLock;
  uint32_t timeout_ms = 0;
  std::vector<std::byte> args;
  void Fields(auto& f) { f(token), f(op), f(timeout_ms), f(args, kMaxCheckpointArgs); }
};

// Bodies of answers.
struct EmptyBody {
  void Fields(auto&) {}
};
struct DevicesBody {
  std::vector<DeviceInfo> devices;
  void Fields(auto& f) { f(devices); }
};
struct HelloBody {
  std::string node_name;
  std::vector<DeviceInfo> devices;
  void Fields(auto& f) { f(node_name, 256), f(devices); }
};
struct AllocationBody {
  uint64_t id = 0;
  uint32_t device = 0;
  uint64_t size = 0;
  void Fields(auto& f) { f(id), f(device), f(size); }
};
struct MemInfoBody {
  MemoryInfo info;
  void Fields(auto& f) { f(info.free_bytes), f(info.total_bytes); }
};
struct CheckpointBody {
  CheckpointResult result;
  void Fields(auto& f) { f(result.result), f(result.state), f(result.value); }
};
struct InventoryBody {
  Inventory inventory;
  void Fields(auto& f) { f(inventory); }
};

using Request = std::variant<HelloRequest, DevicesRequest, CtxCreateRequest, CtxDestroyRequest,
                             MemCreateRequest, MemReleaseRequest, MemExportRequest, MemImportRequest,
                             MemInfoRequest, SliceRequest, SliceReleaseRequest, CheckpointProcessRequest,
                             CheckpointReplyRequest, InventoryRequest, InjectFaultRequest, ByeRequest>;
using Event = std::variant<SliceGrantedEvent, SliceRevokeEvent, DeviceFaultEvent, CheckpointProcessEvent>;

// Whether a request is answered by a Reply.
bool HasReply(MessageType type);

// kCorrupt: unknown type, fields that do not fit, values outside their enumeration, a request id or a number
// of descriptors that the type does not have.
stasis::Result<Request> ParseRequest(stasis::Message message);
stasis::Result<Event> ParseEvent(const stasis::Message& message);

// Encodes a request or an event. A MemImportRequest's token travels as the message's descriptor.
stasis::Message Encode(Request request, uint64_t request_id);
stasis::Message Encode(Event event);

// Encodes an answer; `status` not OK means that there is no body.
stasis::Message EncodeReply(uint64_t request_id, const stasis::Status& status);
template <typename Body>
stasis::Message EncodeReply(uint64_t request_id, Body body);

// The body of an answer, or the status that it carries. The descriptors stay in the message.
template <typename Body>
stasis::Result<Body> ParseReply(const stasis::Message& message);

}  // namespace softgpu

#endif  // SOFTGPU_DEVICE_PROTOCOL_H_
