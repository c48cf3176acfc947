#include "coordinator/agent/operation_notifier.h"

#include <chrono>

#include "base/quiet_thread.h"

namespace stasis {
namespace {

// People do not see more, and streams need not carry more.
constexpr auto kRound = std::chrono::milliseconds(50);

}  // namespace

class OperationNotifier::Handle final : public Operations::Subscription {
 public:
  explicit Handle(std::shared_ptr<Subscriber> subscriber) : subscriber_(std::move(subscriber)) {}
  ~Handle() override {
    std::lock_guard lock(subscriber_->running);
    subscriber_->ended = true;
  }

 private:
  std::shared_ptr<Subscriber> subscriber_;
};

OperationNotifier::OperationNotifier() : thread_(StartQuietThread([this] { Run(); })) {}

OperationNotifier::~OperationNotifier() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

std::unique_ptr<Operations::Subscription> OperationNotifier::Subscribe(const std::string& id,
                                                                       Changed changed) {
  auto subscriber = std::make_shared<Subscriber>();
  subscriber->id = id;
  subscriber->changed = std::move(changed);
  std::lock_guard lock(mutex_);
  std::erase_if(subscribers_, [](const auto& each) { return each.expired(); });
  subscribers_.push_back(subscriber);
  return std::make_unique<Handle>(std::move(subscriber));
}

void OperationNotifier::Post(const std::string& id, bool urgent, Read read) {
  std::lock_guard lock(mutex_);
  posted_[id] = std::move(read);
  bool first = posted_.size() == 1;
  if (urgent && !urgent_) {
    urgent_ = true;
    wake_.notify_all();
  } else if (first) {
    wake_.notify_all();
  }
}

void OperationNotifier::Tell(const std::map<std::string, Read>& changed) {
  std::vector<std::shared_ptr<Subscriber>> subscribers;
  {
    std::lock_guard lock(mutex_);
    for (const auto& each : subscribers_) {
      if (auto subscriber = each.lock()) subscribers.push_back(std::move(subscriber));
    }
  }
  if (subscribers.empty()) return;
  for (const auto& [id, read] : changed) {
    v1::Operation operation = read();
    for (const auto& subscriber : subscribers) {
      if (!subscriber->id.empty() && subscriber->id != id) continue;
      std::lock_guard running(subscriber->running);
      if (!subscriber->ended) subscriber->changed(operation);
    }
  }
}

// What was posted before the end is told before the end.
void OperationNotifier::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stopping_ || !posted_.empty(); });
    if (posted_.empty()) return;
    wake_.wait_for(lock, kRound, [&] { return stopping_ || urgent_; });
    urgent_ = false;
    std::map<std::string, Read> changed;
    changed.swap(posted_);
    lock.unlock();
    Tell(changed);
    lock.lock();
  }
}

}  // namespace stasis
