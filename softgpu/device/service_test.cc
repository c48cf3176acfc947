#include "softgpu/device/service.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "softgpu/device/fake_environment.h"

namespace softgpu {
namespace {

using stasis::Fd;
using stasis::Message;
using stasis::Result;
using stasis::Status;
using stasis::StatusCode;
using ::testing::ElementsAre;

class ServiceTest : public ::testing::Test {
 protected:
  static NodeConfig Config() {
    NodeConfig config;
    config.gpus = 2;
    config.memory_bytes = 10 * kMemoryGranularity;
    return config;
  }

  ClientId Attach(pid_t pid, uint8_t flags = 0) {
    environment_.users[pid] = 1000;
    Result<ClientId> id = service_.Attach({pid, 1000, 1000});
    EXPECT_TRUE(id.ok());
    EXPECT_TRUE(Ask<HelloBody>(*id, HelloRequest{kProtocolVersion, flags, "p"}).ok());
    return *id;
  }
  // Handles a request and returns the answer's message; events are kept in events_.
  Message Call(ClientId id, Request request) {
    EXPECT_TRUE(service_.Handle(id, Encode(std::move(request), ++request_)).ok());
    Message answer;
    for (auto& [to, message] : service_.Take().messages) {
      if (message.type == static_cast<uint32_t>(MessageType::kReply) && to == id) {
        answer = std::move(message);
      } else {
        events_.emplace_back(to, ParseEvent(message).value());
      }
    }
    EXPECT_EQ(answer.request_id, request_);
    return answer;
  }
  template <typename Body>
  Result<Body> Ask(ClientId id, Request request) {
    return ParseReply<Body>(Call(id, std::move(request)));
  }
  uint64_t Used(uint32_t device) {
    Result<MemInfoBody> info =
        Ask<MemInfoBody>(Attach(getpid(), HelloRequest::kObserver), MemInfoRequest{device});
    return (info->info.total_bytes - info->info.free_bytes) / kMemoryGranularity;
  }

