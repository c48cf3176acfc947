#include "coordinator/agent/job_board.h"

namespace stasis {

class JobBoard::Subscriber final : public Registry::Subscription {
 public:
  Subscriber(JobBoard* board, std::function<void(const JobPicture&)> changed)
      : board_(board), changed_(std::move(changed)) {}
  ~Subscriber() override {
    std::lock_guard lock(board_->delivery_mutex_);
    board_->subscribers_.erase(this);
  }
  // By value: the callback may end this object.
  std::function<void(const JobPicture&)> changed() const { return changed_; }

 private:
  JobBoard* const board_;
  const std::function<void(const JobPicture&)> changed_;
};

std::vector<JobPicture> JobBoard::List() const {
  std::lock_guard lock(mutex_);
  std::vector<JobPicture> pictures;
  pictures.reserve(jobs_.size());
  for (const auto& [name, entry] : jobs_) pictures.push_back(entry.shown);
  return pictures;
}

JobPicture JobBoard::Find(const std::string& name) const {
  std::lock_guard lock(mutex_);
  auto found = jobs_.find(name);
  return found == jobs_.end() ? nullptr : found->second.shown;
}

uint64_t JobBoard::revision() const {
  std::lock_guard lock(mutex_);
  return revision_;
}

std::vector<std::string> JobBoard::Notes() const {
  std::lock_guard lock(mutex_);
  std::vector<std::string> notes;
  for (const auto& [name, note] : notes_) notes.push_back(note);
  return notes;
}

void JobBoard::Put(v1::Job job) {
  std::lock_guard lock(mutex_);
  notes_.erase(job.name());
  Entry& entry = jobs_[job.name()];
  entry.read = std::move(job);
  Show(&entry);
}

void JobBoard::Remove(const std::string& name) {
  std::lock_guard lock(mutex_);
  notes_.erase(name);
  auto found = jobs_.find(name);
  if (found == jobs_.end()) return;
  auto gone = std::make_shared<v1::Job>(*found->second.shown);
  gone->set_gone(true);
  gone->set_revision(++revision_);
  jobs_.erase(found);
  moved_to_.erase(name);
  Queue(gone);
}

void JobBoard::PutNote(const std::string& name, const std::string& sentence) {
  std::lock_guard lock(mutex_);
  notes_[name] = sentence;
}

void JobBoard::SetOperation(const std::string& name, const std::string& operation) {
  std::lock_guard lock(mutex_);
  if (operation.empty())
    operations_.erase(name);
  else
    operations_[name] = operation;
  auto found = jobs_.find(name);
  if (found != jobs_.end()) Show(&found->second);
}

void JobBoard::SetMovedTo(const std::string& name, const std::string& node) {
  std::lock_guard lock(mutex_);
  if (node.empty())
    moved_to_.erase(name);
  else
    moved_to_[name] = node;
  auto found = jobs_.find(name);
  if (found != jobs_.end()) Show(&found->second);
}

// With the lock held.
void JobBoard::Show(Entry* entry) {
  auto picture = std::make_shared<v1::Job>(entry->read);
  auto operation = operations_.find(picture->name());
  if (operation != operations_.end()) picture->set_operation(operation->second);
  auto moved = moved_to_.find(picture->name());
  if (moved != moved_to_.end()) {
    picture->set_moved_to(moved->second);
    if (!picture->live()) {
      picture->set_condition(v1::CONDITION_MIGRATED);
      picture->set_text("migrated to " + moved->second);
    }
  }
  picture->set_revision(entry->shown == nullptr ? 0 : entry->shown->revision());
  // No field is a map: equal messages have equal bytes.
  bool same = entry->shown != nullptr && entry->shown->SerializeAsString() == picture->SerializeAsString();
  if (same) return;
  picture->set_revision(++revision_);
  entry->shown = picture;
  Queue(picture);
}

void JobBoard::Queue(const JobPicture& picture) {
  queue_.push_back(picture);
  queued_();
}

std::unique_ptr<Registry::Subscription> JobBoard::Subscribe(std::function<void(const JobPicture&)> changed) {
  auto subscriber = std::make_unique<Subscriber>(this, std::move(changed));
  std::lock_guard lock(delivery_mutex_);
  subscribers_.insert(subscriber.get());
  return subscriber;
}

void JobBoard::Deliver() {
  std::lock_guard delivery(delivery_mutex_);
  for (;;) {
    JobPicture picture;
    {
      std::lock_guard lock(mutex_);
      if (queue_.empty()) return;
      picture = std::move(queue_.front());
      queue_.pop_front();
    }
    std::set<Subscriber*> told = subscribers_;
    for (Subscriber* subscriber : told) {
      if (subscribers_.count(subscriber) != 0) subscriber->changed()(picture);
    }
  }
}

}  // namespace stasis
