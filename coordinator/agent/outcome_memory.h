// What was told of a token last, so that what is told again is put on record once.
#ifndef COORDINATOR_AGENT_OUTCOME_MEMORY_H_
#define COORDINATOR_AGENT_OUTCOME_MEMORY_H_

#include <map>
#include <mutex>
#include <string>

namespace stasis {

// Thread-safe.
class OutcomeMemory {
 public:
  // Whether that is another outcome than the last one of the token, or the first. Of the tokens that came
  // lately: an older one is as new, and what is too long for a token always is.
  bool IsNews(const std::string& token, const std::string& outcome) {
    constexpr size_t kMaxTokens = 1024, kMaxToken = 64;
    if (token.size() > kMaxToken) return true;
    std::lock_guard lock(mutex_);
    const auto found = told_.find(token);
    if (found != told_.end() && found->second == outcome) return false;
    if (found == told_.end() && told_.size() >= kMaxTokens) told_.clear();
    told_[token] = outcome;
    return true;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> told_;
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_OUTCOME_MEMORY_H_