  FakeEnvironment environment_;
  Service service_{Config(), "test", &environment_};
  uint64_t request_ = 0;
  std::vector<std::pair<ClientId, Event>> events_;
};

TEST_F(ServiceTest, NothingBeforeHelloAndHelloOnce) {
  environment_.users[5] = 1;
  ClientId id = service_.Attach({5, 1, 1}).value();
  EXPECT_EQ(service_.Handle(id, Encode(DevicesRequest{}, 1)).code(), StatusCode::kCorrupt);
  ClientId other = Attach(5);
  EXPECT_EQ(service_.Handle(other, Encode(HelloRequest{}, 1)).code(), StatusCode::kCorrupt);
}

TEST_F(ServiceTest, OtherProtocolIsRefusedInWords) {
  environment_.users[5] = 1;
  ClientId id = service_.Attach({5, 1, 1}).value();
  Result<HelloBody> answer = Ask<HelloBody>(id, HelloRequest{9, 0, ""});
  EXPECT_EQ(answer.status().code(), StatusCode::kUnsupported);
}

TEST_F(ServiceTest, ClientOfADeadProcessIsRefused) {
  EXPECT_EQ(service_.Attach({77, 0, 0}).status().code(), StatusCode::kNotFound);
}

TEST_F(ServiceTest, MemoryArrivesAsItsFile) {
  ClientId id = Attach(5);
  Message answer = Call(id, MemCreateRequest{1, 2 * kMemoryGranularity});
  ASSERT_EQ(answer.fds.size(), 1u);
  struct stat info {};
  ASSERT_EQ(fstat(answer.fds[0].get(), &info), 0);
  EXPECT_EQ(static_cast<uint64_t>(info.st_size), 2 * kMemoryGranularity);
  EXPECT_EQ(ParseReply<AllocationBody>(answer)->device, 1u);
  EXPECT_EQ(Used(1), 2u);
  EXPECT_EQ(Used(0), 0u);
}

TEST_F(ServiceTest, ByeGivesBackBeforeTheConnectionCloses) {
  ClientId id = Attach(5);
  (void)Call(id, MemCreateRequest{0, kMemoryGranularity});
  ASSERT_TRUE(service_.Handle(id, Encode(ByeRequest{}, 0)).ok());
  EXPECT_EQ(Used(0), 0u);
  EXPECT_EQ(service_.Handle(id, Encode(DevicesRequest{}, 1)).code(), StatusCode::kCorrupt);
}

TEST_F(ServiceTest, ProcessExitDropsItsConnections) {
  ClientId first = Attach(5);
  ClientId second = Attach(5, HelloRequest::kObserver);
  (void)Attach(6);
  environment_.users.erase(5);
  service_.ProcessExited(5);
  EXPECT_THAT(service_.Take().dropped, ElementsAre(first, second));
  service_.Detach(first);
  service_.Detach(second);
  EXPECT_EQ(environment_.watched.count(5), 0u);
  EXPECT_EQ(environment_.watched.count(6), 2u) << "as a client and as a target";
}

TEST_F(ServiceTest, TokenKeepsMemoryAndImportsIt) {
  ClientId exporter = Attach(5);
  ClientId importer = Attach(6);
  uint64_t id = ParseReply<AllocationBody>(Call(exporter, MemCreateRequest{0, kMemoryGranularity}))->id;
  Message exported = Call(exporter, MemExportRequest{id});
  ASSERT_EQ(exported.fds.size(), 1u);
  ASSERT_EQ(environment_.tokens.size(), 1u);
  uint64_t token = environment_.tokens.begin()->second;
  service_.Detach(exporter);
  EXPECT_EQ(Used(0), 1u);
  MemImportRequest import;
  import.token = exported.fds[0].Duplicate();
  Message imported = Call(importer, std::move(import));
  EXPECT_EQ(ParseReply<AllocationBody>(imported)->id, id);
  service_.TokenClosed(token);
  EXPECT_EQ(Used(0), 1u);
  EXPECT_TRUE(environment_.tokens.empty());
  ASSERT_TRUE(Ask<EmptyBody>(importer, MemReleaseRequest{id}).ok());
  EXPECT_EQ(Used(0), 0u);
}

TEST_F(ServiceTest, WhatIsClosedBeforeARequestIsFreeInItsAnswer) {
  ClientId client = Attach(5);
  uint64_t id = ParseReply<AllocationBody>(Call(client, MemCreateRequest{0, kMemoryGranularity}))->id;
  Message exported = Call(client, MemExportRequest{id});
  ASSERT_TRUE(Ask<EmptyBody>(client, MemReleaseRequest{id}).ok());
  auto used = [&] {
    MemoryInfo info = Ask<MemInfoBody>(client, MemInfoRequest{0})->info;
    return info.total_bytes - info.free_bytes;
  };
  EXPECT_EQ(used(), kMemoryGranularity);
  exported.fds.clear();
  EXPECT_EQ(used(), 0u);
  EXPECT_TRUE(environment_.tokens.empty());
}

TEST_F(ServiceTest, ForeignDescriptorsAreNoTokens) {
  ClientId id = Attach(5);
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  Fd read_end(ends[0]);
  Fd write_end(ends[1]);
  for (int fd : {write_end.get(), open("/dev/null", O_RDONLY | O_CLOEXEC)}) {
    MemImportRequest import;
    import.token = Fd(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    EXPECT_EQ(Ask<AllocationBody>(id, std::move(import)).status().code(), StatusCode::kInvalidArgument);
  }
}

TEST_F(ServiceTest, LostDeviceIsToldToAllConcerned) {
  ClientId with_context = Attach(5);
  ClientId with_slice = Attach(6);
  ClientId bystander = Attach(7);
  ASSERT_TRUE(Ask<EmptyBody>(with_context, CtxCreateRequest{0}).ok());
  ASSERT_TRUE(Ask<EmptyBody>(bystander, CtxCreateRequest{1}).ok());
  ASSERT_TRUE(service_.Handle(with_slice, Encode(SliceRequest{0, 1}, 0)).ok());
  (void)service_.Take();
  Fault lost{.kind = FaultKind::kFellOffBus};
  ASSERT_TRUE(Ask<EmptyBody>(bystander, InjectFaultRequest{0, lost}).ok());
  ASSERT_EQ(events_.size(), 2u);
  EXPECT_EQ(events_[0].first, with_context);
  EXPECT_EQ(events_[1].first, with_slice);
  EXPECT_EQ(std::get<DeviceFaultEvent>(events_[0].second).fault, lost);
  // A request for its compute is answered by the same event.
  ASSERT_TRUE(service_.Handle(bystander, Encode(SliceRequest{0, 1}, 0)).ok());
  Service::Output output = service_.Take();
  ASSERT_EQ(output.messages.size(), 1u);
  EXPECT_EQ(output.messages[0].second.type, static_cast<uint32_t>(MessageType::kDeviceFault));
}

TEST_F(ServiceTest, LateContextLearnsThatItsDeviceIsSlow) {
  ClientId id = Attach(5);
  Fault slow{.kind = FaultKind::kSlow, .factor = 0.5};
  ASSERT_TRUE(Ask<EmptyBody>(id, InjectFaultRequest{0, slow}).ok());
  EXPECT_TRUE(events_.empty());
  ASSERT_TRUE(Ask<EmptyBody>(id, CtxCreateRequest{0}).ok());
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_EQ(std::get<DeviceFaultEvent>(events_[0].second).fault, slow);
}

TEST_F(ServiceTest, SliceOfADeadHolderGoesOn) {
  ClientId holder = Attach(5);
  ClientId waiter = Attach(6);
  ASSERT_TRUE(service_.Handle(holder, Encode(SliceRequest{0, 1}, 0)).ok());
  ASSERT_TRUE(service_.Handle(waiter, Encode(SliceRequest{0, 2}, 0)).ok());
  (void)service_.Take();
  service_.Detach(holder);
  Service::Output output = service_.Take();
  ASSERT_EQ(output.messages.size(), 1u);
  EXPECT_EQ(output.messages[0].first, waiter);
  EXPECT_EQ(std::get<SliceGrantedEvent>(ParseEvent(output.messages[0].second).value()).serial, 2u);
  ASSERT_TRUE(service_.Handle(waiter, Encode(SliceReleaseRequest{77}, 0)).ok()) << "no such device: ignored";
}

TEST_F(ServiceTest, BusyWhileAnybodyNeedsIt) {
  EXPECT_FALSE(service_.Busy());
  (void)Attach(4, HelloRequest::kObserver);
  EXPECT_FALSE(service_.Busy());
  ClientId id = Attach(5);
  EXPECT_TRUE(service_.Busy());
  uint64_t memory = ParseReply<AllocationBody>(Call(id, MemCreateRequest{0, kMemoryGranularity}))->id;
  Message exported = Call(id, MemExportRequest{memory});
  service_.Detach(id);
  EXPECT_TRUE(service_.Busy()) << "exported memory outlives its exporter";
  service_.TokenClosed(environment_.tokens.begin()->second);
  EXPECT_FALSE(service_.Busy());
}

TEST_F(ServiceTest, InventoryListsProcessesNotTools) {
  ClientId id = Attach(5);
  ClientId tool = Attach(6, HelloRequest::kObserver);
  ASSERT_TRUE(Ask<EmptyBody>(id, CtxCreateRequest{1}).ok());
  (void)Call(id, MemCreateRequest{1, kMemoryGranularity});
  Inventory inventory = Ask<InventoryBody>(tool, InventoryRequest{})->inventory;
  ASSERT_EQ(inventory.processes.size(), 1u);
  EXPECT_EQ(inventory.processes[0].pid, 5);
  EXPECT_THAT(inventory.processes[0].contexts, ElementsAre(0, 1));
  EXPECT_THAT(inventory.processes[0].memory_bytes, ElementsAre(0, kMemoryGranularity));
  EXPECT_EQ(inventory.devices[1].used_bytes, kMemoryGranularity);
}

}  // namespace
}  // namespace softgpu
