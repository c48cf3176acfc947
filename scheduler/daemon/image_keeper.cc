#include "scheduler/daemon/image_keeper.h"

#include <algorithm>
#include <set>

#include "base/log/log.h"
#include "scheduler/daemon/conclusion.h"
#include "scheduler/daemon/job_log.h"

namespace stasis::scheduler {
namespace {

// After a copy of an image that has failed, times how often it has.
constexpr Duration kFirstCopyRetry = std::chrono::seconds(2), kLastCopyRetry = std::chrono::seconds(60);
// After a question that was not answered, doubled with each one.
// That an agent is asked which images it has.
constexpr int kMostQuestions = 4;
constexpr Duration kFirstRetry = std::chrono::milliseconds(100), kLastRetry = std::chrono::seconds(2);

// Names of nodes are longer than keys may be.
std::string ShortHash(const std::string& text) {
  uint32_t hash = 2166136261;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619;
  return std::to_string(hash);
}

}  // namespace

// ---- Copies

// The node that has copies already and stays, else the next one in the order of joining; rather one that has
// nothing of another life of the job.
std::string ImageKeeper::PartnerOf(const std::string& node, const std::string& job) const {
  std::set<std::string> in_the_way;
  const int64_t life = LifeOf(node, job).began;
  for (const auto& [other, picture] : host_.PicturesOf(job)) {
    if (picture.created_ms() != life) in_the_way.insert(other);
  }
  std::string partner, second;
  core_.Look([&](const Cluster& cluster) {
    const Cluster::Entry* entry = cluster.Find(job);
    if (entry == nullptr || entry->where == Cluster::Where::kEnded || entry->node != node) return;
    partner = ImageNodeOf(cluster, *entry, node);
    if (!partner.empty() && cluster.FindNode(partner)->deadline != 0) partner.clear();
    const std::vector<Cluster::Node>& nodes = cluster.nodes();
    const auto here =
        std::find_if(nodes.begin(), nodes.end(), [&](const auto& each) { return each.name == node; });
    for (size_t i = 1; i < nodes.size() && partner.empty(); ++i) {
      const Cluster::Node& next = nodes[(static_cast<size_t>(here - nodes.begin()) + i) % nodes.size()];
      if (!next.reachable || next.draining) continue;
      std::string& choice = in_the_way.contains(next.name) ? second : partner;
      if (choice.empty()) choice = next.name;
    }
  });
  return partner.empty() ? second : partner;
}

void ImageKeeper::Copy(const std::string& node, const v1::Job& job) {
  if (job.last_image().empty() || IsCopied(node, job)) return;
  const std::string partner = PartnerOf(node, job.name());
  if (partner.empty() || host_.PeerAddress(partner).empty()) return;
  errands_.Start(
      "copy of " + job.name(),
      [=, this, name = job.name(), image = job.last_image()] { Carry(node, partner, name, image); },
      [=, this, name = job.name()] { Again(node, name); });
}

// To a node that stays. Records it where it is told only now that nothing is newer. Nodes give the same ids
// to images of their own.
bool ImageKeeper::IsCopied(const std::string& node, const v1::Job& job) {
  Copied copied;
  bool news = false;
  {
    std::lock_guard lock(mutex_);
    const auto found = copied_.find(job.name());
    if (found == copied_.end() || found->second.image != job.last_image()) return false;
    if (found->second.to == node) return true;
    if (found->second.from != node) return false;
    news = job.condition() == v1::CONDITION_CHECKPOINTED && !std::exchange(found->second.last, true);
    copied = found->second;
  }
  bool stays = false;
  core_.Look([&](const Cluster& cluster) {
    const Cluster::Node* to = cluster.FindNode(copied.to);
    stays = to != nullptr && to->deadline == 0;
  });
  if (stays && news) host_.Record(ImageKept{job.name(), copied.to, copied.made, 0, true});
  return stays;
}

Time ImageKeeper::MadeAt(const std::string& node, const std::string& job, const std::string& image) const {
  const std::shared_ptr<AgentLink> link = host_.LinkOf(node);
  if (link == nullptr) return 0;
  const Result<v1::ImagesResponse> told = link->Images(job);
  if (!told.ok()) return 0;
  for (const v1::Image& each : told->images()) {
    if (each.job() == job && each.id() == image) return std::max<int64_t>(0, each.created_ms());
  }
  return 0;
}

bool ImageKeeper::WasEndedBy(const std::string& node, const std::string& job,
                             const std::string& image) const {
  for (const auto& [at, picture] : host_.PicturesOf(job)) {
    if (at == node) return picture.condition() == v1::CONDITION_CHECKPOINTED && picture.last_image() == image;
  }
  return false;
}

Time ImageKeeper::Now() const {
  Time at = 0;
  core_.LookNow([&](const Cluster&, Time now) { at = now; });
  return at;
}

void ImageKeeper::Carry(const std::string& node, const std::string& to, const std::string& job,
                        const std::string& image) {
  v1::CopyImageRequest request;
  request.set_job(job);
  request.set_image(image);
  request.set_node(host_.PeerAddress(to));
  const Alive alive = [&] { return PartnerOf(node, job) == to; };
  int attempt = 0;
  {
    std::lock_guard lock(mutex_);
    attempt = ++attempts_[job];
  }
  const std::string key = "copy-" + job + "-" + image + "-" + ShortHash(to) + "-" +
                          std::to_string(core_.reign()) + "-" + std::to_string(attempt);
  MakeRoom(to, job, LifeOf(node, job), key, alive);
  const Time began = Now();
  const Status done = host_.Perform({node, request, "", false}, key, alive);
  if (!done.ok()) {
    Log(LogLevel::kWarning, "driver", "image not copied", Facts(to, job, done));
    static_cast<void>(errands_.Wait(std::min(kFirstCopyRetry * attempt, kLastCopyRetry), alive));
    return;
  }
  const Time took = Now() - began;
  const Copied copied{image, node, to, MadeAt(node, job, image), WasEndedBy(node, job, image)};
  {
    std::lock_guard lock(mutex_);
    copied_[job] = copied;
    attempts_.erase(job);
  }
  Log(LogLevel::kInfo, "driver", "image copied", Facts(to, job, done));
  host_.Record(ImageKept{job, to, copied.made, std::max<Time>(took, 0), copied.last});
}

// What was not copied, or has come meanwhile.
void ImageKeeper::Again(const std::string& node, const std::string& job) {
  for (const auto& [at, picture] : host_.PicturesOf(job)) {
    if (at == node) Copy(node, picture);
  }
}

void ImageKeeper::CopyAll() {
  ForgetEnded();
  for (const auto& [node, job] : host_.PicturesOf("")) Copy(node, job);
}

void ImageKeeper::ForgetEnded() {
  std::set<std::string> live;
  core_.Look([&](const Cluster& cluster) {
    for (const auto& [name, entry] : cluster.jobs()) {
      if (entry.where != Cluster::Where::kEnded) live.insert(name);
    }
  });
  const auto ended = [&](const auto& each) { return !live.contains(each.first); };
  std::lock_guard lock(mutex_);
  std::erase_if(copied_, ended);
  std::erase_if(attempts_, ended);
}

void ImageKeeper::CopyAllAgain() {
  {
    std::lock_guard lock(mutex_);
    copied_.clear();
  }
  CopyAll();
}

// ---- Where a job comes back from

// When its newest image was made that can be read, in milliseconds since 1970; 0: none.
int64_t ImageKeeper::NewestAt(const std::string& node, const std::string& job, const Alive& alive) const {
  Duration wait = kFirstRetry;
  for (int question = 1;; ++question, wait = std::min(wait * 2, kLastRetry)) {
    const std::shared_ptr<AgentLink> link = host_.LinkOf(node);
    if (link == nullptr) return 0;
    const Result<v1::ImagesResponse> told = link->Images(job);
    if (told.ok()) {
      int64_t newest = 0;
      for (const v1::Image& image : told->images()) {
        if (image.job() == job && image.damage().empty()) newest = std::max(newest, image.created_ms());
      }
      return newest;
    }
    if (!MayBeTriedAgain(told.status()) || question == kMostQuestions) {
      Log(LogLevel::kWarning, "driver", "does not tell its images", Facts(node, job, told.status()));
      return 0;
    }
    if (!errands_.Wait(wait, alive)) return 0;
  }
}

// Until all that are taken to be reached are, or are known not to be: a scheduler that has just started has
// met none.
void ImageKeeper::AwaitNodes(const Alive& alive) const {
  const auto missing = [this] {
    std::vector<std::string> nodes;
    core_.Look([&](const Cluster& cluster) {
      for (const Cluster::Node& node : cluster.nodes()) {
        if (node.reachable) nodes.push_back(node.name);
      }
    });
    return std::any_of(nodes.begin(), nodes.end(),
                       [this](const std::string& node) { return host_.LinkOf(node) == nullptr; });
  };
  for (Duration wait = kFirstRetry; missing(); wait = std::min(wait * 2, kLastRetry)) {
    if (!errands_.Wait(wait, [&] { return alive() && missing(); })) return;
  }
}

std::string ImageKeeper::BetterNodeThan(const Order& order, const Alive& alive) const {
  const bool anew = order.kind == OrderKind::kRun;
  if (!anew && order.kind != OrderKind::kRestore) return "";
  bool lost = false;
  core_.Look([&](const Cluster& cluster) {
    const Cluster::Entry* entry = cluster.Find(order.job);
    lost = entry != nullptr && entry->lost;
  });
  if (!lost) return "";
  AwaitNodes(alive);
  std::vector<std::string> nodes;
  const std::vector<std::pair<std::string, v1::Job>> pictures = host_.PicturesOf(order.job);
  core_.Look([&](const Cluster& cluster) {
    const Cluster::Entry* entry = cluster.Find(order.job);
    if (entry == nullptr || !entry->lost) return;
    for (const auto& [node, picture] : pictures) {
      const bool elsewhere = anew || node != order.node;
      if (elsewhere && !picture.last_image().empty() && IsOurs(*entry, picture)) nodes.push_back(node);
    }
  });
  if (nodes.empty()) return "";
  std::string best;
  int64_t newest = anew ? 0 : NewestAt(order.node, order.job, alive);
  for (const std::string& node : nodes) {
    const int64_t there = NewestAt(node, order.job, alive);
    if (there <= newest) continue;
    newest = there;
    best = node;
  }
  return best;
}

// ---- Several lives

// That which the node has on record.
ImageKeeper::Life ImageKeeper::LifeOf(const std::string& node, const std::string& job) const {
  for (const auto& [at, picture] : host_.PicturesOf(job)) {
    if (at == node) return {picture.created_ms(), !picture.last_image().empty()};
  }
  return {};
}

bool ImageKeeper::IsOthers(const std::string& node, const std::string& job) const {
  bool others = false;
  for (const auto& [at, picture] : host_.PicturesOf(job)) {
    if (at != node) continue;
    core_.Look([&, picture = &picture](const Cluster& cluster) {
      const Cluster::Entry* entry = cluster.Find(job);
      others = entry == nullptr || !IsOurs(*entry, *picture);
    });
  }
  return others;
}

// What somebody else has moved by hand may live there: nothing of it is to when it comes back from an image.
void ImageKeeper::EndElsewhere(const Order& order, const Alive& alive) {
  for (const auto& [node, picture] : host_.PicturesOf(order.job)) {
    if (node == order.target || !picture.live() || host_.LinkOf(node) == nullptr) continue;
    if (IsOthers(node, order.job)) continue;
    v1::CancelRequest cancel;
    cancel.set_job(order.job);
    const Status done = host_.Perform({node, cancel, "", true},
                                      std::to_string(order.number) + "-end-" + ShortHash(node), alive);
    Log(LogLevel::kInfo, "driver", "ends what lives elsewhere", Facts(node, order.job, done));
  }
}

void ImageKeeper::MakeRoomFor(const Order& order, const Alive& alive) {
  if (order.kind == OrderKind::kRestore) EndElsewhere(order, alive);
  host_.Refresh(order.target, order.job);
  MakeRoom(order.target, order.job, LifeOf(order.node, order.job), std::to_string(order.number), alive);
}

void ImageKeeper::MakeRoom(const std::string& node, const std::string& job, const Life& life,
                           const std::string& key, const Alive& alive) {
  for (const auto& [at, picture] : host_.PicturesOf(job)) {
    if (at != node) continue;
    const bool in_the_way = !picture.live() && life.began != 0 && picture.created_ms() != life.began;
    if (!in_the_way || IsOthers(node, job)) continue;
    v1::RemoveRequest remove;
    remove.set_job(job);
    remove.set_images(life.has_image);
    const Status done = host_.Perform({node, remove, "", true}, key + "-clear", alive);
    Log(LogLevel::kInfo, "driver", "removes what is left of another life of a job", Facts(node, job, done));
    host_.Refresh(node, job);
  }
}

}  // namespace stasis::scheduler
