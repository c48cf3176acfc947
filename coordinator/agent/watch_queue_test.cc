#include "coordinator/agent/watch_queue.h"

#include <gtest/gtest.h>

namespace stasis {
namespace {

JobPicture Job(const std::string& name, uint64_t revision, bool gone = false) {
  auto job = std::make_shared<v1::Job>();
  job->set_name(name);
  job->set_revision(revision);
  job->set_gone(gone);
  return job;
}

// "a1 b2 | c3": what is told, by name and revision, with a bar where the start has been told.
std::string Told(WatchQueue& queue) {
  std::string text;
  while (std::optional<v1::WatchEvent> event = queue.Next()) {
    if (!text.empty()) text += " ";
    text += event->caught_up() ? (event->complete() ? "||" : "|")
                               : event->job().name() + std::to_string(event->job().revision());
    if (event->caught_up()) continue;
    EXPECT_EQ(event->revision(), event->job().revision());
  }
  return text;
}

TEST(WatchQueue, TellsTheStartThenChangesByRevision) {
  WatchQueue queue("");
  queue.Begin({Job("b", 4), Job("a", 2)}, 4, true);
  queue.Add(Job("c", 5));
  EXPECT_EQ(Told(queue), "a2 b4 || c5");
  queue.Add(Job("a", 6));
  EXPECT_EQ(Told(queue), "a6");
}

TEST(WatchQueue, OfManyChangesOneIsTold) {
  WatchQueue queue("");
  queue.Begin({Job("a", 1)}, 1, true);
  for (uint64_t revision = 2; revision <= 1000; revision++) queue.Add(Job("a", revision));
  EXPECT_EQ(queue.size(), 2u);
  EXPECT_EQ(Told(queue), "a1 || a1000");
}

TEST(WatchQueue, WhatTheStartHasToldIsNotToldAgain) {
  WatchQueue queue("");
  queue.Begin({Job("a", 3)}, 3, true);
  queue.Add(Job("a", 2));
  queue.Add(Job("a", 3));
  EXPECT_EQ(Told(queue), "a3 ||");
}

TEST(WatchQueue, ARemovalThatTheStartMissedIsTold) {
  WatchQueue queue("");
  queue.Begin({Job("a", 3)}, 5, false);
  EXPECT_EQ(Told(queue), "a3 |");
  queue.Add(Job("b", 4, true), /*late=*/true);
  EXPECT_EQ(Told(queue), "b4");
}

TEST(WatchQueue, OtherJobsAreNotTold) {
  WatchQueue queue("a");
  queue.Begin({Job("a", 1), Job("b", 2)}, 2, true);
  queue.Add(Job("b", 3));
  queue.Add(Job("a", 4));
  EXPECT_EQ(Told(queue), "a1 || a4");
}

}  // namespace
}  // namespace stasis
