// For tests: a pause of this process as the control thread and a ghost make it, under
// TaskStrategy::kReconstruct.
#ifndef REPLAY_TESTING_H_
#define REPLAY_TESTING_H_

#include <chrono>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/task_protocol.h"
#include "vmm/testing.h"

namespace stasis::replay {

// The steps by themselves, for the control thread of a test (a thread that is not inside of a call).
Status Stop(const Deadline& deadline = Deadline::After(std::chrono::seconds(20)),
            std::vector<TaskBlocker>* blockers = nullptr);
Status LetGo();
Status ComeBack();
// Of a failed ComeBack().
void BackToReleased();
// The program goes on.
void GoOn();

// All of them in a thread of its own, with expectations.
void PauseAndResume();
// What a pause says about the program now; empty when it has nothing against it.
std::string Refusal();

}  // namespace stasis::replay

#endif  // REPLAY_TESTING_H_
