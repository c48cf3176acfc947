// The store of images, as one task's ghost uses it.
#include "base/files.h"
#include "ghost/freezer.h"
#include "ghost/job.h"
#include "ghost/restored.h"
#include "ghost/scratch.h"

namespace stasis {
namespace {

bool IsOldImage(const std::string& name) {
  return name.size() == 6 && name.find_first_not_of("0123456789") == std::string::npos;
}

// The newest image of version 1 in `folder`, or `id` if that is not empty; "" when there is none.
std::string FindOldImage(const std::string& folder, const std::string& id) {
  if (!id.empty()) return IsOldImage(id) && Exists(folder + "/" + id) ? id : "";
  Result<std::vector<std::string>> names = ListFolder(folder);
  std::string newest;
  if (!names.ok()) return newest;
  for (const std::string& name : *names) {
    if (IsOldImage(name)) newest = name;
  }
  return newest;
}

}  // namespace

Result<std::shared_ptr<stasis::Store>> Job::OpenStore() {
  if (op_.store) return op_.store;
  StoreOptions options;
  options.keys = arguments_.state_dir;
  Result<std::shared_ptr<stasis::Store>> store = stasis::Store::Open(paths_.store, options);
  if (!store.ok()) return OnDisk(store.status());
  for (const std::string& note : (*store)->notes()) op_.answer.notes.push_back(note);
  return store;
}

// A disk without room is the user's to mend.
Status Job::OnDisk(Status status) {
  if (status.code() != StatusCode::kResourceExhausted) return status;
  if (op_.answer.remedy.empty()) {
    op_.answer.remedy = "free room below " + arguments_.state_dir +
                        ": remove images with `stasis images rm`, then `stasis images gc`; or set "
                        "STASIS_STATE_DIR to a larger disk";
  }
  return std::move(status).WithContext("no room for the image in " + paths_.store);
}

Status Job::ChooseImage() {
  ASSIGN_OR_RETURN(op_.store, OpenStore());
  op_.image_id = op_.request.image;
  if (op_.image_id.empty()) {
    ASSIGN_OR_RETURN(std::vector<std::string> ids, ListImages(*op_.store, config_.name));
    if (!ids.empty()) op_.image_id = ids.back();
  }
  bool stored = !op_.image_id.empty() && Exists(paths_.Image(op_.image_id));
  std::string old = stored ? "" : FindOldImage(paths_.folders, op_.request.image);
  if (!old.empty()) {
    op_.answer.remedy = "restore it with the version of stasis that wrote it, and checkpoint the task again";
    return Status(StatusCode::kUnsupported, "image " + old + " of task " + config_.name +
                                                " has format version 1 (the folder " + paths_.folders + "/" +
                                                old + "); this program reads version " +
                                                std::to_string(kImageVersion));
  }
  if (op_.image_id.empty()) return Status(StatusCode::kNotFound, "task " + config_.name + " has no image");
  ASSIGN_OR_RETURN(op_.reader, ImageReader::Open(op_.store, config_.name, op_.image_id));
  ASSIGN_OR_RETURN(op_.manifest, ParseManifest(op_.reader->meta()));
  op_.moved = MoveToHere(&op_.manifest, config_.log, paths_.run);
  return Status();
}

// CRIU goes on when ghost and guardian are killed. What ends the task needs to know nothing of it.
Status Job::AwaitLeftDump() {
  const bool looks = phase_ == Phase::kRunning && op_.request.verb != Verb::kCancel;
  if (!looks || !Exists(paths_.Dump())) return Status();
  Status status = AwaitCriuOfOthers(paths_.Dump() + "/" + kCriuFolder, Deadline::After(kThawTime));
  if (!status.ok()) op_.answer.remedy = "try again when it has ended";
  return status;
}

// What a ghost that was killed has left behind; only while nothing of this task is held.
void Job::Sweep() {
  if (phase_ == Phase::kRunning) RemoveUnusedFreezer(process_.init_pid, config_.name);
  (void)RemoveScratch(paths_.Dump());
  (void)RemoveScratch(paths_.Revive());
  if (holdings_.on_disk() || !Exists(paths_.Image(kHeldImage))) return;
  Result<std::shared_ptr<stasis::Store>> store = OpenStore();
  Status status = store.ok() ? RemoveImage(**store, config_.name, kHeldImage) : store.status();
  untidy_ = true;
  if (!status.ok()) Log(LogLevel::kWarning, "device memory held on disk is left: " + status.ToString());
}

void Job::Tidy() {
  if (!untidy_ || held()) return;
  Result<std::shared_ptr<stasis::Store>> store = OpenStore();
  Result<GcReport> report = store.ok() ? (*store)->CollectGarbage() : Result<GcReport>(store.status());
  // Whoever else collects does the same.
  if (report.ok() || report.status().code() == StatusCode::kFailedPrecondition) return;
  Log(LogLevel::kWarning, "collect what is of no use: " + report.status().ToString());
}

}  // namespace stasis
