#include "softgpu/device/protocol.h"

#include <type_traits>
#include <utility>

namespace softgpu {

using stasis::Errorf;
using stasis::Message;
using stasis::PayloadReader;
using stasis::PayloadWriter;
using stasis::Result;
using stasis::Status;
using stasis::StatusCode;

namespace {

constexpr size_t kMaxDeviceName = 256;
constexpr size_t kMaxStatusMessage = 4096;
constexpr uint32_t kLastStatusCode = static_cast<uint32_t>(StatusCode::kInternal);

template <typename E>
constexpr uint8_t kLastOf = 0;
template <>
constexpr uint8_t kLastOf<Health> = static_cast<uint8_t>(Health::kEccError);
template <>
constexpr uint8_t kLastOf<FaultKind> = static_cast<uint8_t>(FaultKind::kReset);
template <>
constexpr uint8_t kLastOf<ProcessState> = static_cast<uint8_t>(ProcessState::kFailed);
template <>
constexpr uint8_t kLastOf<CheckpointOp> = static_cast<uint8_t>(CheckpointOp::kGetState);

// Structures inside messages, named once for both directions.
void FieldsOf(auto& f, DeviceInfo& d) {
  f(d.ordinal), f(d.name, kMaxDeviceName);
  for (uint8_t& byte : d.uuid) f(byte);
  f(d.pci_domain), f(d.pci_bus), f(d.pci_device), f(d.memory_bytes), f(d.sm_count), f(d.clock_khz);
  f(d.compute_major), f(d.compute_minor), f(d.h2d_gbps), f(d.d2h_gbps), f(d.d2d_gbps), f(d.peer_gbps);
  f(d.peer_access), f(d.health), f(d.slow_factor);
}

void FieldsOf(auto& f, DeviceStatus& d) {
  uint8_t armed = d.oom_armed ? 1 : 0;
  f(d.info), f(d.used_bytes), f(armed), f(d.oom_after);
  d.oom_armed = armed != 0;
}

void FieldsOf(auto& f, ProcessInfo& p) {
  f(p.pid), f(p.uid), f(p.name, kMaxNameLength), f(p.state), f(p.contexts), f(p.memory_bytes);
}

void FieldsOf(auto& f, Inventory& i) {
  f(i.node_name, kMaxDeviceName), f(i.daemon_pid), f(i.devices), f(i.processes);
}

class FieldWriter {
 public:
  void operator()(uint8_t value) { out_.U8(value); }
  void operator()(uint32_t value) { out_.U32(value); }
  void operator()(uint64_t value) { out_.U64(value); }
  void operator()(int32_t value) { out_.I32(value); }
  void operator()(double value) { out_.F64(value); }
  void operator()(const std::string& text, size_t max) { out_.String(std::string_view(text).substr(0, max)); }
  void operator()(const std::vector<std::byte>& bytes, size_t) { out_.Bytes(bytes); }
  template <typename E>
  requires std::is_enum_v<E>
  void operator()(E value) { out_.U8(static_cast<uint8_t>(value)); }
  template <typename T>
  void operator()(std::vector<T>& list) {
    out_.U32(static_cast<uint32_t>(list.size()));
    for (T& element : list) (*this)(element);
  }
  template <typename T>
  requires std::is_class_v<T>
  void operator()(T& structure) { FieldsOf(*this, structure); }

  PayloadWriter& out() { return out_; }

 private:
  PayloadWriter out_;
};

class FieldReader {
 public:
  explicit FieldReader(std::span<const std::byte> payload) : in_(payload) {}

  void operator()(uint8_t& value) { value = in_.U8(); }
  void operator()(uint32_t& value) { value = in_.U32(); }
  void operator()(uint64_t& value) { value = in_.U64(); }
  void operator()(int32_t& value) { value = in_.I32(); }
  void operator()(double& value) { value = in_.F64(); }
  void operator()(std::string& text, size_t max) { text = in_.String(max); }
  void operator()(std::vector<std::byte>& bytes, size_t max) { bytes = in_.Bytes(max); }
  template <typename E>
  requires std::is_enum_v<E>
  void operator()(E& value) {
    uint8_t number = in_.U8();
    if (number > kLastOf<E>) {
      values_ok_ = false;
    } else {
      value = static_cast<E>(number);
    }
  }
  template <typename T>
  void operator()(std::vector<T>& list) {
    // Every element takes a byte at least, so a count never makes us loop far beyond the payload.
    uint32_t count = in_.Count(1);
    list.clear();
    for (uint32_t i = 0; i < count && in_.ok(); i++) (*this)(list.emplace_back());
  }
  template <typename T>
  requires std::is_class_v<T>
  void operator()(T& structure) { FieldsOf(*this, structure); }

