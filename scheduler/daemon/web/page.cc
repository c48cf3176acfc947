#include "scheduler/daemon/web/page.h"

#include <civetweb.h>

#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "base/log/log.h"
#include "scheduler/daemon/web/assets.h"
#include "scheduler/daemon/web/snapshot.h"

namespace stasis::scheduler {
namespace {

constexpr char kThreads[] = "16";
constexpr int kMostStreams = 12;  // each has a thread of its own as long as it lasts
constexpr size_t kEventsAtOnce = 256;
constexpr auto kHeartbeat = std::chrono::seconds(15);  // by which a reader that has gone is noticed

constexpr char kCommonHeaders[] =
    "Content-Security-Policy: default-src 'self'; frame-ancestors 'none'\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "Cache-Control: no-store\r\n";

const char* ReasonOf(int code) {
  switch (code) {
    case 200:
      return "OK";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    default:
      return "Service Unavailable";
  }
}

const char* TypeOf(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".js")) return "text/javascript; charset=utf-8";
  if (name.ends_with(".svg")) return "image/svg+xml";
  if (name.ends_with(".json")) return "application/json";
  return "text/plain; charset=utf-8";
}

int Respond(mg_connection* connection, int code, const char* type, std::string_view body) {
  const bool head = std::strcmp(mg_get_request_info(connection)->request_method, "HEAD") == 0;
  mg_printf(connection, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n%s\r\n", code,
            ReasonOf(code), type, body.size(), kCommonHeaders);
  if (!head) mg_write(connection, body.data(), body.size());
  return code;
}

int Refuse(mg_connection* connection, int code, std::string_view why) {
  return Respond(connection, code, TypeOf(""), std::string(why) + "\n");
}

std::optional<uint64_t> ParseNumber(std::string_view text) {
  uint64_t number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// What a browser that connects again has seen last, else what was asked for.
std::optional<uint64_t> StartOf(mg_connection* connection) {
  if (const char* last = mg_get_header(connection, "Last-Event-ID")) return ParseNumber(last);
  const char* query = mg_get_request_info(connection)->query_string;
  char after[32] = {};
  if (query == nullptr || mg_get_var(query, std::strlen(query), "after", after, sizeof after) <= 0) {
    return std::nullopt;
  }
  return ParseNumber(after);
}

int LogLine(const mg_connection*, const char* message) {
  Log(LogLevel::kWarning, "web", message);
  return 1;  // it is told
}

}  // namespace

Result<std::unique_ptr<WebPage>> WebPage::Start(SchedulerCore& core, const Endpoint& endpoint) {
  std::unique_ptr<WebPage> page(new WebPage(core, endpoint));
  RETURN_IF_ERROR(page->Begin());
  return page;
}

Status WebPage::Begin() {
  mg_init_library(0);
  if (endpoint_.host.find(':') != std::string::npos && mg_check_feature(MG_FEATURES_IPV6) == 0) {
    return Status(StatusCode::kUnsupported, "the page: this system's civetweb knows no IPv6");
  }
  const std::string port = endpoint_.Target();
  const char* options[] = {
      "listening_ports", port.c_str(),       "num_threads", kThreads, "request_timeout_ms",
      "10000",           "max_request_size", "16384",       nullptr};
  mg_callbacks callbacks{};
  callbacks.log_message = LogLine;
  context_ = mg_start(&callbacks, this, options);
  if (context_ == nullptr) {
    return Status(StatusCode::kAlreadyExists, "cannot serve the page on " + port);
  }
  mg_server_port taken{};
  if (mg_get_server_ports(context_, 1, &taken) == 1) endpoint_.port = taken.port;
  subscription_ = core_.Subscribe([this] {
    std::lock_guard lock(mutex_);
    changed_.notify_all();
  });
  mg_set_request_handler(
      context_, "**",
      [](mg_connection* connection, void* page) { return static_cast<WebPage*>(page)->Answer(connection); },
      this);
  return Status();
}

WebPage::~WebPage() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  subscription_.reset();
  if (context_ != nullptr) mg_stop(context_);
  mg_exit_library();
}

bool WebPage::IsForUs(const char* host) const {
  if (!endpoint_.loopback()) return true;
  if (host == nullptr) return false;
  std::string_view name = host;
  const size_t colon = name.rfind(':');
  if (colon != std::string_view::npos && name.find(']', colon) == std::string_view::npos) {
    name = name.substr(0, colon);
  }
  return name == "localhost" || name == "[::1]" || name.starts_with("127.") || name == endpoint_.host;
}

int WebPage::Answer(mg_connection* connection) {
  const mg_request_info& request = *mg_get_request_info(connection);
  const std::string_view method = request.request_method;
  if (method != "GET" && method != "HEAD") return Refuse(connection, 405, "this page is only to look at");
  if (!IsForUs(mg_get_header(connection, "Host"))) return Refuse(connection, 403, "that is not this machine");
  std::string_view name = request.local_uri == nullptr ? "" : request.local_uri;
  if (name.starts_with('/')) name.remove_prefix(1);
  if (name == "snapshot.json") {
    return Respond(connection, 200, TypeOf(name), SnapshotJson(core_, StartOf(connection).value_or(0)));
  }
  if (name == "events") return AnswerStream(connection, StartOf(connection).value_or(core_.last_event()));
  if (name.empty()) name = "index.html";
  for (const Asset& asset : Assets()) {
    if (asset.name == name) return Respond(connection, 200, TypeOf(name), asset.text());
  }
  return Refuse(connection, 404, "there is no such page");
}

int WebPage::AnswerStream(mg_connection* connection, uint64_t after) {
  {
    std::unique_lock lock(mutex_);
    const bool room = !ending_ && streams_ < kMostStreams;
    if (room) streams_++;
    lock.unlock();
    if (!room) return Refuse(connection, 503, "too many look already");
  }
  mg_printf(connection, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n%s\r\n",
            kCommonHeaders);
  while (TellEvents(connection, &after)) {
    std::unique_lock lock(mutex_);
    const bool news =
        changed_.wait_for(lock, kHeartbeat, [&] { return ending_ || core_.last_event() > after; });
    if (ending_) break;
    lock.unlock();
    if (!news && mg_write(connection, ":\n\n", 3) <= 0) break;
  }
  std::lock_guard lock(mutex_);
  streams_--;
  return 200;
}

bool WebPage::TellEvents(mg_connection* connection, uint64_t* after) {
  for (;;) {
    const std::vector<v1::ClusterEvent> events = core_.EventsAfter(*after, kEventsAtOnce);
    if (events.empty()) return true;
    std::string text;
    for (const v1::ClusterEvent& event : events) {
      text += "id: " + std::to_string(event.number()) + "\ndata: " + EventJson(event) + "\n\n";
    }
    *after = events.back().number();
    if (mg_write(connection, text.data(), text.size()) <= 0) return false;
  }
}

}  // namespace stasis::scheduler
