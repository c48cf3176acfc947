#include "softgpu/device/protocol.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include "softgpu/device/config.h"

namespace softgpu {
namespace {

using stasis::Fd;
using stasis::Message;
using stasis::Result;
using stasis::Status;
using stasis::StatusCode;

// Encodes and parses; the id is what the type wants.
template <typename T>
T RoundTrip(T request) {
  Result<Request> parsed = ParseRequest(Encode(Request(std::move(request)), HasReply(T::kType) ? 5 : 0));
  EXPECT_TRUE(parsed.ok()) << parsed.status().ToString();
  return std::get<T>(std::move(parsed).value());
}

TEST(ProtocolTest, RequestsComeBackTheSame) {
  HelloRequest hello = RoundTrip(HelloRequest{3, 2, "trainer"});
  EXPECT_EQ(hello.protocol, 3u);
  EXPECT_EQ(hello.flags, 2);
  EXPECT_EQ(hello.name, "trainer");
  EXPECT_EQ(RoundTrip(MemCreateRequest{1, 1ull << 33}).size, 1ull << 33);
  EXPECT_EQ(RoundTrip(CtxDestroyRequest{7}).device, 7u);
  EXPECT_EQ(RoundTrip(SliceRequest{1, 99}).serial, 99u);
  CheckpointProcessRequest checkpoint =
      RoundTrip(CheckpointProcessRequest{123, CheckpointOp::kRestore, 10, 20, {std::byte{1}, std::byte{2}}});
  EXPECT_EQ(checkpoint.pid, 123);
  EXPECT_EQ(checkpoint.op, CheckpointOp::kRestore);
  EXPECT_EQ(checkpoint.args.size(), 2u);
  EXPECT_EQ(RoundTrip(CheckpointReplyRequest{4, {-3, ProcessState::kFailed, 8}}).result.state,
            ProcessState::kFailed);
  Fault fault{.kind = FaultKind::kSlow, .factor = 0.5};
  EXPECT_EQ(RoundTrip(InjectFaultRequest{1, fault}).fault, fault);
  (void)RoundTrip(ByeRequest{});
  (void)RoundTrip(InventoryRequest{});
}

TEST(ProtocolTest, ImportCarriesItsDescriptor) {
  MemImportRequest import;
  import.token = Fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_TRUE(RoundTrip(std::move(import)).token.valid());
  Message without = Encode(MemInfoRequest{0}, 1);
  without.type = static_cast<uint32_t>(MessageType::kMemImport);
  without.payload.clear();
  EXPECT_EQ(ParseRequest(std::move(without)).status().code(), StatusCode::kCorrupt);
  Message surplus = Encode(MemInfoRequest{0}, 1);
  surplus.fds.emplace_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(ParseRequest(std::move(surplus)).status().code(), StatusCode::kCorrupt);
}

TEST(ProtocolTest, MalformedRequestsAreCorrupt) {
  auto code = [](Message message) { return ParseRequest(std::move(message)).status().code(); };
  EXPECT_EQ(code(Message{0, 1, {}, {}}), StatusCode::kCorrupt);
  EXPECT_EQ(code(Message{200, 0, {}, {}}), StatusCode::kCorrupt) << "an event is no request";
  EXPECT_EQ(code(Encode(MemInfoRequest{0}, 0)), StatusCode::kCorrupt) << "no id, but an answer";
  EXPECT_EQ(code(Encode(ByeRequest{}, 3)), StatusCode::kCorrupt) << "an id, but no answer";
  Message longer = Encode(MemInfoRequest{0}, 1);
  longer.payload.push_back(std::byte{0});
  EXPECT_EQ(code(std::move(longer)), StatusCode::kCorrupt);
  Message shorter = Encode(MemInfoRequest{0}, 1);
  shorter.payload.pop_back();
  EXPECT_EQ(code(std::move(shorter)), StatusCode::kCorrupt);
  Message operation = Encode(CheckpointProcessRequest{}, 1);
  operation.payload[4] = std::byte{5};
  EXPECT_EQ(code(std::move(operation)), StatusCode::kCorrupt);
  HelloRequest hello;
  hello.name = std::string(1000, 'x');
  EXPECT_EQ(RoundTrip(hello).name.size(), kMaxNameLength) << "the sender cuts what would be refused";
}

TEST(ProtocolTest, RepliesCarryBodyOrStatus) {
  Result<MemInfoBody> body = ParseReply<MemInfoBody>(EncodeReply(3, MemInfoBody{{1, 2}}));
  ASSERT_TRUE(body.ok());
  EXPECT_EQ(body->info.total_bytes, 2u);
  Message failed = EncodeReply(4, Status(StatusCode::kResourceExhausted, "full"));
  EXPECT_EQ(failed.request_id, 4u);
  EXPECT_EQ(ParseReply<MemInfoBody>(failed).status().ToString(), "RESOURCE_EXHAUSTED: full");
  EXPECT_TRUE(ParseReply<EmptyBody>(EncodeReply(4, Status())).ok());
  EXPECT_EQ(ParseReply<MemInfoBody>(EncodeReply(4, Status())).status().code(), StatusCode::kCorrupt);
  Message strange = EncodeReply(4, Status());
  strange.payload[0] = std::byte{200};
  EXPECT_EQ(ParseReply<EmptyBody>(strange).status().code(), StatusCode::kCorrupt);
}

TEST(ProtocolTest, InventoryComesBackTheSame) {
  NodeConfig config;
  config.gpus = 2;
  config.h2d_gbps = 12.5;
  std::vector<DeviceInfo> infos = BuildDevices(config, "x");
  infos[1].health = Health::kEccError;
  infos[1].slow_factor = 0.5;
  Inventory inventory{"node", 77, {{infos[0], 5, false, 0}, {infos[1], 6, true, 3}}, {}};
  inventory.processes.push_back({9, 1000, "p", ProcessState::kLocked, {1, 0}, {4096, 0}});
  Result<InventoryBody> body = ParseReply<InventoryBody>(EncodeReply(1, InventoryBody{inventory}));
  ASSERT_TRUE(body.ok()) << body.status().ToString();
  const Inventory& got = body->inventory;
  EXPECT_EQ(got.node_name, "node");
  EXPECT_EQ(got.daemon_pid, 77);
  ASSERT_EQ(got.devices.size(), 2u);
  EXPECT_EQ(got.devices[1].info.uuid, infos[1].uuid);
  EXPECT_EQ(got.devices[1].info.health, Health::kEccError);
  EXPECT_EQ(got.devices[1].info.slow_factor, 0.5);
  EXPECT_EQ(got.devices[1].info.h2d_gbps, 12.5);
  EXPECT_EQ(got.devices[1].info.peer_access, infos[1].peer_access);
  EXPECT_TRUE(got.devices[1].oom_armed);
  EXPECT_EQ(got.devices[1].oom_after, 3u);
  ASSERT_EQ(got.processes.size(), 1u);
  EXPECT_EQ(got.processes[0].memory_bytes, inventory.processes[0].memory_bytes);
  EXPECT_EQ(got.processes[0].state, ProcessState::kLocked);
}

}  // namespace
}  // namespace softgpu
