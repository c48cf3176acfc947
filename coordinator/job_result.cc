#include "coordinator/job_result.h"

#include <algorithm>
#include <iterator>

namespace stasis {
namespace {

// From best to worst.
constexpr const char* kLefts[] = {"unchanged", "rolled-back", "paused", "in-doubt", "lost"};

std::string Text(const Json& object, const char* key) {
  auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// Byte counts are added up, times are those of the slowest; what is the same in all ranks stays.
void Fold(const std::string& key, const Json& value, Json* into) {
  auto found = into->find(key);
  if (found == into->end()) {
    (*into)[key] = value;
  } else if (!value.is_number() || !found->is_number()) {
    if (*found != value && value.is_boolean()) *found = false;
  } else if (key.ends_with("_bytes") || key == "extents" || key == "members") {
    *found = found->get<uint64_t>() + value.get<uint64_t>();
  } else if (key.ends_with("_ms")) {
    if (value > *found) *found = value;
  }
}

// What is one rank's own, and no figure.
bool IsOwn(const std::string& key) {
  constexpr const char* kOwn[] = {"ok",   "verb",     "notes",      "image",  "path", "gpus", "pid",
                                  "code", "init_pid", "log_length", "signal", "job",  "left"};
  return std::any_of(std::begin(kOwn), std::end(kOwn), [&](const char* own) { return key == own; });
}

Json RanksJson(const std::vector<RankOutcome>& ranks) {
  Json list = Json::array();
  for (const RankOutcome& rank : ranks) {
    if (!rank.result.is_null()) {
      list.push_back(rank.result);
    } else if (!rank.status.ok()) {
      list.push_back({{"ok", false},
                      {"code", StatusCodeName(rank.status.code())},
                      {"message", std::string(rank.status.message())}});
    } else {
      list.push_back({{"ok", true}, {"skipped", true}});
    }
  }
  return list;
}

Json NotesOf(const std::vector<RankOutcome>& ranks) {
  Json notes = Json::array();
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const Json& result = ranks[rank].result;
    auto own = result.is_object() ? result.find("notes") : result.end();
    if (!result.is_object() || own == result.end() || !own->is_array()) continue;
    for (const Json& note : *own) {
      if (note.is_string()) notes.push_back("rank " + std::to_string(rank) + ": " + note.get<std::string>());
    }
  }
  return notes;
}

}  // namespace

void AddNote(const std::string& note, Json* result) {
  if (!result->contains("notes")) (*result)["notes"] = Json::array();
  (*result)["notes"].push_back(note);
}

Json SuccessJson(const std::string& verb, const std::vector<RankOutcome>& ranks) {
  Json result = Json::object();
  for (const RankOutcome& rank : ranks) {
    if (!rank.result.is_object()) continue;
    for (auto field = rank.result.begin(); field != rank.result.end(); ++field) {
      if (!IsOwn(field.key())) Fold(field.key(), *field, &result);
    }
  }
  result["ok"] = true;
  result["verb"] = verb;
  result["notes"] = NotesOf(ranks);
  result["ranks"] = RanksJson(ranks);
  return result;
}

Json FailureJson(const std::string& verb, const Status& status, const std::string& remedy) {
  return {{"ok", false},
          {"verb", verb},
          {"code", StatusCodeName(status.code())},
          {"message", std::string(status.message())},
          {"remedy", remedy},
          {"left", "unchanged"},
          {"blockers", Json::array()},
          {"notes", Json::array()}};
}

Json FailureJson(const std::string& verb, const StarOutcome& outcome) {
  Json result = FailureJson(verb, outcome.failure, "");
  result["notes"] = NotesOf(outcome.ranks);
  result["ranks"] = RanksJson(outcome.ranks);
  if (outcome.failed_rank < 0) return result;
  const Json& own = outcome.ranks[static_cast<size_t>(outcome.failed_rank)].result;
  result["remedy"] = Text(own, "remedy");
  if (own.is_object() && own.contains("blockers") && own["blockers"].is_array()) {
    result["blockers"] = own["blockers"];
  }
  result["failed_rank"] = outcome.failed_rank;
  return result;
}

std::string LeftOf(const RankOutcome& outcome) {
  if (outcome.result.is_null()) return outcome.status.ok() ? "unchanged" : "";
  std::string left = Text(outcome.result, "left");
  return left.empty() ? "unchanged" : left;
}

void SetLeft(const std::string& job, const std::vector<std::string>& lefts, Json* result) {
  size_t worst = 0;
  Json by_left = Json::object();
  for (size_t rank = 0; rank < lefts.size(); ++rank) {
    by_left[lefts[rank]].push_back(rank);
    size_t at = static_cast<size_t>(std::find(std::begin(kLefts), std::end(kLefts), lefts[rank]) - kLefts);
    worst = std::max(worst, at);
  }
  std::string left = kLefts[std::min(worst, std::size(kLefts) - 1)];
  (*result)["left"] = left;
  (*result)["left_ranks"] = by_left;
  if (!Text(*result, "remedy").empty()) return;
  if (left == "paused" || left == "in-doubt") {
    (*result)["remedy"] = "`stasis resume " + job + "` lets all of its ranks run on";
  } else if (left == "lost") {
    (*result)["remedy"] = "`stasis cancel " + job + "` ends what is left of it, `stasis restore " + job +
                          "` brings it back from its last image";
  }
}

}  // namespace stasis
