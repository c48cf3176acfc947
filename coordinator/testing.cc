#include "coordinator/testing.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/files.h"

namespace stasis {
namespace {

constexpr uint32_t kRequest = 1, kEvent = 2, kResult = 3;

std::vector<std::string> QuestionsOf(const Json& request, bool held) {
  std::string verb = request.value("verb", "");
  bool cut = request.value("pause_protocol", "cut") == "cut", stop = request.value("stop", false);
  std::vector<std::string> questions;
  if ((verb == "pause" || verb == "checkpoint" || verb == "migrate") && !held) {
    if (cut) questions = {"cut", "cut"};
    questions.push_back("drained");
  }
  auto add = [&](std::initializer_list<const char*> more) {
    questions.insert(questions.end(), more.begin(), more.end());
  };
  if (verb == "pause") add({"held"});
  if (verb == "checkpoint") {
    add({"claim", "dumped"});
    if (!stop && !held) add({"revived", "join", "joined"});
    add({"saved", "committed"});
  }
  if (verb == "migrate") add({"held"});
  if (verb == "restore") add({"loaded"});
  bool joins = verb == "resume" || verb == "restore" || (verb == "migrate" && !held);
  if (joins && request.value("in_doubt", "") != "go-on") add({"revived", "join", "joined"});
  return questions;
}

const std::map<std::string, VotePoint> kVotes = {
    {"drained", VotePoint::kDrained}, {"held", VotePoint::kHeld},           {"dumped", VotePoint::kDumped},
    {"saved", VotePoint::kSaved},     {"committed", VotePoint::kCommitted}, {"loaded", VotePoint::kLoaded},
    {"revived", VotePoint::kRevived}, {"joined", VotePoint::kJoined}};

Question QuestionOf(const std::string& name, uint32_t number, int round) {
  Question question;
  question.number = number;
  if (name == "cut") {
    question.kind = QuestionKind::kCut;
    question.cut.resize(1);
    question.cut[0].settled = round > 1;
    question.cut[0].events = static_cast<uint32_t>(round);
  } else if (name == "join") {
    question.kind = QuestionKind::kJoin;
  } else if (name == "claim") {
    question.kind = QuestionKind::kClaim;
    question.chunks = {{1, 2}, {3, 4}};
  } else {
    question.kind = QuestionKind::kVote;
    question.point = kVotes.at(name);
  }
  return question;
}

void Send(int socket, uint32_t type, uint64_t id, std::vector<std::byte> payload) {
  Message message;
  message.type = type;
  message.request_id = id;
  message.payload = std::move(payload);
  (void)SendMessage(socket, std::move(message), Deadline::After(std::chrono::seconds(10)));
}

void SendJson(int socket, uint32_t type, uint64_t id, const Json& json) {
  std::string text = JsonText(json);
  auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  Send(socket, type, id, std::vector<std::byte>(bytes, bytes + text.size()));
}

Json Parse(const Message& message) {
  auto* text = reinterpret_cast<const char*>(message.payload.data());
  return Json::parse(text, text + message.payload.size(), nullptr, false);
}

Json FailureOf(const std::string& verb, const Status& status, const std::string& left) {
  return {{"ok", false},
          {"verb", verb},
          {"code", StatusCodeName(status.code())},
          {"message", std::string(status.message())},
          {"remedy", ""},
          {"left", left},
          {"blockers", Json::array()},
          {"notes", Json::array()}};
}

void Wake(const Fd& event) {
  uint64_t one = 1;
  (void)!write(event.get(), &one, sizeof one);
}

void Await(const Fd& event) {
  pollfd wait{event.get(), POLLIN, 0};
  while (poll(&wait, 1, -1) <= 0) continue;
  uint64_t count;
  (void)!read(event.get(), &count, sizeof count);
}

}  // namespace

FakeRank::FakeRank(const std::string& state_dir, const std::string& run_dir, const std::string& task)
    : state_dir_(state_dir),
      task_(task),
      stop_(eventfd(0, EFD_CLOEXEC)),
      held_(eventfd(0, EFD_CLOEXEC)),
      release_(eventfd(0, EFD_CLOEXEC)) {
  Result<UnixListener> listener = UnixListener::Listen(run_dir + "/tasks/" + task + "/ghost.sock");
  EXPECT_TRUE(listener.ok()) << listener.status().ToString();
  listener_ = *std::move(listener);
  thread_ = std::thread([this] { Serve(); });
}

FakeRank::~FakeRank() {
  Wake(stop_);
  thread_.join();
}

void FakeRank::SetFault(FakeFault fault) {
  std::lock_guard lock(mutex_);
  faults_left_ = fault.times;
  fault_ = std::move(fault);
}

void FakeRank::HoldAt(const std::string& question) {
  std::lock_guard lock(mutex_);
  hold_at_ = question;
}

void FakeRank::AwaitHeld() { Await(held_); }
void FakeRank::Release() { Wake(release_); }

void FakeRank::set_phase(const std::string& phase) {
  std::lock_guard lock(mutex_);
  phase_ = phase;
  state_ = phase == "held"      ? "paused"
           : phase == "absent"  ? "ended"
           : phase == "drained" ? "in-doubt"
                                : "running";
}

std::string FakeRank::phase() {
  std::lock_guard lock(mutex_);
  return phase_;
}

std::string FakeRank::state() {
  std::lock_guard lock(mutex_);
  return state_;
}

std::vector<std::string> FakeRank::asked() {
  std::lock_guard lock(mutex_);
  return asked_;
}

std::vector<Json> FakeRank::requests() {
  std::lock_guard lock(mutex_);
  return requests_;
}

void FakeRank::set_on_committed(std::function<void()> call) {
  std::lock_guard lock(mutex_);
  on_committed_ = std::move(call);
}

std::string FakeRank::ImagePath() const {
  return state_dir_ + "/store/images/" + task_ + "/" + image_ + ".image";
}

// False when the test is over.
bool FakeRank::Readable(int socket) {
  pollfd waits[] = {{socket, POLLIN, 0}, {stop_.get(), POLLIN, 0}};
  while (poll(waits, 2, -1) <= 0) continue;
  return waits[1].revents == 0;
}

void FakeRank::Serve() {
  while (Readable(listener_.fd())) {
    Result<Fd> socket = listener_.Accept();
    if (socket.ok()) ServeOne(*std::move(socket));
  }
}

void FakeRank::ServeOne(Fd socket) {
  MessageDecoder decoder;
  while (Readable(socket.get())) {
    Result<bool> complete = ReceiveSome(socket.get(), decoder);
    if (!complete.ok()) return;
    if (*complete && !Handle(socket.get(), decoder, decoder.Take())) return;
  }
}

bool FakeRank::AnswerStatus(int socket, const Message& message) {
  Json request = Parse(message);
  std::string verb = request.value("verb", "");
  bool operation = verb == "cancel" && request.value("what", "task") == "operation";
  if (verb != "status" && !operation) return false;
  std::lock_guard lock(mutex_);
  Json answer = {{"ok", true}, {"verb", verb}, {"phase", phase_}, {"state", state_}, {"operation", ""}};
  SendJson(socket, kResult, message.request_id, answer);
  return true;
}

bool FakeRank::Handle(int socket, MessageDecoder& decoder, const Message& message) {
  if (message.type != kRequest || AnswerStatus(socket, message)) return true;
  Json request = Parse(message);
  {
    std::lock_guard lock(mutex_);
    requests_.push_back(request);
  }
  SendJson(socket, kEvent, message.request_id, {{"phase", "begin"}, {"done", 0}, {"total", 0}});
  bool lost = false;
  Json result = Walk(socket, decoder, message.request_id, request, &lost);
  if (!lost) SendJson(socket, kResult, message.request_id, result);
  return !lost;
}

// Takes the fault that is to happen at this question.
bool FakeRank::Meets(const std::string& name, Status* fault, bool* dies) {
  bool hold;
  FakeFault::Kind kind;
  {
    std::lock_guard lock(mutex_);
    asked_.push_back(name);
    hold = hold_at_ == name;
    if (hold) hold_at_.clear();
    if (!hold && (faults_left_ == 0 || fault_.at != name)) return false;
    kind = fault_.kind;
    if (!hold) --faults_left_;
    *fault = Status(fault_.code, "it went wrong at " + name);
  }
  if (hold) {
    Wake(held_);
    Await(release_);
    *fault = Status();
    return false;
  }
  if (kind == FakeFault::kSilent) (void)Readable(stop_.get());
  *dies = kind != FakeFault::kFail;
  return true;
}

std::optional<QuestionAnswer> FakeRank::Ask(int socket, MessageDecoder& decoder, uint64_t id,
                                            const std::string& name) {
  int round = 0;
  {
    std::lock_guard lock(mutex_);
    round = static_cast<int>(std::count(asked_.begin(), asked_.end(), "cut"));
  }
  Question question = QuestionOf(name, ++number_, round);
  Send(socket, kGhostQuestion, id, Encode(question));
  while (Readable(socket)) {
    Result<bool> complete = ReceiveSome(socket, decoder);
    if (!complete.ok()) return std::nullopt;
    if (!*complete) continue;
    Message message = decoder.Take();
    if (message.type == kRequest && AnswerStatus(socket, message)) continue;
    EXPECT_EQ(message.type, kGhostAnswer);
    EXPECT_EQ(message.request_id, id);
    Result<QuestionAnswer> answer = DecodeQuestionAnswer(message.payload);
    EXPECT_TRUE(answer.ok()) << answer.status().ToString();
    if (!answer.ok()) return std::nullopt;
    EXPECT_EQ(answer->number, question.number);
    EXPECT_EQ(answer->kind, question.kind);
    EXPECT_EQ(answer->mine.size(), answer->status.ok() ? question.chunks.size() : 0);
    return *std::move(answer);
  }
  return std::nullopt;
}

Json FakeRank::Succeed(const std::string& verb, const Json& request) {
  Json result = {{"ok", true}, {"verb", verb}, {"notes", Json::array()}, {"device_bytes", 100}};
  if (verb == "pause") set_phase("held");
  if (verb == "resume" || verb == "restore") set_phase("running");
  bool ends = verb == "cancel" || (verb == "checkpoint" && request.value("stop", false));
  if (ends) set_phase("absent");
  if (verb == "checkpoint") {
    result["image"] = image_;
    result["standstill_ms"] = 7;
    result["image_bytes"] = 1000;
  }
  return result;
}

Json FakeRank::LostAt(const std::string& verb, const std::string& question) {
  if (verb == "resume" || verb == "restore") {
    set_phase(question == "joined" ? "running" : verb == "resume" ? "held" : "absent");
  } else if (question == "drained") {
    set_phase("drained");
  } else if (gave_up_ && !joined_) {
    set_phase("held");
  }
  return nullptr;
}

Json FakeRank::GoBack(int socket, MessageDecoder& decoder, uint64_t id, const std::string& verb,
                      const Status& why, bool tell, bool* lost) {
  if (tell) {
    Question fail;
    fail.number = ++number_;
    fail.kind = QuestionKind::kFail;
    fail.failure = why;
    Send(socket, kGhostQuestion, id, Encode(fail));
  }
  std::string left = verb == "resume" ? "paused" : verb == "restore" ? "unchanged" : "rolled-back";
  if (gave_up_ && !joined_) {
    for (const char* question : {"join", "joined"}) {
      Status fault;
      bool dies = false;
      bool failed = Meets(question, &fault, &dies);
      std::optional<QuestionAnswer> answer;
      if (!failed) answer = Ask(socket, decoder, id, question);
      if (!failed && !answer) {
        *lost = true;
        return LostAt(verb, question);
      }
      if (failed) {
        Question again;
        again.number = ++number_;
        again.kind = QuestionKind::kFail;
        again.failure = fault;
        Send(socket, kGhostQuestion, id, Encode(again));
      }
      if (failed || !answer->status.ok()) {
        left = "paused";
        set_phase("held");
        break;
      }
    }
  }
  Json result = FailureOf(verb, why, left);
  if (tell) result["remedy"] = "look at " + task_;
  return result;
}

Json FakeRank::Walk(int socket, MessageDecoder& decoder, uint64_t id, const Json& request, bool* lost) {
  std::string verb = request.value("verb", "");
  gave_up_ = joined_ = false;
  bool held = phase() == "held";
  {
    std::lock_guard lock(mutex_);
    if (phase_ == "drained" && request.contains("in_doubt")) state_ = "running", phase_ = "running";
  }
  for (const std::string& name : QuestionsOf(request, held)) {
    Status fault;
    bool dies = false;
    if (Meets(name, &fault, &dies)) {
      *lost = dies;
      if (dies) {
        if (gave_up_ && !joined_) set_phase("held");
        return nullptr;
      }
      return GoBack(socket, decoder, id, verb, fault, true, lost);
    }
    if (name == "committed") {
      std::string folder = state_dir_ + "/store/images/" + task_;
      std::filesystem::create_directories(folder);
      image_ = "000001";
      for (int next = 2; std::filesystem::exists(ImagePath()); ++next)
        image_ = "00000" + std::to_string(next);
      std::ofstream(ImagePath()) << "image";
    }
    std::optional<QuestionAnswer> answer = Ask(socket, decoder, id, name);
    if (!answer) {
      *lost = true;
      return LostAt(verb, name);
    }
    if (!answer->status.ok()) {
      if (name == "committed") std::filesystem::remove(ImagePath());
      return GoBack(socket, decoder, id, verb, answer->status, false, lost);
    }
    if (name == "drained") gave_up_ = true;
    if (name == "joined") joined_ = true;
    std::lock_guard lock(mutex_);
    if (name == "committed" && on_committed_) on_committed_();
  }
  return Succeed(verb, request);
}

}  // namespace stasis
