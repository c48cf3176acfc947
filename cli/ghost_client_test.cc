#include "coordinator/node/ghost_client.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "base/unix_socket.h"
#include "cli/follow.h"
#include "coordinator/node/testing.h"

namespace stasis {
namespace {

Deadline Soon() { return Deadline::After(std::chrono::seconds(60)); }

// The ghost's side, as a thread of the test.
class FakeGhost : public testing::Test {
 protected:
  FakeGhost() : paths_({folder_.File("state"), folder_.File("run")}, "t") {
    EXPECT_TRUE(MakeFolders(paths_.folder).ok());
    EXPECT_TRUE(MakeFolders(paths_.run).ok());
    listener_ = std::move(*UnixListener::Listen(paths_.ghost_socket));
    files_.ghost = folder_.File("no-ghost");
  }

  Fd Accept() {
    for (;;) {
      Result<Fd> connection = listener_.Accept();
      if (connection.ok()) return std::move(*connection);
      pollfd wait{listener_.fd(), POLLIN, 0};
      poll(&wait, 1, -1);
    }
  }
  static Message Read(const Fd& socket) {
    MessageDecoder decoder;
    Result<Message> message = ReceiveMessage(socket.get(), decoder, Soon());
    EXPECT_TRUE(message.ok()) << message.status().ToString();
    return message.ok() ? std::move(*message) : Message();
  }
  static void Write(const Fd& socket, uint32_t type, uint64_t id, const std::string& text) {
    Message message;
    message.type = type;
    message.request_id = id;
    auto* bytes = reinterpret_cast<const std::byte*>(text.data());
    message.payload.assign(bytes, bytes + text.size());
    EXPECT_TRUE(SendMessage(socket.get(), std::move(message), Soon()).ok());
  }
  static Json Parse(const Message& message) {
    auto* text = reinterpret_cast<const char*>(message.payload.data());
    return Json::parse(text, text + message.payload.size(), nullptr, false);
  }
  Site SiteHere() const { return {{folder_.File("state"), folder_.File("run")}, files_}; }
  Result<GhostClient> Connect() { return GhostClient::Connect(paths_, SiteHere()); }

  Result<Json> Ask() {
    SignalSource signals = std::move(*SignalSource::Create());
    return AskGhost(paths_, SiteHere(), {{"verb", "pause"}}, signals, [](const Json&) {});
  }

