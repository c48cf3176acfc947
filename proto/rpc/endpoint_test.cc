#include "proto/rpc/endpoint.h"

#include <gtest/gtest.h>

#include <string>

#include "base/testing.h"

namespace stasis {
namespace {

Endpoint Parsed(const std::string& text) {
  Result<Endpoint> endpoint = ParseEndpoint(text);
  EXPECT_TRUE(endpoint.ok()) << text;
  return endpoint.ok() ? *endpoint : Endpoint();
}

TEST(Endpoint, IsASocketOrAHostAndAPort) {
  EXPECT_EQ(Parsed("unix:/run/stasis/stasisd.sock").path, "/run/stasis/stasisd.sock");
  EXPECT_EQ(Parsed("node-1:7470").host, "node-1");
  EXPECT_EQ(Parsed("node-1:7470").port, 7470);
  EXPECT_EQ(Parsed("[::1]:7470").host, "::1");
}

TEST(Endpoint, IsWrittenAsItIsRead) {
  for (const char* text : {"unix:/run/s.sock", "node-1:7470", "127.0.0.1:1", "[fe80::1%eth0]:65535"}) {
    EXPECT_EQ(Parsed(text).Target(), text);
  }
}

TEST(Endpoint, AnythingElseIsRefused) {
  for (const char* text : {"", "node", "node:", ":7470", "node:65536", "node:-1", "node:7x", "::1:7470",
                           "[]:1", "unix:relative", "unix:", "a b:1", "dns:///x:1", "node:0x10"}) {
    EXPECT_FALSE(ParseEndpoint(text).ok()) << text;
  }
  EXPECT_FALSE(ParseEndpoint("unix:/" + std::string(200, 'x')).ok());
}

TEST(Endpoint, KnowsLoopback) {
  EXPECT_TRUE(Parsed("127.0.0.1:1").loopback());
  EXPECT_TRUE(Parsed("127.9.9.9:1").loopback());
  EXPECT_TRUE(Parsed("[::1]:1").loopback());
  EXPECT_TRUE(Parsed("unix:/x").loopback());
  EXPECT_FALSE(Parsed("0.0.0.0:1").loopback());
  EXPECT_FALSE(Parsed("[::]:1").loopback());
  EXPECT_FALSE(Parsed("10.0.0.1:1").loopback());
}

TEST(Tls, WithoutItOtherMachinesAreNeitherSpokenToNorListenedTo) {
  EXPECT_EQ(OpenChannel(Parsed("10.0.0.1:1"), {}).status().code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(ServerCredentialsFor(Parsed("0.0.0.0:1"), {}).status().code(), StatusCode::kPermissionDenied);
  EXPECT_TRUE(OpenChannel(Parsed("127.0.0.1:1"), {}).ok());
}

TEST(Tls, FilesThatAreNoneAreRefused) {
  TempFolder folder;
  EXPECT_EQ(OpenChannel(Parsed("10.0.0.1:1"), {"", folder / "cert", folder / "key"}).status().code(),
            StatusCode::kInvalidArgument);
  ASSERT_OK(WriteFileAtomically(folder / "ca", "no certificate"));
  EXPECT_EQ(OpenChannel(Parsed("10.0.0.1:1"), {folder / "ca", folder / "ca", folder / "ca"}).status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace stasis