  Status Finish() const {
    RETURN_IF_ERROR(in_.Finish());
    return values_ok_ ? Status() : Status(StatusCode::kCorrupt, "a value is outside its enumeration");
  }
  PayloadReader& in() { return in_; }

 private:
  PayloadReader in_;
  bool values_ok_ = true;
};

template <typename T>
Result<T> ParseFields(std::span<const std::byte> payload) {
  T value;
  FieldReader reader(payload);
  value.Fields(reader);
  RETURN_IF_ERROR(reader.Finish());
  return value;
}

// Tries the alternatives of a variant in turn until one has the message's type.
template <typename Variant, size_t index = 0>
Result<Variant> ParseAs(const Message& message) {
  if constexpr (index == std::variant_size_v<Variant>) {
    return Errorf(StatusCode::kCorrupt, "unknown message type %u", message.type);
  } else {
    using T = std::variant_alternative_t<index, Variant>;
    if (message.type != static_cast<uint32_t>(T::kType)) return ParseAs<Variant, index + 1>(message);
    ASSIGN_OR_RETURN(T value, ParseFields<T>(message.payload));
    return Variant(std::move(value));
  }
}

template <typename Variant>
Message EncodeVariant(Variant& value, uint64_t request_id) {
  Message message;
  message.request_id = request_id;
  std::visit(
      [&](auto& alternative) {
        FieldWriter writer;
        alternative.Fields(writer);
        message.type = static_cast<uint32_t>(alternative.kType);
        message.payload = writer.out().Take();
      },
      value);
  return message;
}

Message NewReply(uint64_t request_id, FieldWriter& writer) {
  Message message;
  message.type = static_cast<uint32_t>(MessageType::kReply);
  message.request_id = request_id;
  message.payload = writer.out().Take();
  return message;
}

}  // namespace

bool HasReply(MessageType type) {
  return type != MessageType::kSliceRequest && type != MessageType::kSliceRelease &&
         type != MessageType::kCheckpointReply && type != MessageType::kBye;
}

Result<Request> ParseRequest(Message message) {
  ASSIGN_OR_RETURN(Request request, ParseAs<Request>(message));
  MessageType type = static_cast<MessageType>(message.type);
  if (HasReply(type) != (message.request_id != 0)) {
    return Errorf(StatusCode::kCorrupt, "message type %u with request id %llu", message.type,
                  static_cast<unsigned long long>(message.request_id));
  }
  size_t fds = type == MessageType::kMemImport ? 1 : 0;
  if (message.fds.size() != fds) {
    return Errorf(StatusCode::kCorrupt, "message type %u with %zu descriptors", message.type,
                  message.fds.size());
  }
  if (fds == 1) std::get<MemImportRequest>(request).token = std::move(message.fds[0]);
  return request;
}

Result<Event> ParseEvent(const Message& message) { return ParseAs<Event>(message); }

Message Encode(Request request, uint64_t request_id) {
  Message message = EncodeVariant(request, request_id);
  if (MemImportRequest* import = std::get_if<MemImportRequest>(&request)) {
    message.fds.push_back(std::move(import->token));
  }
  return message;
}

Message Encode(Event event) { return EncodeVariant(event, 0); }

Message EncodeReply(uint64_t request_id, const Status& status) {
  FieldWriter writer;
  writer.out().U32(static_cast<uint32_t>(status.code()));
  writer.out().String(status.message().substr(0, kMaxStatusMessage));
  return NewReply(request_id, writer);
}

template <typename Body>
Message EncodeReply(uint64_t request_id, Body body) {
  FieldWriter writer;
  writer.out().U32(0);
  writer.out().String("");
  body.Fields(writer);
  return NewReply(request_id, writer);
}

template <typename Body>
Result<Body> ParseReply(const Message& message) {
  FieldReader reader(message.payload);
  uint32_t code = reader.in().U32();
  std::string text = reader.in().String(kMaxStatusMessage);
  if (!reader.in().ok() || code > kLastStatusCode) return Status(StatusCode::kCorrupt, "malformed answer");
  if (code != 0) return Status(static_cast<StatusCode>(code), std::move(text));
  Body body;
  body.Fields(reader);
  RETURN_IF_ERROR(reader.Finish().WithContext("answer"));
  return body;
}

#define SOFTGPU_INSTANTIATE(Body)               \
  template Message EncodeReply(uint64_t, Body); \
  template Result<Body> ParseReply(const Message&)
SOFTGPU_INSTANTIATE(EmptyBody);
SOFTGPU_INSTANTIATE(DevicesBody);
SOFTGPU_INSTANTIATE(HelloBody);
SOFTGPU_INSTANTIATE(AllocationBody);
SOFTGPU_INSTANTIATE(MemInfoBody);
SOFTGPU_INSTANTIATE(CheckpointBody);
SOFTGPU_INSTANTIATE(InventoryBody);
#undef SOFTGPU_INSTANTIATE

}  // namespace softgpu
