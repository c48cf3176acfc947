// `stasis events`: what has happened to the cluster, and what happens.
#include <fmt/format.h>
#include <poll.h>

#include <cerrno>

#include "cli/agent_stream.h"
#include "cli/follow.h"
#include "cli/scheduler_verbs.h"
#include "cli/when.h"
#include "coordinator/node/text.h"

namespace stasis {
namespace {

using Stream = AgentStream<v1::ClusterEvent>;

Json Describe(const v1::ClusterEvent& event) {
  return {{"number", event.number()}, {"at_ms", event.at_ms()}, {"kind", event.kind()},
          {"job", event.job()},       {"node", event.node()},   {"text", event.text()}};
}

std::string Line(const v1::ClusterEvent& event) {
  auto or_dash = [](const std::string& text) { return text.empty() ? "-" : Printable(text); };
  return fmt::format("{:>7}  {}  {:<10} {:<20} {:<14} {}\n", event.number(), WhenText(event.at_ms()),
                     Printable(event.kind()), or_dash(event.job()), or_dash(event.node()),
                     Printable(event.text()));
}

// Until the stream has ended; kCancelled: interrupted, or nobody reads standard output any more.
class EventReader {
 public:
  EventReader(SchedulerClient& client, SignalSource& signals) : client_(client), signals_(signals) {}

  template <typename Tell>
  Status Read(const v1::EventsRequest& request, Tell tell) {
    Stream stream([&](grpc::ClientContext* context) { return client_.stub().Events(context, request); });
    for (;;) {
      pollfd waits[] = {{stream.fd(), POLLIN, 0}, {signals_.fd(), POLLIN, 0}};
      if (poll(waits, 2, -1) < 0 && errno != EINTR) return ErrnoStatus(errno, "poll");
      if (waits[1].revents != 0 && signals_.Take()) return Status(StatusCode::kCancelled, "interrupted");
      bool ended = false;
      for (const v1::ClusterEvent& event : stream.Take(&ended)) RETURN_IF_ERROR(tell(event));
      if (ended) return client_.Explained(stream.status());
    }
  }

 private:
  SchedulerClient& client_;
  SignalSource& signals_;
};

v1::EventsRequest RequestOf(const Options& options) {
  v1::EventsRequest request;
  request.set_after(options.after);
  if (options.after == 0) request.set_last(static_cast<uint32_t>(options.limit));
  request.set_until_now(!options.follow);
  return request;
}

int List(const Options& options, EventReader& reader, const SchedulerClient& client, Context& context) {
  Json events = Json::array();
  std::string text;
  Status read = reader.Read(RequestOf(options), [&](const v1::ClusterEvent& event) {
    events.push_back(Describe(event));
    text += Line(event);
    return Status();
  });
  if (!read.ok()) return context.reporter.Fail(read, client.remedy());
  return context.reporter.Done({{"events", events}}, text);
}

// With --json one document a line. Goes on where it was with a scheduler that is started anew.
int Follow(const Options& options, EventReader& reader, SchedulerClient& client, Context& context) {
  v1::EventsRequest request = RequestOf(options);
  auto tell = [&](const v1::ClusterEvent& event) {
    request.set_after(event.number());
    request.set_last(0);
    std::string line = context.reporter.json()
                           ? Describe(event).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"
                           : Line(event);
    bool told = std::fputs(line.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
    return told ? Status() : Status(StatusCode::kCancelled, "nobody reads");
  };
  for (;;) {
    Status read = reader.Read(request, tell);
    if (read.code() == StatusCode::kCancelled) return kExitOk;
    if (read.ok()) read = Status(StatusCode::kUnavailable, "the scheduler has ended the stream");
    if (read.code() != StatusCode::kUnavailable) return context.reporter.Fail(read, client.remedy());
    context.reporter.Note("the scheduler is gone; waiting for the next one");
    Result<v1::ClusterInfoReply> back =
        client.Call(&v1::Scheduler::Stub::ClusterInfo, v1::ClusterInfoRequest(), /*wait=*/true);
    if (!back.ok()) return context.reporter.Fail(read, client.remedy());
  }
}

}  // namespace

int EventsVerb(const Options& options, Context& context) {
  Result<SignalSource> signals = SignalSource::Create();
  if (!signals.ok()) return context.reporter.Fail(signals.status());
  Result<SchedulerClient> client = SchedulerClient::Open(context.node);
  if (!client.ok()) return context.reporter.Fail(client.status());
  EventReader reader(*client, *signals);
  return options.follow ? Follow(options, reader, *client, context) : List(options, reader, *client, context);
}

}  // namespace stasis
