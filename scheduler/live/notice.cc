// Nodes of which is known when they will be gone: whose work is brought elsewhere first, and what becomes of
// it. Nothing is ended for it: what is not saved runs on, and comes back from its last image.
#include <algorithm>
#include <utility>

#include "scheduler/live/cluster.h"

namespace stasis::scheduler {
namespace {

// So many jobs of a node are saved at a time. All of them share its way out: of many at once none might be
// complete when the node goes. Two, since one alone leaves the way idle while it is brought to a stop, and
// since one that hangs must not keep all others there.
constexpr size_t kSavesAtOnce = 2;
// So long one of which nothing is known keeps others from beginning.
constexpr Time kUnknownSave = 30 * kSecond;

std::string SecondsText(Time time) { return std::to_string((time + kSecond - 1) / kSecond) + " s"; }

}  // namespace

// ---- Images elsewhere

Status Cluster::Check(const ImageKept& fact) const {
  if (!node_ids_.contains(fact.node))
    return Errorf(StatusCode::kNotFound, "there is no node %s", fact.node.c_str());
  if (fact.made < 0 || fact.took < 0)
    return Errorf(StatusCode::kInvalidArgument, "job %s: times are not negative", fact.job.c_str());
  return CheckLive(fact.job);
}

void Cluster::Apply(uint64_t, const ImageKept& fact) {
  Entry& entry = EntryOf(fact.job);
  entry.copy_facts.resize(entry.copies.size());  // a snapshot may be older than they are
  const auto known = std::find(entry.copies.begin(), entry.copies.end(), fact.node);
  bool again = false;
  if (known != entry.copies.end()) {
    const auto before = entry.copy_facts.begin() + (known - entry.copies.begin());
    again = before->made == fact.made;  // then nothing had to be copied any more
    entry.copy_facts.erase(before);
    entry.copies.erase(known);
  }
  const Time made = fact.made == 0 ? state_.now() : std::min(fact.made, state_.now());
  entry.copies.push_back(fact.node);
  entry.copy_facts.push_back({made, ProgressAt(state_.job(entry.id), made), fact.last});
  if (fact.last && !entry.saved_from.empty()) return SaveTook(entry, state_.now() - entry.save_began);
  if (fact.took > 0 && !again) SaveTook(entry, fact.took);
}

void Cluster::SaveTook(Entry& entry, Time took) { entry.save_took = std::max<Time>(took, 1); }

// Where it has stood still since, that is all that it has done; what was lost between is counted as saved.
Time Cluster::ProgressAt(const Job& job, Time at) const {
  if (job.phase != JobPhase::kRunning || at <= job.progress_at) return job.progress;
  return job.progress + static_cast<Time>(static_cast<double>(at - job.progress_at) * job.rate);
}

// The newest image on a node that stays; null: none.
const Cluster::Entry::Copy* Cluster::CopyElsewhere(const Entry& entry, const std::string& node) const {
  for (size_t i = std::min(entry.copies.size(), entry.copy_facts.size()); i-- > 0;) {
    const Node& other = *FindNode(entry.copies[i]);
    if (other.name != node && other.reachable && other.deadline == 0) return &entry.copy_facts[i];
  }
  return nullptr;
}

// ---- Who is saved

bool Cluster::IsAt(const Entry& entry, const Node& node) const {
  const bool somewhere = entry.where != Where::kNowhere && entry.where != Where::kEnded;
  return somewhere && entry.node == node.name && !entry.cancelled;
}

bool Cluster::IsSaved(const Entry& entry, const Node& node) const {
  if (entry.where != Where::kImage) return false;
  const Entry::Copy* copy = CopyElsewhere(entry, node.name);
  return copy != nullptr && copy->last;
}

bool Cluster::IsToLeave(const Entry& entry) const {
  const Node* node = FindNode(entry.node);
  return node != nullptr && node->draining && (node->deadline == 0 || entry.saved_from == node->name);
}

std::vector<Cluster::Unsaved> Cluster::UnsavedAt(const Node& node) const {
  std::vector<Unsaved> unsaved;
  if (node.deadline == 0) return unsaved;
  for (const auto& [name, entry] : jobs_) {
    if (IsAt(entry, node) && !IsSaved(entry, node)) unsaved.push_back({name, entry.saved_from == node.name});
  }
  return unsaved;
}

// What it would have to do again, in device-milliseconds.
Time Cluster::AtStake(const Entry& entry, const std::string& node) const {
  const Entry::Copy* copy = CopyElsewhere(entry, node);
  const Time done = state_.ProgressOf(state_.job(entry.id));
  const Time kept = std::max(entry.before, copy == nullptr ? 0 : copy->progress);
  return std::max<Time>(done - kept, 0) * entry.request.gpus;
}

// Whether there is a node to which anything could be brought.
bool Cluster::AnyTakes(const Node& leaving) const {
  return std::any_of(nodes_.begin(), nodes_.end(), [&](const Node& node) {
    return node.name != leaving.name && node.reachable && !node.draining;
  });
}

// From then on it keeps nobody back: it hangs, or cannot be saved at all.
Time Cluster::SaveDue(const Entry& entry) const {
  return entry.save_began + (entry.save_took > 0 ? entry.save_took : kUnknownSave);
}

// Who saves the most work for the time that saving it is expected to take; where nothing is known of that, it
// is as with the others. Null: nobody now.
//
// Nobody is begun who is not expected to be done in time beside those who have begun: only when there is
// nobody whom it would slow down, and so nothing to lose by it.
const Cluster::Entry* Cluster::NextToSave(const Node& node) const {
  std::vector<const Entry*> waiting;
  size_t on_time = 0, known = 0;
  Time busy = 0, sum = 0;
  for (const auto& [name, entry] : jobs_) {
    if (!IsAt(entry, node) || IsSaved(entry, node)) continue;
    if (entry.saved_from == node.name) {
      busy += std::max<Time>(0, entry.save_began + entry.save_took - state_.now());
      on_time += SaveDue(entry) > state_.now() ? 1 : 0;
      continue;
    }
    // What is an image is copied without anybody's turn.
    const bool can_begin = entry.where != Where::kImage && entry.orders.empty();
    if (!can_begin || state_.IsKept(state_.job(entry.id))) continue;
    waiting.push_back(&entry);
    known += entry.save_took > 0 ? 1 : 0;
    sum += entry.save_took;
  }
  if (waiting.empty() || on_time >= kSavesAtOnce) return nullptr;
  const Time mean = known == 0 ? 0 : sum / static_cast<Time>(known);
  const auto expected = [mean](const Entry* entry) { return entry->save_took > 0 ? entry->save_took : mean; };
  const auto worth = [&](const Entry* entry) {
    return static_cast<double>(AtStake(*entry, node.name)) /
           static_cast<double>(std::max<Time>(expected(entry), 1));
  };
  std::sort(waiting.begin(), waiting.end(), [&](const Entry* a, const Entry* b) {
    const double worth_a = worth(a), worth_b = worth(b);
    return worth_a != worth_b ? worth_a > worth_b : a->id < b->id;
  });
  const Time left = std::max<Time>(0, node.deadline - state_.now());
  for (const Entry* entry : waiting) {
    if (busy + expected(entry) <= left) return entry;
  }
  return on_time == 0 ? waiting.front() : nullptr;
}

std::vector<Fact> Cluster::SaveNext() const {
  for (const Node& node : nodes_) {
    if (node.deadline == 0 || !node.reachable || !AnyTakes(node)) continue;
    const Entry* next = NextToSave(node);
    if (next == nullptr) continue;
    std::vector<Fact> facts = {SaveBegun{next->request.name, node.name}};
    if (next->where != Where::kRunning) return facts;  // it becomes an image where it is
    for (Fact& fact : Leave(*next)) facts.push_back(std::move(fact));
    return facts;
  }
  return {};
}

Status Cluster::Check(const SaveBegun& fact) const {
  if (!node_ids_.contains(fact.node))
    return Errorf(StatusCode::kNotFound, "there is no node %s", fact.node.c_str());
  return CheckLive(fact.job);
}

void Cluster::Apply(uint64_t, const SaveBegun& fact) {
  Entry& entry = EntryOf(fact.job);
  entry.saved_from = fact.node;
  entry.save_began = state_.now();
}

// ---- What has become of them

std::string Cluster::WhyNotSaved(const Entry& entry, const Node& node) const {
  if (state_.now() < node.deadline) return "the node has gone before its time";
  if (entry.where == Where::kImage) return "its image was not copied in time";
  if (entry.saved_from == node.name) return "saving it was not done in time";
  if (!AnyTakes(node)) return "there is no other node";
  if (state_.IsKept(state_.job(entry.id))) return "it could not be saved: " + entry.message;
  if (entry.save_took == 0) return "others came first";
  return "saving it takes " + SecondsText(entry.save_took) + ", and others came first";
}

std::vector<Fact> Cluster::TellSaves() const {
  std::vector<Fact> facts;
  for (const Node& node : nodes_) {
    if (node.deadline == 0) continue;
    const bool over = node.deadline <= state_.now() || !node.reachable;
    for (const auto& job : jobs_) {
      const std::string& name = job.first;
      const Entry& entry = job.second;
      const auto told = std::find_if(node.saves.begin(), node.saves.end(),
                                     [&](const SaveEnded& save) { return save.job == name; });
      const bool moved = entry.saved_from == node.name && entry.node != node.name;
      if (moved || (IsAt(entry, node) && IsSaved(entry, node))) {
        if (told == node.saves.end() || !told->saved)
          facts.push_back(SaveEnded{name, node.name, true, "", 0});
      } else if (over && IsAt(entry, node) && told == node.saves.end()) {
        const Entry::Copy* copy = CopyElsewhere(entry, node.name);
        std::string why = WhyNotSaved(entry, node) + "; ";
        why += copy == nullptr
                   ? "there is no image of it elsewhere"
                   : "its newest image elsewhere is " + SecondsText(state_.now() - copy->made) + " old";
        facts.push_back(SaveEnded{name, node.name, false, std::move(why), copy == nullptr ? 0 : copy->made});
      }
    }
  }
  return facts;
}

Status Cluster::Check(const SaveEnded& fact) const {
  if (!node_ids_.contains(fact.node))
    return Errorf(StatusCode::kNotFound, "there is no node %s", fact.node.c_str());
  return CheckLive(fact.job);
}

void Cluster::Apply(uint64_t, const SaveEnded& fact) {
  Node& node = nodes_[IdOf(fact.node)];
  std::erase_if(node.saves, [&](const SaveEnded& save) { return save.job == fact.job; });
  node.saves.push_back(fact);
  Entry& entry = EntryOf(fact.job);
  if (fact.saved && entry.saved_from == fact.node) entry.saved_from.clear();
}

// ---- The notice

// Who is not begun when there is none any more stays; who is goes on. By a later one there may be time for
// more.
void Cluster::SetNotice(Node& node, Time deadline) {
  if (deadline == node.deadline) return;
  std::erase_if(node.saves, [deadline](const SaveEnded& save) { return deadline == 0 || !save.saved; });
  node.deadline = deadline;
  if (deadline != 0) return;
  for (auto& [name, entry] : jobs_) {
    if (entry.saved_from == node.name) entry.saved_from.clear();
  }
}

// When it is over, and when a save that should have been done keeps nobody back any more.
void Cluster::WakeForNotices() {
  for (const Node& node : nodes_) {
    if (node.deadline == 0) continue;
    if (node.deadline > state_.now()) wake_ = std::min(wake_, node.deadline);
    for (const auto& [name, entry] : jobs_) {
      if (entry.saved_from == node.name && SaveDue(entry) > state_.now())
        wake_ = std::min(wake_, SaveDue(entry));
    }
  }
}

}  // namespace stasis::scheduler
