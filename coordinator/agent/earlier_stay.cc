#include "coordinator/agent/earlier_stay.h"

#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "base/files.h"
#include "coordinator/moved_mark.h"
#include "coordinator/node/job.h"

namespace stasis {
namespace {

constexpr char kFolder[] = "earlier", kMark[] = "moved.json";
constexpr char kRecord[] = "/job.json", kEarlierRecord[] = "/earlier.json";

std::string AsideOf(const TaskPaths& paths) { return paths.folder + "/" + kFolder; }

Status Rename(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) == 0) return Status();
  return ErrnoStatus(errno, "rename " + from + " to " + to);
}

// All of `from`, the mark as `mark_first` says: where it is, nothing makes the task run.
Status MoveAll(const std::string& from, const std::string& to, bool mark_first) {
  ASSIGN_OR_RETURN(std::vector<std::string> names, ListFolder(from));
  std::stable_partition(names.begin(), names.end(),
                        [&](const std::string& name) { return (name == kMark) == mark_first; });
  for (const std::string& name : names) {
    if (name != kFolder) RETURN_IF_ERROR(Rename(from + "/" + name, to + "/" + name));
  }
  RETURN_IF_ERROR(SyncFolder(to));
  return SyncFolder(from);
}

Status RemoveAllButAside(const std::string& folder) {
  ASSIGN_OR_RETURN(std::vector<std::string> names, ListFolder(folder));
  for (const std::string& name : names) {
    if (name != kFolder) RETURN_IF_ERROR(RemoveTree(folder + "/" + name));
  }
  return Status();
}

}  // namespace

Status SetEarlierTaskAside(const TaskPaths& paths) {
  // What an attempt has left that was interrupted.
  if (Exists(AsideOf(paths))) RETURN_IF_ERROR(PutEarlierTaskBack(paths));
  if (MovedTo(paths.folder).empty()) return RemoveTree(paths.folder);
  RETURN_IF_ERROR(MakeFolders(AsideOf(paths)));
  return MoveAll(paths.folder, AsideOf(paths), /*mark_first=*/false);
}

Status PutEarlierTaskBack(const TaskPaths& paths) {
  const std::string aside = AsideOf(paths);
  // With a mark there, some or all of the earlier record is, and nothing that has come since.
  const bool marked = !MovedTo(paths.folder).empty();
  if (!Exists(aside)) return marked ? Status() : RemoveTree(paths.folder);
  if (!marked) RETURN_IF_ERROR(RemoveAllButAside(paths.folder));
  RETURN_IF_ERROR(MoveAll(aside, paths.folder, /*mark_first=*/true));
  if (rmdir(aside.c_str()) == 0) return Status();
  return ErrnoStatus(errno, "remove " + aside);
}

void ForgetEarlierTask(const TaskPaths& paths) { (void)RemoveTree(AsideOf(paths)); }

Status SetEarlierJobAside(const Folders& folders, const std::string& job, const TaskPaths& first_rank) {
  const std::string folder = JobFolder(folders, job);
  if (MovedTo(first_rank.folder).empty() || !Exists(folder + kRecord)) return Status();
  return Rename(folder + kRecord, folder + kEarlierRecord);
}

Status PutEarlierJobBack(const Folders& folders, const std::string& job) {
  const std::string folder = JobFolder(folders, job);
  if (Exists(folder + kEarlierRecord)) return Rename(folder + kEarlierRecord, folder + kRecord);
  (void)unlink((folder + kRecord).c_str());
  (void)rmdir((folder + "/images").c_str());
  (void)rmdir(folder.c_str());
  return Status();
}

void ForgetEarlierJob(const Folders& folders, const std::string& job) {
  (void)unlink((JobFolder(folders, job) + kEarlierRecord).c_str());
}

}  // namespace stasis
