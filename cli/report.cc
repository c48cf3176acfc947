#include "cli/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace stasis {
namespace {

constexpr int kBarWidth = 24;
constexpr auto kBarInterval = std::chrono::milliseconds(50);  // more often is only work for the terminal

std::string RateText(uint64_t bytes, Duration time) {
  double seconds = std::chrono::duration<double>(time).count();
  return seconds < 0.1 ? "" : SizeText(static_cast<uint64_t>(static_cast<double>(bytes) / seconds)) + "/s";
}

std::string BlockerText(const Json& blocker) {
  std::string text = fmt::format("  process {} thread {} is in {}\n", IntegerField(blocker, "pid"),
                                 IntegerField(blocker, "tid"), TextField(blocker, "call", "?"));
  for (const std::string& frame : TextsField(blocker, "stack")) text += "    " + frame + "\n";
  return text;
}

std::string LeftText(const Json& failure) {
  const char* what = failure.contains("job") ? "job" : "task";
  std::string left = TextField(failure, "left");
  if (left == "rolled-back") return fmt::format("  the {} is as it was before\n", what);
  if (left == "paused") return fmt::format("  the {} is paused; nothing is lost\n", what);
  if (left == "lost") return fmt::format("  the {} is lost; its last image can be restored\n", what);
  if (left == "in-doubt")
    return "  ranks stand still, as it is not known what the others do; nothing is lost\n";
  return "";
}

}  // namespace

std::string BarText(uint64_t done, uint64_t total, int width) {
  double part = total == 0 ? 0 : std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
  int full = static_cast<int>(part * width);
  return "[" + std::string(static_cast<size_t>(full), '#') +
         std::string(static_cast<size_t>(width - full), ' ') + "]";
}

void Reporter::ClearBar() {
  if (bar_shown_) std::fputs("\r\033[K", stderr);
  bar_shown_ = false;
}

void Reporter::Note(const std::string& sentence) {
  notes_.push_back(sentence);
  if (options_.json || options_.quiet) return;
  ClearBar();
  std::fprintf(stderr, "stasis: %s\n", sentence.c_str());
}

void Reporter::Progress(const std::string& phase, uint64_t done, uint64_t total) {
  if (options_.json || options_.quiet) return;
  MonotonicTime now = Clock::Real().Now();
  bool new_phase = phase != phase_;
  if (new_phase) {
    phase_ = phase;
    phase_start_ = now;
  }
  if (!options_.terminal) {
    if (new_phase) std::fprintf(stderr, "stasis: %s\n", phase.c_str());
    return;
  }
  if (!new_phase && done != total && now - bar_time_ < kBarInterval) return;
  bar_time_ = now;
  bar_shown_ = true;
  std::string line = phase;
  if (total > 0) {
    line = fmt::format("{:<24} {} {} / {}  {}", phase, BarText(done, total, kBarWidth), SizeText(done),
                       SizeText(total), RateText(done, now - phase_start_));
  }
  std::fprintf(stderr, "\r%s\033[K", line.c_str());
}

void Reporter::PrintDocument(Json document) {
  document["verb"] = verb_;
  if (!task_.empty()) document["task"] = task_;
  Json notes = notes_;
  if (document.contains("notes") && document["notes"].is_array()) {
    for (const Json& note : document["notes"]) {
      if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(note);
    }
  }
  document["notes"] = notes;
  std::printf("%s\n", document.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
}

int Reporter::Done(Json fields, const std::string& text) {
  return DoneWith(kExitOk, std::move(fields), text);
}

int Reporter::DoneWith(int exit_code, Json fields, const std::string& text) {
  ClearBar();
  if (options_.json) {
    fields["ok"] = true;
    PrintDocument(std::move(fields));
  } else if (!text.empty()) {
    std::printf("%s%s", text.c_str(), text.back() == '\n' ? "" : "\n");
  }
  if (std::fflush(stdout) != 0 && exit_code == kExitOk) return kExitFailed;
  return exit_code;
}

int Reporter::Fail(const Status& status, const std::string& remedy, int exit_code) {
  Json failure = {{"code", StatusCodeName(status.code())}, {"message", std::string(status.message())}};
  if (!remedy.empty()) failure["remedy"] = remedy;
  if (exit_code < 0) exit_code = ExitCodeOf(status.code());
  failure["exit_code"] = exit_code;
  PrintFailure(failure);
  return exit_code;
}

int Reporter::FailWith(const Json& result, int exit_code) {
  if (exit_code < 0) exit_code = ExitCodeOf(StatusCodeByName(TextField(result, "code")));
  Json failure = result;
  failure["exit_code"] = exit_code;
  PrintFailure(failure);
  return exit_code;
}

void Reporter::PrintFailure(const Json& failure) {
  ClearBar();
  if (options_.json) {
    Json document = failure;
    document["ok"] = false;
    PrintDocument(std::move(document));
    std::fflush(stdout);
    return;
  }
  std::string text = "stasis: ";
  if (!verb_.empty()) text += verb_ + ": ";
  text += TextField(failure, "message", "failed") + "\n";
  auto blockers = failure.find("blockers");
  if (blockers != failure.end() && blockers->is_array()) {
    for (const Json& blocker : *blockers) text += BlockerText(blocker);
  }
  text += LeftText(failure);
  std::string remedy = TextField(failure, "remedy");
  if (!remedy.empty()) text += "  " + remedy + "\n";
  for (const std::string& note : TextsField(failure, "notes")) text += "  note: " + note + "\n";
  std::fputs(text.c_str(), stderr);
}

}  // namespace stasis
