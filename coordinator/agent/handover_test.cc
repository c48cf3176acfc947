// Every state that two agents, the network between them and the two copies of a job can come into, with lost,
// late and repeated messages, failing writes, failing restores, and agents killed between any two steps.
#include "coordinator/agent/handover.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace stasis {
namespace {

enum class Here { kPaused, kRunning, kEnded };
enum class There { kNone, kAsked, kRestoring, kRunning };

struct World {
  Giver giver;
  bool giver_alive = true;
  Giver::Record giver_record = Giver::Record::kNone;
  Here here = Here::kPaused;

  Taker taker;
  bool taker_alive = true;
  Taker::Record taker_record = Taker::Record::kNone;
  There there = There::kNone;

  bool hand_over = false;  // on its way
  bool ask = false;
  bool let_go = false;
  std::set<HandOverAnswer> answers;
  bool owed = false;     // by the source, on stable storage: the target is told to let go of it
  bool ordered = false;  // what was paused at the source was left to an order
  int kills = 0, losses = 0, failed_writes = 0, orders = 0;  // that may yet happen

  std::string Key() const {
    std::string key;
    for (int value : {static_cast<int>(giver.step()), giver_alive ? 1 : 0, static_cast<int>(giver_record),
                      static_cast<int>(here), static_cast<int>(taker.step()),
                      static_cast<int>(taker.answer()), taker.open() ? 1 : 0, taker_alive ? 1 : 0,
                      static_cast<int>(taker_record), static_cast<int>(there), hand_over ? 1 : 0, ask ? 1 : 0,
                      let_go ? 1 : 0, owed ? 1 : 0, ordered ? 1 : 0, kills, losses, failed_writes, orders}) {
      key += static_cast<char>('a' + value);
    }
    for (HandOverAnswer answer : answers) key += static_cast<char>('0' + static_cast<int>(answer));
    return key;
  }
  bool Runs() const { return here == Here::kRunning || there == There::kRunning; }
  bool Twice() const { return here == Here::kRunning && there == There::kRunning; }
  // Nothing is left from which it could run again.
  bool Lost() const { return here == Here::kEnded && there != There::kRunning; }
};

using Worlds = std::vector<World>;

template <typename Change>
void Add(const World& from, Worlds* next, Change change) {
  World world = from;
  change(world);
  next->push_back(std::move(world));
}

bool MayAnswer(const World& w, HandOverAnswer answer) {
  return answer != HandOverAnswer::kNone && !w.answers.contains(answer);
}

void GiverSteps(const World& w, Worlds* next) {
  if (!w.giver_alive) {
    Add(w, next, [](World& v) {
      v.giver_alive = true;
      v.giver = Giver::Recovered(v.giver_record);
    });
    return;
  }
  auto write = [&](Giver::Record record) {
    Add(w, next, [&](World& v) {
      v.giver_record = record;
      v.giver.Done(true);
    });
    if (w.failed_writes == 0) return;
    for (bool written : {false, true}) {
      Add(w, next, [&](World& v) {
        if (written) v.giver_record = record;
        --v.failed_writes;
        v.giver.Done(false);
      });
    }
  };
  if (w.owed && !w.let_go) Add(w, next, [](World& v) { v.let_go = true; });
  auto hear = [&] {
    for (HandOverAnswer answer : w.answers) {
      Add(w, next, [&](World& v) {
        v.answers.erase(answer);
        v.giver.Answered(answer);
      });
    }
  };
  auto overrule = [&] {
    if (w.orders == 0) return;
    Add(w, next, [](World& v) {
      --v.orders;
      v.giver.Overrule();
    });
  };
  switch (w.giver.step()) {
    case Giver::Step::kWriteGiving:
      return write(Giver::Record::kGiving);
    case Giver::Step::kWriteGone:
      overrule();
      return write(Giver::Record::kGone);
    case Giver::Step::kWriteKept:
      return write(Giver::Record::kKept);
    case Giver::Step::kHandOver:
      Add(w, next, [](World& v) {
        v.hand_over = true;
        v.giver.Answered(HandOverAnswer::kNone);
      });
      return hear();
    case Giver::Step::kAsk:
      if (!w.ask) Add(w, next, [](World& v) { v.ask = true; });
      overrule();
      return hear();
    case Giver::Step::kWriteTakenBack:
      return write(Giver::Record::kTakenBack);
    case Giver::Step::kYield:
      Add(w, next, [](World& v) {  // killed, or failed, between the two
        v.owed = true;
        v.giver.Done(false);
      });
      return Add(w, next, [](World& v) {
        v.owed = true;
        v.ordered = true;
        v.here = Here::kRunning;  // what a restore makes of it; one that is cancelled matters less
        v.giver.Done(true);
      });
    case Giver::Step::kEnd:
      Add(w, next, [](World& v) { v.giver.Done(false); });
      return Add(w, next, [](World& v) {
        v.here = Here::kEnded;
        v.giver.Done(true);
      });
    case Giver::Step::kKeep:
      return Add(w, next, [](World& v) {
        v.here = Here::kRunning;
        v.giver.Done(true);
      });
    case Giver::Step::kGone:
    case Giver::Step::kKept:
    case Giver::Step::kTakenBack:
      return;
  }
}

void TakerMessages(const World& w, Worlds* next) {
  if (w.hand_over) {
    for (bool again : {false, true}) {  // it may come twice
      if (again && w.losses == 0) continue;
      Add(w, next, [&](World& v) {
        v.hand_over = again;
        if (again) --v.losses;
        v.taker.Take();
        if (MayAnswer(v, v.taker.answer())) v.answers.insert(v.taker.answer());
      });
    }
  }
  if (w.ask) {
    Add(w, next, [](World& v) {
      v.ask = false;
      HandOverAnswer answer = v.taker.Ask();
      if (MayAnswer(v, answer)) v.answers.insert(answer);
    });
  }
  if (!w.let_go) return;
  Add(w, next, [](World& v) {
    v.let_go = false;
    const bool let_go = v.taker.Ask() == HandOverAnswer::kNotTaken;
    v.taker.LetGo();
    if (let_go && v.giver_alive) v.owed = false;
  });
}

void TakerSteps(const World& w, Worlds* next) {
  if (!w.taker_alive) {
    Add(w, next, [](World& v) {
      v.taker_alive = true;
      v.taker = Taker::Recovered(v.taker_record);
    });
    return;
  }
  TakerMessages(w, next);
  auto write = [&](Taker::Record record) {
    Add(w, next, [&](World& v) {
      v.taker_record = record;
      v.taker.Done(true);
      if (v.taker.step() == Taker::Step::kWait && MayAnswer(v, v.taker.answer()))
        v.answers.insert(v.taker.answer());
    });
    if (w.failed_writes == 0) return;
    for (bool written : {false, true}) {
      Add(w, next, [&](World& v) {
        if (written) v.taker_record = record;
        --v.failed_writes;
        v.taker.Done(false);
      });
    }
  };
  switch (w.taker.step()) {
    case Taker::Step::kWait:
      return;
    case Taker::Step::kWriteMine:
      return write(Taker::Record::kMine);
    case Taker::Step::kWriteRuns:
      return write(Taker::Record::kRuns);
    case Taker::Step::kWriteReturned:
      return write(Taker::Record::kReturned);
    case Taker::Step::kRestore:
      // The ghost does it, whether or not somebody waits for it.
      if (w.there == There::kNone) {
        Add(w, next, [](World& v) { v.there = There::kAsked; });
        Add(w, next, [](World& v) { v.taker.Done(false); });
      }
      if (w.there == There::kRunning) Add(w, next, [](World& v) { v.taker.Done(true); });
      return;
    case Taker::Step::kEnd:
      Add(w, next, [](World& v) { v.taker.Done(false); });
      return Add(w, next, [](World& v) {
        v.there = There::kNone;
        v.taker.Done(true);
      });
    case Taker::Step::kProbe:
      if (w.there == There::kNone) Add(w, next, [](World& v) { v.taker.Done(false); });
      if (w.there == There::kRunning) Add(w, next, [](World& v) { v.taker.Done(true); });
      return;
  }
}

void GhostSteps(const World& w, Worlds* next) {
  if (w.there == There::kAsked) Add(w, next, [](World& v) { v.there = There::kRestoring; });
  if (w.there != There::kRestoring) return;
  Add(w, next, [](World& v) { v.there = There::kRunning; });
  Add(w, next, [](World& v) {
    v.there = There::kNone;
    if (v.taker_alive && v.taker.step() == Taker::Step::kRestore) v.taker.Done(false);
  });
}

void Faults(const World& w, Worlds* next) {
  if (w.kills > 0 && w.giver_alive) {
    Add(w, next, [](World& v) {
      --v.kills;
      v.giver_alive = false;
    });
  }
  if (w.kills > 0 && w.taker_alive) {
    Add(w, next, [](World& v) {
      --v.kills;
      v.taker_alive = false;
    });
  }
  if (w.losses == 0) return;
  if (w.hand_over) {
    Add(w, next, [](World& v) {
      --v.losses;
      v.hand_over = false;
    });
  }
  if (w.ask) {
    Add(w, next, [](World& v) {
      --v.losses;
      v.ask = false;
    });
  }
  if (w.let_go) {
    Add(w, next, [](World& v) {
      --v.losses;
      v.let_go = false;
    });
  }
  for (HandOverAnswer answer : w.answers) {
    Add(w, next, [&](World& v) {
      --v.losses;
      v.answers.erase(answer);
    });
  }
}

Worlds Next(const World& world) {
  Worlds next;
  GiverSteps(world, &next);
  TakerSteps(world, &next);
  GhostSteps(world, &next);
  Faults(world, &next);
  return next;
}

struct Explored {
  std::map<std::string, World> worlds;
  std::map<std::string, std::vector<std::string>> from;  // predecessors
  std::vector<std::string> good;                         // ends in which all is decided and one copy runs
};

bool IsEnd(const World& w) {
  return w.giver_alive && w.giver.ended() && !w.owed && w.taker_alive && w.taker.step() == Taker::Step::kWait;
}

Explored Explore(int kills, int losses, int failed_writes, int orders = 0) {
  Explored all;
  World first;
  first.kills = kills;
  first.losses = losses;
  first.failed_writes = failed_writes;
  first.orders = orders;
  std::deque<World> open = {first};
  all.worlds.emplace(first.Key(), first);
  while (!open.empty()) {
    World world = std::move(open.front());
    open.pop_front();
    const std::string key = world.Key();
    if (IsEnd(world)) all.good.push_back(key);
    for (World& next : Next(world)) {
      std::string to = next.Key();
      all.from[to].push_back(key);
      if (all.worlds.emplace(to, next).second) open.push_back(std::move(next));
    }
  }
  return all;
}

// From every state there is a way to an end: nobody waits for ever.
void CheckNoneStuck(const Explored& all) {
  std::set<std::string> reach(all.good.begin(), all.good.end());
  std::deque<std::string> open(all.good.begin(), all.good.end());
  while (!open.empty()) {
    auto found = all.from.find(open.front());
    open.pop_front();
    if (found == all.from.end()) continue;
    for (const std::string& key : found->second) {
      if (reach.insert(key).second) open.push_back(key);
    }
  }
  EXPECT_EQ(reach.size(), all.worlds.size());
}

TEST(HandOver, ExactlyOneRunsWhateverHappens) {
  Explored all = Explore(/*kills=*/3, /*losses=*/2, /*failed_writes=*/1);
  EXPECT_GT(all.worlds.size(), 10000u);
  size_t here = 0, there = 0;
  for (const auto& [key, world] : all.worlds) {
    ASSERT_FALSE(world.Twice()) << key;
    ASSERT_FALSE(world.Lost()) << key;
    if (!IsEnd(world)) continue;
    // Also with messages that come after the end.
    ASSERT_TRUE(world.Runs()) << key;
    // Nothing stays paused where the job has left.
    ASSERT_NE(world.here, Here::kPaused) << key;
    (world.here == Here::kRunning ? here : there) += 1;
  }
  EXPECT_GT(here, 0u);
  EXPECT_GT(there, 0u);
  CheckNoneStuck(all);
}

// Whoever takes it back decides that it runs here, whatever runs there; but what runs there is told, however
// long that takes, and nothing of it is left then.
TEST(HandOver, WhatWasTakenBackIsLetGoOf) {
  Explored all = Explore(/*kills=*/2, /*losses=*/1, /*failed_writes=*/1, /*orders=*/1);
  EXPECT_GT(all.worlds.size(), 10000u);
  size_t taken_back = 0, ran_there = 0;
  for (const auto& [key, world] : all.worlds) {
    // What had gone, and whose target is not heard any more, the order brings back from its image.
    ASSERT_TRUE(!world.Lost() || world.giver_record == Giver::Record::kTakenBack) << key;
    if (world.Twice()) {
      ASSERT_TRUE(world.ordered && world.owed) << key;
      ++ran_there;
    }
    if (!IsEnd(world)) continue;
    ASSERT_TRUE(world.Runs()) << key;
    if (!world.ordered) continue;
    ASSERT_EQ(world.here, Here::kRunning) << key;
    ASSERT_EQ(world.there, There::kNone) << key;
    ++taken_back;
  }
  EXPECT_GT(taken_back, 0u);
  EXPECT_GT(ran_there, 0u);
  CheckNoneStuck(all);
}

// Only what has been handed over, and is not yet known to be gone, can be, and there is no way back from it.
TEST(HandOver, WhatWasTakenBackStaysSo) {
  Giver giver;
  giver.Overrule();
  giver.Done(true);
  giver.Overrule();
  EXPECT_EQ(giver.step(), Giver::Step::kHandOver);
  giver.Answered(HandOverAnswer::kNone);
  giver.Overrule();
  EXPECT_EQ(giver.step(), Giver::Step::kWriteTakenBack);
  giver.Answered(HandOverAnswer::kRuns);
  giver.Done(false);  // it may have been written all the same
  EXPECT_EQ(giver.step(), Giver::Step::kWriteTakenBack);
  giver.Done(true);
  EXPECT_EQ(giver.step(), Giver::Recovered(Giver::Record::kTakenBack).step());
}

TEST(HandOver, WithoutFaultsTheJobMoves) {
  Explored all = Explore(0, 0, 0);
  for (const auto& [key, world] : all.worlds) {
    if (IsEnd(world) && world.there == There::kRunning) return;
  }
  FAIL() << "it never moves";
}

TEST(HandOver, ALateHandOverOfAVoidTokenIsRefused) {
  Taker taker;
  EXPECT_EQ(taker.Ask(), HandOverAnswer::kNotTaken);
  taker.Take();
  EXPECT_EQ(taker.step(), Taker::Step::kWait);
  EXPECT_EQ(taker.answer(), HandOverAnswer::kNotTaken);
}

TEST(HandOver, RecordsHaveNames) {
  for (Giver::Record record : {Giver::Record::kNone, Giver::Record::kGiving, Giver::Record::kGone,
                               Giver::Record::kKept, Giver::Record::kTakenBack})
    EXPECT_EQ(GiverRecordOf(RecordName(record)), record);
  for (Taker::Record record :
       {Taker::Record::kNone, Taker::Record::kMine, Taker::Record::kRuns, Taker::Record::kReturned})
    EXPECT_EQ(TakerRecordOf(RecordName(record)), record);
  EXPECT_EQ(GiverRecordOf("something"), Giver::Record::kNone);
}

}  // namespace
}  // namespace stasis
