// Who has a job while it is handed over from one node to another. Exactly one of the two sides lets it run,
// whichever messages are lost and whichever agent is killed, and however often.
//
// Decisions only: who uses these objects carries out what step() says and tells what came of it. What is
// written is on stable storage when it is told to be. docs/migration.md says why it holds.
#ifndef COORDINATOR_AGENT_HANDOVER_H_
#define COORDINATOR_AGENT_HANDOVER_H_

#include <string_view>

namespace stasis {

// What the target says of a token.
enum class HandOverAnswer {
  kNone,       // nothing could be heard
  kUndecided,  // it is being restored there
  kRuns,       // it runs there, or has run there
  kNotTaken,   // it does not, and never will by this token
};

// The side that has the job at first, paused. One object from the decision to hand over to the end.
class Giver {
 public:
  // As it is on stable storage.
  enum class Record { kNone, kGiving, kGone, kKept, kTakenBack };
  enum class Step {
    kWriteGiving,
    kHandOver,  // tell the target to take it, and answer
    kAsk,       // what has become of it: as often as needed
    kWriteGone,
    kEnd,  // what is paused here ends without running again
    kWriteKept,
    kKeep,  // it runs on here
    kWriteTakenBack,
    // That the target lets go of it is owed from now on, for as long as it takes; what is paused here is left
    // to the order that has taken it back.
    kYield,
    kGone,       // at the end
    kKept,       // at the end
    kTakenBack,  // at the end
  };

  Giver() = default;
  // After the agent was killed.
  static Giver Recovered(Record record);

  Step step() const { return step_; }
  // A step that writes was carried out, or has failed; kKeep was carried out; kEnd and kYield were, or are to
  // be tried again.
  void Done(bool ok);
  // Of kHandOver and kAsk.
  void Answered(HandOverAnswer answer);
  // Of kAsk and kWriteGone: somebody who may decide it has taken the job back, or wants it to end, whatever
  // the target has of it.
  void Overrule();
  bool ended() const { return step_ == Step::kGone || step_ == Step::kKept || step_ == Step::kTakenBack; }

 private:
  explicit Giver(Step step) : step_(step) {}
  Step step_ = Step::kWriteGiving;
};

// The side that gets it. One object for each token, from the offer on. Not thread-safe.
class Taker {
 public:
  // As it is on stable storage. An offer is not: it ends with the agent.
  enum class Record { kNone, kMine, kRuns, kReturned };
  enum class Step {
    kWait,  // for messages
    kWriteMine,
    kRestore,
    kProbe,  // after a kill: whether it runs here, or has; once nothing restores it any more
    kEnd,    // what has come ends
    kWriteRuns,
    kWriteReturned,
  };

  // Of an offer that was accepted.
  Taker() : offered_(true) {}
  // After the agent was killed, also of a token that nothing is known of.
  static Taker Recovered(Record record);

  Step step() const { return step_; }
  void Done(bool ok);

  // A HandOver has come, whether for the first time or not.
  void Take();
  // What is to be answered to AskOutcome. A token that was not taken is void from then on.
  HandOverAnswer Ask();
  // The same without that; kNone: it was not taken.
  HandOverAnswer answer() const { return answer_; }
  // The source has taken it back. Where it runs, or has run, that leads to kEnd; what is undecided is asked
  // for again.
  void LetGo();
  bool open() const { return offered_; }

 private:
  bool offered_ = false;
  Step step_ = Step::kWait;
  HandOverAnswer answer_ = HandOverAnswer::kNone;
};

const char* RecordName(Giver::Record record);
const char* RecordName(Taker::Record record);
Giver::Record GiverRecordOf(std::string_view name);  // kNone: no such name
Taker::Record TakerRecordOf(std::string_view name);

}  // namespace stasis

#endif  // COORDINATOR_AGENT_HANDOVER_H_
