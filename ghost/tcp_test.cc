#include "ghost/tcp.h"

#include <gtest/gtest.h>

namespace stasis {
namespace {

TcpAddress At(const std::string& text) {
  Result<TcpAddress> address = ParseTcpAddress(text);
  EXPECT_TRUE(address.ok()) << text;
  return address.ok() ? *address : TcpAddress();
}

TcpSocket Socket(uint64_t inode, TcpState state, const std::string& local, const std::string& remote) {
  return {inode, state, At(local), At(remote), 0};
}

TEST(TcpAddressTest, TextComesBack) {
  for (const char* text : {"127.0.0.1:80", "0.0.0.0:0", "[::]:1", "[fe80::1]:65535"}) {
    EXPECT_EQ(At(text).Text(), text);
  }
  EXPECT_EQ(At("[::ffff:10.0.0.1]:5").Text(), "10.0.0.1:5");
  for (const char* text : {"", ":", "1.2.3.4", "1.2.3.4:", "1.2.3.4:x", "1.2.3:4", "1.2.3.4:65536",
                           "1.2.3.4:-1", "[::1:5", "::1:5", "[]:5"}) {
    EXPECT_EQ(ParseTcpAddress(text).status().code(), StatusCode::kInvalidArgument) << text;
  }
}

TEST(TcpAddressTest, AnyAddressOverlapsEveryOther) {
  EXPECT_TRUE(At("0.0.0.0:80").Overlaps(At("10.0.0.1:80")));
  EXPECT_TRUE(At("10.0.0.1:80").Overlaps(At("[::]:80")));
  EXPECT_FALSE(At("10.0.0.1:80").Overlaps(At("10.0.0.2:80")));
  EXPECT_FALSE(At("0.0.0.0:80").Overlaps(At("0.0.0.0:81")));
}

// Lines as Linux writes them on a little-endian machine.
TEST(TcpTableTest, LinesOfTheKernelAreRead) {
  std::vector<TcpSocket> sockets = ParseTcpTable(
      "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
      "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000003 00:00000000 00000000     0        0 77 1 0 "
      "100\n"
      "   1: 0100007F:1F90 0200000A:C350 01 00000000:00000009 00:00000000 00000000     0        0 78 1 0 "
      "100\n"
      "   2: 0000000000000000FFFF00000100007F:1F90 00000000000000000000000000000000:0000 06 "
      "00000000:00000000 "
      "03:00000000 00000000     0        0 0 1 0\n"
      "   3: nonsense\n");
  ASSERT_EQ(sockets.size(), 3u);
  EXPECT_EQ(sockets[0].inode, 77u);
  EXPECT_EQ(sockets[0].state, TcpState::kListening);
  EXPECT_EQ(sockets[0].local.Text(), "127.0.0.1:8080");
  EXPECT_EQ(sockets[0].unaccepted, 3u);
  EXPECT_FALSE(sockets[0].connected());
  EXPECT_EQ(sockets[1].remote.Text(), "10.0.0.2:50000");
  EXPECT_EQ(sockets[1].unaccepted, 0u);
  EXPECT_TRUE(sockets[1].connected());
  EXPECT_EQ(sockets[2].local.Text(), "127.0.0.1:8080");
}

TEST(TcpRuleTest, WhereTheOtherEndIs) {
  const std::set<TcpAddress> local = {At("10.0.0.1:0")};
  const std::set<uint64_t> tree = {1, 2, 3, 4};
  struct {
    TcpSocket socket;
    std::vector<TcpSocket> others;
    TcpVerdict verdict;
  } cases[] = {
      {Socket(1, TcpState::kEstablished, "10.0.0.1:5", "10.0.0.1:6"),
       {Socket(2, TcpState::kEstablished, "10.0.0.1:6", "10.0.0.1:5")},
       TcpVerdict::kCarried},
      // Half closed: both ends are there.
      {Socket(1, TcpState::kFinWait2, "10.0.0.1:5", "10.0.0.1:6"),
       {Socket(2, TcpState::kCloseWait, "10.0.0.1:6", "10.0.0.1:5")},
       TcpVerdict::kCarried},
      {Socket(1, TcpState::kEstablished, "10.0.0.1:5", "10.0.0.1:6"),
       {Socket(9, TcpState::kEstablished, "10.0.0.1:6", "10.0.0.1:5")},
       TcpVerdict::kOutside},
      {Socket(1, TcpState::kEstablished, "10.0.0.1:5", "10.0.0.2:6"), {}, TcpVerdict::kOutside},
      // It may have closed its half, and still listens to ours.
      {Socket(1, TcpState::kCloseWait, "10.0.0.1:5", "10.0.0.2:6"), {}, TcpVerdict::kOutside},
      // Translated addresses: what is not found is not known to be here.
      {Socket(1, TcpState::kEstablished, "127.0.0.1:5", "127.0.0.1:6"), {}, TcpVerdict::kOutside},
      {Socket(1, TcpState::kCloseWait, "127.0.0.1:5", "127.0.0.1:6"), {}, TcpVerdict::kCarried},
      {Socket(1, TcpState::kCloseWait, "127.0.0.1:5", "127.0.0.1:6"),
       {Socket(0, TcpState::kFinWait2, "127.0.0.1:6", "127.0.0.1:5")},
       TcpVerdict::kCarried},
      {Socket(1, TcpState::kEstablished, "127.0.0.1:5", "127.0.0.1:6"),
       {Socket(0, TcpState::kFinWait1, "127.0.0.1:6", "127.0.0.1:5")},
       TcpVerdict::kMoving},
      {Socket(1, TcpState::kEstablished, "127.0.0.1:5", "127.0.0.1:6"),
       {Socket(0, TcpState::kEstablished, "127.0.0.1:6", "127.0.0.1:5"),
        Socket(2, TcpState::kListening, "0.0.0.0:6", "0.0.0.0:0")},
       TcpVerdict::kNotAccepted},
      {Socket(1, TcpState::kEstablished, "127.0.0.1:5", "127.0.0.1:6"),
       {Socket(0, TcpState::kEstablished, "127.0.0.1:6", "127.0.0.1:5"),
        Socket(9, TcpState::kListening, "0.0.0.0:6", "0.0.0.0:0")},
       TcpVerdict::kOutside},
      {Socket(1, TcpState::kSynSent, "127.0.0.1:5", "127.0.0.1:6"),
       {Socket(2, TcpState::kListening, "127.0.0.1:6", "0.0.0.0:0")},
       TcpVerdict::kMoving},
      {Socket(1, TcpState::kSynSent, "127.0.0.1:5", "127.0.0.1:6"), {}, TcpVerdict::kOutside},
      {Socket(1, TcpState::kListening, "0.0.0.0:5", "0.0.0.0:0"), {}, TcpVerdict::kCarried},
      {Socket(1, TcpState::kClosed, "0.0.0.0:0", "0.0.0.0:0"), {}, TcpVerdict::kCarried},
  };
  int number = 0;
  for (auto& each : cases) {
    std::vector<TcpSocket> all = each.others;
    all.push_back(each.socket);
    EXPECT_EQ(JudgeTcp(each.socket, all, tree, local).verdict, each.verdict) << "case " << number;
    ++number;
  }
}

TEST(TcpRuleTest, ADumpHoldsBothEnds) {
  TcpSocket one = Socket(1, TcpState::kEstablished, "127.0.0.1:5", "127.0.0.1:6");
  TcpSocket other = Socket(2, TcpState::kEstablished, "127.0.0.1:6", "127.0.0.1:5");
  EXPECT_TRUE(CheckDumpedTcp({one, other}).ok());
  Status status = CheckDumpedTcp({one});
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_NE(std::string(status.message()).find("127.0.0.1:6"), std::string::npos);
  one.state = TcpState::kCloseWait;
  EXPECT_TRUE(CheckDumpedTcp({one}).ok());
}

TEST(TcpPlacesTest, WhatIsInTheWay) {
  const std::set<TcpAddress> local = {At("10.0.0.1:0")};
  TcpSocket listener = Socket(1, TcpState::kListening, "0.0.0.0:5", "0.0.0.0:0");
  TcpSocket connection = Socket(2, TcpState::kEstablished, "10.0.0.1:5", "10.0.0.1:6");
  EXPECT_TRUE(FindTcpPlaces({listener, connection}, {}, local).status.ok());
  EXPECT_EQ(FindTcpPlaces({connection}, {}, {}).status.code(), StatusCode::kNotFound);
  TcpSocket taken = Socket(9, TcpState::kListening, "10.0.0.1:5", "0.0.0.0:0");
  TcpPlaces places = FindTcpPlaces({listener}, {taken}, local);
  EXPECT_EQ(places.status.code(), StatusCode::kAlreadyExists);
  ASSERT_TRUE(places.taken_by.has_value());
  EXPECT_EQ(places.taken_by->inode, 9u);
  // A connection shares its port with whoever listens there.
  EXPECT_TRUE(FindTcpPlaces({connection}, {taken}, local).status.ok());
  TcpSocket again = Socket(9, TcpState::kEstablished, "10.0.0.1:5", "10.0.0.1:6");
  EXPECT_EQ(FindTcpPlaces({connection}, {again}, local).status.code(), StatusCode::kAlreadyExists);
}

TEST(TcpPlacesTest, WhatOnlyTheKernelStillKeepsIsStale) {
  const std::set<TcpAddress> local = {At("10.0.0.1:0")};
  TcpSocket listener = Socket(1, TcpState::kListening, "0.0.0.0:5", "0.0.0.0:0");
  TcpSocket connection = Socket(2, TcpState::kEstablished, "10.0.0.1:5", "10.0.0.1:6");
  TcpSocket waits = Socket(0, TcpState::kTimeWait, "10.0.0.1:5", "10.0.0.1:6");
  TcpPlaces places = FindTcpPlaces({connection}, {waits}, local);
  EXPECT_TRUE(places.status.ok());
  ASSERT_EQ(places.stale.size(), 1u);
  EXPECT_EQ(places.stale[0].remote, waits.remote);
  // One that another node may still send to is left to end by itself.
  TcpSocket far = Socket(0, TcpState::kTimeWait, "10.0.0.1:5", "10.0.0.2:6");
  EXPECT_TRUE(FindTcpPlaces({listener}, {far}, local).stale.empty());
}

}  // namespace
}  // namespace stasis
