#include "base/message.h"

#include <dirent.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <string>
#include <thread>

#include "base/unix_socket.h"

namespace stasis {
namespace {

constexpr Duration kLong = std::chrono::seconds(60);

Deadline Soon() { return Deadline::After(kLong); }

Fd FileWithByte(uint8_t value) {
  Fd file(memfd_create("message_test", MFD_CLOEXEC));
  EXPECT_EQ(write(file.get(), &value, 1), 1);
  return file;
}

int ByteOf(const Fd& file) {
  uint8_t value = 0;
  return pread(file.get(), &value, 1, 0) == 1 ? value : -1;
}

size_t OpenDescriptors() {
  DIR* folder = opendir("/proc/self/fd");
  size_t count = 0;
  while (readdir(folder) != nullptr) count++;
  closedir(folder);
  return count;
}

std::vector<std::byte> Pattern(size_t size) {
  std::mt19937 random(static_cast<uint32_t>(size));
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

class MessageTest : public ::testing::Test {
 protected:
  MessageTest() {
    std::pair<Fd, Fd> pair = UnixSocketPair().value();
    left_ = std::move(pair.first);
    right_ = std::move(pair.second);
  }
  Result<Message> Receive() { return ReceiveMessage(right_.get(), decoder_, Soon()); }
  // Sends raw bytes, with copies of `fds`.
  void SendRaw(const void* data, size_t size, const std::vector<int>& fds = {}) {
    iovec part{const_cast<void*>(data), size};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    std::vector<char> control(CMSG_SPACE(sizeof(int) * fds.size()));
    if (!fds.empty()) {
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      cmsghdr* c = CMSG_FIRSTHDR(&message);
      c->cmsg_level = SOL_SOCKET;
      c->cmsg_type = SCM_RIGHTS;
      c->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
      std::memcpy(CMSG_DATA(c), fds.data(), sizeof(int) * fds.size());
    }
    ASSERT_EQ(sendmsg(left_.get(), &message, MSG_NOSIGNAL), static_cast<ssize_t>(size));
  }

  Fd left_, right_;
  MessageDecoder decoder_;
};

TEST_F(MessageTest, CarriesTypeIdAndPayload) {
  for (size_t size : {0, 1, 100, 65536, 65537, 200000}) {
    std::vector<std::byte> payload = Pattern(size);
    Message message{7, 1ull << 40, payload, {}};
    // From another thread: the larger ones do not fit into the socket's buffer.
    std::thread sender([&] { EXPECT_TRUE(SendMessage(left_.get(), std::move(message), Soon()).ok()); });
    Result<Message> got = Receive();
    sender.join();
    ASSERT_TRUE(got.ok()) << got.status().ToString();
    EXPECT_EQ(got->type, 7u);
    EXPECT_EQ(got->request_id, 1ull << 40);
    EXPECT_EQ(got->payload, payload);
  }
}

TEST_F(MessageTest, ManyMessagesKeepTheirDescriptors) {
  for (uint8_t i = 0; i < 20; i++) {
    Message message{i, i, Pattern(i), {}};
    for (uint8_t j = 0; j < i % 4; j++) message.fds.push_back(FileWithByte(static_cast<uint8_t>(i * 8 + j)));
    ASSERT_TRUE(SendMessage(left_.get(), std::move(message), Soon()).ok());
  }
  for (uint8_t i = 0; i < 20; i++) {
    Result<Message> got = Receive();
    ASSERT_TRUE(got.ok()) << got.status().ToString();
    ASSERT_EQ(got->fds.size(), i % 4u);
    for (uint8_t j = 0; j < i % 4; j++) EXPECT_EQ(ByteOf(got->fds[j]), i * 8 + j);
  }
}

TEST_F(MessageTest, MoreDescriptorsThanOneBatch) {
  for (size_t count : {253, 254, 506, 507, 700}) {
    size_t before = OpenDescriptors();
    Message message{1, 0, Pattern(1000), {}};
    for (size_t i = 0; i < count; i++) message.fds.push_back(FileWithByte(static_cast<uint8_t>(i * 7)));
    std::thread sender([&] { EXPECT_TRUE(SendMessage(left_.get(), std::move(message), Soon()).ok()); });
    Result<Message> got = Receive();
    sender.join();
    ASSERT_TRUE(got.ok()) << got.status().ToString();
    ASSERT_EQ(got->fds.size(), count);
    EXPECT_EQ(got->payload, Pattern(1000));
    for (size_t i = 0; i < count; i++) ASSERT_EQ(ByteOf(got->fds[i]), static_cast<uint8_t>(i * 7)) << i;
    EXPECT_NE(fcntl(got->fds[0].get(), F_GETFD) & FD_CLOEXEC, 0);
    got->fds.clear();
    EXPECT_EQ(OpenDescriptors(), before);
  }
}

TEST_F(MessageTest, SenderRefusesWhatIsBeyondTheLimits) {
  MessageLimits limits{10, 1};
  EXPECT_EQ(SendMessage(left_.get(), Message{1, 0, Pattern(11), {}}, Soon(), limits).code(),
            StatusCode::kInvalidArgument);
  Message two{1, 0, {}, {}};
  two.fds.push_back(FileWithByte(0));
  two.fds.push_back(FileWithByte(0));
  EXPECT_EQ(SendMessage(left_.get(), std::move(two), Soon(), limits).code(), StatusCode::kInvalidArgument);
  left_.Reset();
  EXPECT_EQ(Receive().status().message(), "the peer closed the connection");
}

TEST_F(MessageTest, PeerDeathIsToldApart) {
  left_.Reset();
  EXPECT_EQ(Receive().status().code(), StatusCode::kPeerDied);
  EXPECT_EQ(SendMessage(right_.get(), Message{}, Soon()).code(), StatusCode::kPeerDied);
}

TEST_F(MessageTest, PeerDeathInTheMiddle) {
  MessageHeader header{kMessageMagic, kMessageVersion, 0, 1, 100, 0};
  SendRaw(&header, sizeof header);
  left_.Reset();
  Status status = Receive().status();
  EXPECT_EQ(status.code(), StatusCode::kPeerDied);
  EXPECT_NE(status.message().find("middle"), std::string_view::npos);
}

TEST_F(MessageTest, ReceiveTimesOutAndContinues) {
  MessageHeader header{kMessageMagic, kMessageVersion, 0, 5, 3, 9};
  SendRaw(&header, 10);
  Deadline now = Deadline::After(Duration::zero());
  EXPECT_EQ(ReceiveMessage(right_.get(), decoder_, now).status().code(), StatusCode::kTimeout);
  SendRaw(reinterpret_cast<char*>(&header) + 10, sizeof header - 10);
  EXPECT_EQ(ReceiveMessage(right_.get(), decoder_, now).status().code(), StatusCode::kTimeout);
  SendRaw("abc", 3);
  Result<Message> got = Receive();
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->type, 5u);
  EXPECT_EQ(got->payload.size(), 3u);
}

TEST_F(MessageTest, SendTimesOutWhenNobodyReads) {
  Status status = SendMessage(left_.get(), Message{1, 0, Pattern(8 << 20), {}},
                              Deadline::After(std::chrono::milliseconds(20)));
  EXPECT_EQ(status.code(), StatusCode::kTimeout);
}

struct BadHeader {
  const char* name;
  MessageHeader header;
};

class BadHeaderTest : public MessageTest, public ::testing::WithParamInterface<BadHeader> {};

TEST_P(BadHeaderTest, IsCorruptAndLeaksNothing) {
  size_t before = OpenDescriptors();
  SendRaw(&GetParam().header, sizeof(MessageHeader), {right_.get()});
  EXPECT_EQ(Receive().status().code(), StatusCode::kCorrupt);
  decoder_ = MessageDecoder();
  EXPECT_EQ(OpenDescriptors(), before);
}

INSTANTIATE_TEST_SUITE_P(
    Headers, BadHeaderTest,
    ::testing::Values(BadHeader{"magic", {0x12345678, kMessageVersion, 1, 1, 0, 0}},
                      BadHeader{"version", {kMessageMagic, 2, 1, 1, 0, 0}},
                      BadHeader{"payload", {kMessageMagic, kMessageVersion, 1, 1, (16u << 20) + 1, 0}},
                      BadHeader{"fds", {kMessageMagic, kMessageVersion, 4097, 1, 0, 0}},
                      BadHeader{"fewer_than_came", {kMessageMagic, kMessageVersion, 0, 1, 5, 0}},
                      BadHeader{"more_than_came", {kMessageMagic, kMessageVersion, 2, 1, 0, 0}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_F(MessageTest, DescriptorsInTheMiddleOfThePayloadCount) {
  MessageHeader header{kMessageMagic, kMessageVersion, 0, 1, 4, 0};
  SendRaw(&header, sizeof header);
  SendRaw("ab", 2, {right_.get()});
  EXPECT_EQ(Receive().status().code(), StatusCode::kCorrupt);
}

TEST(MessageDecoderTest, AnyCutOfTheStreamGivesTheSameMessages) {
  std::vector<std::byte> stream;
  for (uint32_t size : {0u, 5u, 70000u, 1u}) {
    MessageHeader header{kMessageMagic, kMessageVersion, 0, size, size, size};
    const std::byte* bytes = reinterpret_cast<const std::byte*>(&header);
    stream.insert(stream.end(), bytes, bytes + sizeof header);
    std::vector<std::byte> payload = Pattern(size);
    stream.insert(stream.end(), payload.begin(), payload.end());
  }
  for (uint32_t seed = 0; seed < 20; seed++) {
    std::mt19937 random(seed);
    MessageDecoder decoder;
    std::vector<size_t> sizes;
    for (size_t at = 0; at < stream.size();) {
      std::span<std::byte> window = decoder.Window();
      size_t most = std::min(window.size(), stream.size() - at);
      size_t size = seed == 0 ? 1 : 1 + random() % most;
      std::memcpy(window.data(), stream.data() + at, size);
      ASSERT_TRUE(decoder.Commit(size, {}).ok());
      at += size;
      if (!decoder.complete()) continue;
      Message message = decoder.Take();
      EXPECT_EQ(message.payload, Pattern(message.type));
      sizes.push_back(message.payload.size());
    }
    EXPECT_THAT(sizes, ::testing::ElementsAre(0, 5, 70000, 1));
    EXPECT_TRUE(decoder.empty());
  }
}

TEST(MessageDecoderTest, MemoryGrowsWithWhatCame) {
  MessageDecoder decoder;
  MessageHeader header{kMessageMagic, kMessageVersion, 0, 1, 16u << 20, 0};
  std::memcpy(decoder.Window().data(), &header, sizeof header);
  ASSERT_TRUE(decoder.Commit(sizeof header, {}).ok());
  EXPECT_LE(decoder.Window().size(), 64u << 10);
}

}  // namespace
}  // namespace stasis
