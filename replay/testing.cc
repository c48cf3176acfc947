#include "replay/testing.h"

#include <thread>

#include "intercept/gate.h"
#include "replay/pause.h"
#include "vmm/pause.h"

namespace stasis::replay {

namespace {

vmm::Exported g_exported;

}  // namespace

Status Stop(const Deadline& deadline, std::vector<TaskBlocker>* blockers) {
  std::vector<TaskBlocker> unused;
  if (blockers == nullptr) blockers = &unused;
  RETURN_IF_ERROR(CloseGate(deadline, blockers));
  return Drain(deadline, blockers);
}

Status LetGo() {
  RETURN_IF_ERROR(CheckRebuildable());
  RETURN_IF_ERROR(Save());
  g_exported = vmm::ExportAll();
  RETURN_IF_ERROR(vmm::Release(TaskStrategy::kReconstruct));
  RETURN_IF_ERROR(Teardown());
  CloseDriver();
  return {};
}

Status ComeBack() {
  RETURN_IF_ERROR(OpenDriver(LIBCUDA_PATH));
  RETURN_IF_ERROR(RebuildContexts());
  vmm::ImportAll(g_exported);
  RETURN_IF_ERROR(vmm::Reattach(TaskStrategy::kReconstruct));
  return RebuildObjects();
}

void BackToReleased() {
  (void)vmm::Release(TaskStrategy::kReconstruct);
  EXPECT_STATUS_OK(Teardown());
  CloseDriver();
}

void GoOn() {
  g_exported = {};
  OpenGate();
}

void PauseAndResume() {
  std::thread control([] {
    EXPECT_STATUS_OK(Stop());
    EXPECT_STATUS_OK(LetGo());
    EXPECT_STATUS_OK(ComeBack());
    GoOn();
  });
  control.join();
}

std::string Refusal() {
  std::string message;
  std::thread control([&message] {
    EXPECT_STATUS_OK(Stop());
    const Status status = CheckRebuildable();
    EXPECT_TRUE(status.ok() || status.code() == StatusCode::kUnsupported) << status.ToString();
    message = status.message();
    OpenGate();
  });
  control.join();
  return message;
}

}  // namespace stasis::replay