  TempFolder folder_;
  TaskPaths paths_;
  UnixListener listener_;
  OwnFiles files_;
};

TEST_F(FakeGhost, EventsThenTheResult) {
  SignalSource signals = std::move(*SignalSource::Create());
  std::thread ghost([this] {
    Fd socket = Accept();
    Message request = Read(socket);
    EXPECT_EQ(request.type, 1u);
    EXPECT_EQ(Parse(request)["residency"], "host");
    Write(socket, 2, request.request_id, R"({"phase": "copy", "done": 1, "total": 2})");
    Write(socket, 2, request.request_id, R"({"phase": "copy", "done": 2, "total": 2})");
    Write(socket, 3, request.request_id, R"({"ok": true, "verb": "pause"})");
  });
  Result<GhostClient> client = Connect();
  ASSERT_TRUE(client.ok()) << client.status().ToString();
  int events = 0;
  Result<Json> result =
      client->Call({{"verb", "pause"}, {"residency", "host"}}, signals,
                   [&](const Json& event) { EXPECT_EQ(IntegerField(event, "done"), ++events); });
  ghost.join();
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_TRUE(BoolField(*result, "ok"));
  EXPECT_EQ(events, 2);
}

TEST_F(FakeGhost, AFailureIsAResultToo) {
  SignalSource signals = std::move(*SignalSource::Create());
  std::thread ghost([this] {
    Fd socket = Accept();
    Write(socket, 3, Read(socket).request_id, R"({"ok": false, "code": "TIMEOUT"})");
  });
  Result<Json> result = Connect()->Call({{"verb", "pause"}}, signals, [](const Json&) {});
  ghost.join();
  EXPECT_EQ(TextField(*result, "code"), "TIMEOUT");
}

TEST_F(FakeGhost, AGhostThatDies) {
  SignalSource signals = std::move(*SignalSource::Create());
  std::thread ghost([this] {
    Fd socket = Accept();
    Read(socket);
  });
  Result<Json> result = Connect()->Call({{"verb", "pause"}}, signals, [](const Json&) {});
  ghost.join();
  EXPECT_EQ(result.status().code(), StatusCode::kPeerDied);
}

TEST_F(FakeGhost, AGhostThatDiesBeforeItTakesTheRequestIsNoAnswer) {
  std::thread ghost([this] {
    Accept();
    Read(Accept());
    Fd socket = Accept();
    Write(socket, 3, Read(socket).request_id, R"({"ok": true})");
  });
  Result<Json> result = Ask();
  ghost.join();
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_TRUE(BoolField(*result, "ok"));
}

TEST_F(FakeGhost, ARequestThatWasTakenIsNotAskedAgain) {
  std::thread ghost([this] {
    Fd socket = Accept();
    Write(socket, 2, Read(socket).request_id, R"({"phase": "begin", "done": 0, "total": 0})");
  });
  Result<Json> result = Ask();
  ghost.join();
  EXPECT_EQ(result.status().code(), StatusCode::kPeerDied);
}

TEST_F(FakeGhost, GhostsThatAllDieAreAnEnd) {
  int asked = 0;
  std::thread ghost([&] {
    for (; asked < 4; ++asked) Read(Accept());
  });
  Result<Json> result = Ask();
  ghost.join();
  EXPECT_EQ(result.status().code(), StatusCode::kPeerDied);
  EXPECT_EQ(asked, 4);
}

TEST_F(FakeGhost, RubbishIsCorrupt) {
  SignalSource signals = std::move(*SignalSource::Create());
  for (const char* text : {"", "[]", "{\"ok\": ", "\xff"}) {
    std::thread ghost([&] {
      Fd socket = Accept();
      Write(socket, 3, Read(socket).request_id, text);
    });
    Result<Json> result = Connect()->Call({{"verb", "pause"}}, signals, [](const Json&) {});
    ghost.join();
    EXPECT_EQ(result.status().code(), StatusCode::kCorrupt) << text;
  }
}

TEST_F(FakeGhost, ASignalAsksToUndo) {
  SignalSource signals = std::move(*SignalSource::Create());
  pthread_t main_thread = pthread_self();
  std::thread ghost([&] {
    Fd socket = Accept();
    Message request = Read(socket);
    pthread_kill(main_thread, SIGINT);
    Message undo = Read(socket);
    EXPECT_EQ(Parse(undo), Json({{"verb", "cancel"}, {"what", "operation"}}));
    Write(socket, 3, undo.request_id, R"({"ok": true})");
    Write(socket, 3, request.request_id, R"({"ok": false, "code": "CANCELLED"})");
  });
  Result<Json> result = Connect()->Call({{"verb", "checkpoint"}}, signals, [](const Json&) {});
  ghost.join();
  EXPECT_EQ(TextField(*result, "code"), "CANCELLED");
}

TEST_F(FakeGhost, ASecondSignalLeaves) {
  SignalSource signals = std::move(*SignalSource::Create());
  pthread_t main_thread = pthread_self();
  std::thread ghost([&] {
    Fd socket = Accept();
    Read(socket);
    pthread_kill(main_thread, SIGINT);
    Read(socket);
    pthread_kill(main_thread, SIGTERM);
    // Until the client is gone.
    pollfd wait{socket.get(), POLLIN, 0};
    poll(&wait, 1, -1);
  });
  {
    Result<GhostClient> client = Connect();
    Result<Json> result = client->Call({{"verb", "checkpoint"}}, signals, [](const Json&) {});
    EXPECT_EQ(result.status().code(), StatusCode::kCancelled);
  }
  ghost.join();
}

TEST_F(FakeGhost, AMissingGhostIsNamed) {
  listener_.Close();
  Result<GhostClient> client = Connect();
  EXPECT_EQ(client.status().code(), StatusCode::kNotFound);
  EXPECT_NE(client.status().message().find("no-ghost"), std::string_view::npos);
}

TEST_F(FakeGhost, AGhostThatCannotStartSaysWhy) {
  listener_.Close();
  files_.ghost = "/bin/false";
  WriteText(paths_.File("ghost.log"), "state folder is read-only\n");
  Result<GhostClient> client = Connect();
  EXPECT_EQ(client.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(client.status().message().find("state folder is read-only"), std::string_view::npos);
}

}  // namespace
}  // namespace stasis
