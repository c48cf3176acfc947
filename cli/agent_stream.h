// A stream from the agent, beside signals and other streams: read by a thread of its own, waited for by a
// descriptor.
#ifndef CLI_AGENT_STREAM_H_
#define CLI_AGENT_STREAM_H_

#include <grpcpp/client_context.h>
#include <grpcpp/support/sync_stream.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "proto/rpc/status.h"

namespace stasis {

template <typename Message>
class AgentStream {
 public:
  using Reader = std::unique_ptr<grpc::ClientReader<Message>>;
  explicit AgentStream(const std::function<Reader(grpc::ClientContext*)>& open)
      : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        reader_(open(&context_)),
        thread_([this] { Read(); }) {}
  ~AgentStream() {
    context_.TryCancel();
    {
      std::lock_guard lock(mutex_);
      abandoned_ = true;
    }
    room_.notify_all();
    thread_.join();
  }
  AgentStream(const AgentStream&) = delete;
  AgentStream& operator=(const AgentStream&) = delete;

  // Polls readable when there is something to take, and at the end.
  int fd() const { return event_.get(); }
  // What has come. `*ended` once that was all.
  std::vector<Message> Take(bool* ended) {
    uint64_t count;
    (void)!read(event_.get(), &count, sizeof count);
    std::vector<Message> messages;
    {
      std::lock_guard lock(mutex_);
      messages.swap(messages_);
      *ended = ended_;
    }
    room_.notify_all();
    return messages;
  }
  // How it ended.
  const Status& status() const { return status_; }
  const std::string& remedy() const { return remedy_; }

 private:
  static constexpr size_t kMaxWaiting = 64;  // who does not take holds the agent back

  void Read() {
    Message message;
    while (reader_->Read(&message)) {
      std::unique_lock lock(mutex_);
      room_.wait(lock, [this] { return messages_.size() < kMaxWaiting || abandoned_; });
      messages_.push_back(std::move(message));
      message = Message();
      Wake();
    }
    Status status = FromRpcStatus(reader_->Finish(), context_, &remedy_);
    std::lock_guard lock(mutex_);
    status_ = std::move(status);
    ended_ = true;
    Wake();
  }
  void Wake() {
    uint64_t one = 1;
    (void)!write(event_.get(), &one, sizeof one);
  }

  grpc::ClientContext context_;
  const Fd event_;
  const Reader reader_;
  std::mutex mutex_;
  std::condition_variable room_;
  std::vector<Message> messages_;
  bool ended_ = false;
  bool abandoned_ = false;
  Status status_;
  std::string remedy_;
  std::thread thread_;
};

}  // namespace stasis

#endif  // CLI_AGENT_STREAM_H_
