#include "coordinator/agent/handover.h"

namespace stasis {

Giver Giver::Recovered(Record record) {
  switch (record) {
    case Record::kNone:
    case Record::kKept:
      return Giver(Step::kKeep);
    case Record::kGiving:
      return Giver(Step::kAsk);
    case Record::kGone:
      return Giver(Step::kEnd);
    case Record::kTakenBack:
      return Giver(Step::kYield);
  }
  return Giver(Step::kAsk);
}

// A record that cannot be written does not hold back what is decided: the older one leads to the same answer.
// But for kTakenBack, where it does not, and which may have been written after all: there is no way back from
// it.
void Giver::Done(bool ok) {
  switch (step_) {
    case Step::kWriteGiving:
      step_ = ok ? Step::kHandOver : Step::kKeep;
      return;
    case Step::kWriteGone:
      step_ = Step::kEnd;
      return;
    case Step::kWriteKept:
      step_ = Step::kKeep;
      return;
    case Step::kEnd:
      if (ok) step_ = Step::kGone;
      return;
    case Step::kWriteTakenBack:
      if (ok) step_ = Step::kYield;
      return;
    case Step::kYield:
      if (ok) step_ = Step::kTakenBack;
      return;
    case Step::kKeep:
      step_ = Step::kKept;
      return;
    default:
      return;
  }
}

void Giver::Answered(HandOverAnswer answer) {
  if (step_ != Step::kHandOver && step_ != Step::kAsk) return;
  if (answer == HandOverAnswer::kRuns) {
    step_ = Step::kWriteGone;
  } else if (answer == HandOverAnswer::kNotTaken) {
    step_ = Step::kWriteKept;
  } else {
    step_ = Step::kAsk;
  }
}

void Giver::Overrule() {
  if (step_ == Step::kAsk || step_ == Step::kWriteGone) step_ = Step::kWriteTakenBack;
}

Taker Taker::Recovered(Record record) {
  Taker taker;
  taker.offered_ = false;
  switch (record) {
    case Record::kNone:
    case Record::kReturned:
      taker.answer_ = HandOverAnswer::kNotTaken;
      break;
    case Record::kMine:
      taker.answer_ = HandOverAnswer::kUndecided;
      taker.step_ = Step::kProbe;
      break;
    case Record::kRuns:
      taker.answer_ = HandOverAnswer::kRuns;
      break;
  }
  return taker;
}

void Taker::Take() {
  if (!offered_) return;
  offered_ = false;
  answer_ = HandOverAnswer::kUndecided;
  step_ = Step::kWriteMine;
}

void Taker::Done(bool ok) {
  switch (step_) {
    case Step::kWriteMine:
      step_ = ok ? Step::kRestore : Step::kWait;
      // Should it have been written after all, the next agent finds that nothing was restored.
      if (!ok) answer_ = HandOverAnswer::kNotTaken;
      return;
    case Step::kRestore:
    case Step::kProbe:
      step_ = ok ? Step::kWriteRuns : Step::kWriteReturned;
      return;
    case Step::kWriteRuns:
    case Step::kWriteReturned:
      // Not written: the next agent probes, and finds the same.
      answer_ = step_ == Step::kWriteRuns ? HandOverAnswer::kRuns : HandOverAnswer::kNotTaken;
      step_ = Step::kWait;
      return;
    case Step::kEnd:
      step_ = ok ? Step::kWriteReturned : Step::kWait;
      return;
    case Step::kWait:
      return;
  }
}

void Taker::LetGo() {
  if (step_ == Step::kWait && answer_ == HandOverAnswer::kRuns) step_ = Step::kEnd;
}

HandOverAnswer Taker::Ask() {
  if (offered_) {
    offered_ = false;
    answer_ = HandOverAnswer::kNotTaken;
  }
  return answer_;
}

const char* RecordName(Giver::Record record) {
  switch (record) {
    case Giver::Record::kNone:
      return "";
    case Giver::Record::kGiving:
      return "giving";
    case Giver::Record::kGone:
      return "gone";
    case Giver::Record::kKept:
      return "kept";
    case Giver::Record::kTakenBack:
      return "taken-back";
  }
  return "";
}

const char* RecordName(Taker::Record record) {
  switch (record) {
    case Taker::Record::kNone:
      return "";
    case Taker::Record::kMine:
      return "mine";
    case Taker::Record::kRuns:
      return "runs";
    case Taker::Record::kReturned:
      return "returned";
  }
  return "";
}

Giver::Record GiverRecordOf(std::string_view name) {
  for (Giver::Record record :
       {Giver::Record::kGiving, Giver::Record::kGone, Giver::Record::kKept, Giver::Record::kTakenBack}) {
    if (name == RecordName(record)) return record;
  }
  return Giver::Record::kNone;
}

Taker::Record TakerRecordOf(std::string_view name) {
  for (Taker::Record record : {Taker::Record::kMine, Taker::Record::kRuns, Taker::Record::kReturned}) {
    if (name == RecordName(record)) return record;
  }
  return Taker::Record::kNone;
}

}  // namespace stasis
