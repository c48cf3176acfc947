#include "scheduler/daemon/web/page.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "base/fd.h"
#include "scheduler/daemon/testing.h"

namespace stasis::scheduler {
namespace {

using Json = nlohmann::json;

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// One page for all tests: the end of one takes civetweb up to two seconds.
class PageTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    cluster_ = new TestCluster;
    page_ = new std::unique_ptr<WebPage>(StartPage());
  }
  static void TearDownTestSuite() {
    delete page_;
    delete cluster_;
  }
  static std::unique_ptr<WebPage> StartPage() {
    return *WebPage::Start(cluster_->core(), *ParseEndpoint("127.0.0.1:0"));
  }
  static SchedulerCore& core() { return cluster_->core(); }

  static Fd Connect(const WebPage& page) {
    Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(ParseEndpoint(page.address())->port));
    EXPECT_EQ(connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return socket;
  }
  static void Send(const Fd& socket, const std::string& text) {
    EXPECT_EQ(write(socket.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  // What comes until `last` is in it, or until the end where that is "".
  static std::string ReadUntil(const Fd& socket, const std::string& last) {
    std::string text;
    char bytes[4096];
    while (last.empty() || !Has(text, last)) {
      ssize_t got = read(socket.get(), bytes, sizeof bytes);
      if (got <= 0) break;
      text.append(bytes, static_cast<size_t>(got));
    }
    return text;
  }
  static std::string Ask(const std::string& path, const std::string& method = "GET",
                         const std::string& headers = "Host: localhost\r\n") {
    Fd socket = Connect(**page_);
    Send(socket, method + " " + path + " HTTP/1.1\r\n" + headers + "Connection: close\r\n\r\n");
    return ReadUntil(socket, "");
  }
  static std::string BodyOf(const std::string& answer) { return answer.substr(answer.find("\r\n\r\n") + 4); }

  static inline TestCluster* cluster_ = nullptr;
  static inline std::unique_ptr<WebPage>* page_ = nullptr;
};

TEST_F(PageTest, TheFilesAreServed) {
  const std::string page = Ask("/");
  EXPECT_TRUE(page.starts_with("HTTP/1.1 200 OK")) << page.substr(0, 200);
  EXPECT_TRUE(Has(page, "text/html"));
  EXPECT_TRUE(Has(page, "<title>Stasis</title>"));
  EXPECT_TRUE(Has(page, "Content-Security-Policy: default-src 'self'"));
  EXPECT_TRUE(Has(page, "X-Content-Type-Options: nosniff"));
  EXPECT_TRUE(Has(Ask("/page.js"), "text/javascript"));
  EXPECT_TRUE(Has(Ask("/style.css"), "text/css"));
  EXPECT_EQ(BodyOf(Ask("/index.html", "HEAD")), "");
}

TEST_F(PageTest, ThereIsNothingElse) {
  for (const char* path : {"/etc/passwd", "/../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/page.cc", "/x"}) {
    EXPECT_FALSE(Has(Ask(path), "200 OK")) << path;
  }
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS"}) {
    EXPECT_TRUE(Has(Ask("/", method), "405")) << method;
  }
}

TEST_F(PageTest, OnlyThisMachinesOwnNamesAreAnsweredOnLoopback) {
  for (const char* host : {"localhost:8480", "127.0.0.1", "127.0.0.1:80", "[::1]:80"}) {
    EXPECT_TRUE(Has(Ask("/", "GET", std::string("Host: ") + host + "\r\n"), "200 OK")) << host;
  }
  for (const char* host : {"evil.example", "evil.example:80", "localhost.evil.example", ""}) {
    EXPECT_FALSE(Has(Ask("/snapshot.json", "GET", std::string("Host: ") + host + "\r\n"), "200 OK")) << host;
  }
}

TEST_F(PageTest, TheSnapshotHasAllParts) {
  ASSERT_OK(core().Submit(TestCluster::Submission("train", 2)).status());
  ASSERT_OK(core().Submit(TestCluster::Submission("gone")).status());
  cluster_->CarryOut("train");
  cluster_->CarryOut("gone");
  ASSERT_OK(core().Record(JobEnded{"gone", true, 0, ""}).status());
  const std::string answer = Ask("/snapshot.json");
  const Json picture = Json::parse(BodyOf(answer), nullptr, false);
  ASSERT_TRUE(picture.is_object()) << answer;
  EXPECT_EQ(picture["info"]["devices"], 4);
  EXPECT_EQ(picture["nodes"][0]["jobs"].size(), 4u);
  EXPECT_EQ(picture["tenants"].size(), 2u);
  std::map<std::string, std::string> states;
  for (const Json& job : picture["jobs"]) states[job["name"]] = job["state"];
  EXPECT_EQ(states["train"], "QUEUE_STATE_RUNNING");
  EXPECT_EQ(states["gone"], "QUEUE_STATE_DONE");
  EXPECT_EQ(picture["omitted"], 0);
  EXPECT_EQ(picture["events"].back()["kind"], "done");
  const std::string last = picture["events"].back()["number"];
  EXPECT_EQ(Json::parse(BodyOf(Ask("/snapshot.json?after=" + last)), nullptr, false)["events"].size(), 0u);
}

TEST_F(PageTest, WhatOthersHaveWrittenStaysText) {
  v1::DrainRequest drain;
  drain.set_node("n1");
  drain.set_reason("</script><b>\"x\\");
  ASSERT_OK(core().Drain(drain).status());
  const Json picture = Json::parse(BodyOf(Ask("/snapshot.json")), nullptr, false);
  EXPECT_EQ(picture["nodes"][0]["reason"], "</script><b>\"x\\");
}

TEST_F(PageTest, TheScriptMakesNoMarkup) {
  const std::string script = Ask("/page.js");
  for (const char* way :
       {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "DOMParser"}) {
    EXPECT_FALSE(Has(script, way)) << way;
  }
}

TEST_F(PageTest, EventsComeAsTheyHappen) {
  std::unique_ptr<WebPage> page = StartPage();
  Fd socket = Connect(*page);
  Send(socket,
       "GET /events?after=" + std::to_string(core().last_event()) + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
  std::string head = ReadUntil(socket, "\r\n\r\n");
  EXPECT_TRUE(Has(head, "text/event-stream")) << head;
  ASSERT_OK(core().Submit(TestCluster::Submission("event")).status());
  const std::string event = ReadUntil(socket, "\n\n");
  EXPECT_TRUE(Has(event, "id: " + std::to_string(core().last_event()) + "\n")) << event;
  const size_t data = event.find("data: ") + 6;
  EXPECT_EQ(Json::parse(event.substr(data, event.find('\n', data) - data))["job"], "event");
  // A browser that comes back says what it has.
  Fd again = Connect(*page);
  Send(again, "GET /events HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: " +
                  std::to_string(core().last_event() - 1) + "\r\n\r\n");
  EXPECT_TRUE(Has(ReadUntil(again, "event"), "event"));
  page.reset();
  EXPECT_EQ(ReadUntil(socket, ""), "");
}

TEST_F(PageTest, ManyWhoLookAreNotTooMany) {
  std::vector<Fd> streams;
  for (int i = 0; i < 12; i++) {
    streams.push_back(Connect(**page_));
    Send(streams.back(), "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_TRUE(Has(ReadUntil(streams.back(), "\r\n\r\n"), "200 OK")) << i;
  }
  EXPECT_TRUE(Has(Ask("/events"), "503"));
  EXPECT_TRUE(Has(Ask("/"), "200 OK"));
}

TEST_F(PageTest, APortThatIsTakenIsTold) {
  EXPECT_EQ(WebPage::Start(core(), *ParseEndpoint((*page_)->address())).status().code(),
            StatusCode::kAlreadyExists);
}

}  // namespace
}  // namespace stasis::scheduler
