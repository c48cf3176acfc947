#include "coordinator/agent/copy_shelf.h"

#include <algorithm>
#include <utility>

#include "base/fd.h"
#include "base/files.h"
#include "coordinator/job_json.h"
#include "coordinator/moved_mark.h"
#include "coordinator/node/image_names.h"
#include "coordinator/node/imported_task.h"
#include "coordinator/node/job.h"
#include "coordinator/node/job_start.h"
#include "coordinator/node/task.h"
#include "dedup/image.h"

namespace stasis {
namespace {

Result<Manifest> MetaOf(const Store& store, const std::string& task, const std::string& image) {
  ASSIGN_OR_RETURN(std::string path, ManifestPath(store.root(), task, image));
  ASSIGN_OR_RETURN(ImageManifest manifest, ReadImageManifest(store.files(), path, store.keyring()));
  return ParseManifest(manifest.meta);
}

// "": there is none.
std::string StoredSum(const Store& store, const std::string& task, const std::string& image) {
  Result<std::string> path = ManifestPath(store.root(), task, image);
  if (!path.ok()) return "";
  Result<std::unique_ptr<StoreFile>> file = store.files().Open(*path);
  if (!file.ok()) return "";
  Result<uint64_t> size = (*file)->Size();
  std::byte last[sizeof(Hash128)];
  if (!size.ok() || *size < sizeof last || !(*file)->ReadAt(last, *size - sizeof last).ok()) return "";
  return SumOf(last);
}

// An image that is encrypted has other bytes each time, and is compared by what is in it, where it can be
// read.
bool IsStoredAs(const Store& store, const ImageManifest& manifest, const std::string& sum) {
  Result<std::string> path = ManifestPath(store.root(), manifest.task, manifest.id);
  if (!path.ok()) return false;
  Result<ImageManifest> stored = ReadImageManifest(store.files(), *path, store.keyring());
  if (!stored.ok() || !stored->names) return false;
  Result<std::vector<std::byte>> bytes = SerializeImageManifest(*stored);
  return bytes.ok() && SumOf(*bytes) == sum;
}

// Of all that is in the manifests but the names that they have here.
Result<bool> IsOf(const Store& store, const CopyRow& row, std::vector<ImageManifest>& manifests) {
  if (row.images.size() != manifests.size()) return false;
  for (size_t rank = 0; rank < manifests.size(); ++rank) {
    manifests[rank].task = row.tasks[rank];
    manifests[rank].id = row.images[rank];
    ASSIGN_OR_RETURN(std::vector<std::byte> bytes, SerializeImageManifest(manifests[rank]));
    if (SumOf(bytes) != row.sums[rank] && !IsStoredAs(store, manifests[rank], SumOf(bytes))) return false;
  }
  return true;
}

Result<uint64_t> WhenMade(const std::vector<ImageManifest>& manifests) {
  uint64_t made = 0;
  for (const ImageManifest& image : manifests) {
    ASSIGN_OR_RETURN(Manifest manifest, ParseManifest(image.meta));
    made = std::max(made, manifest.created);
  }
  return made;
}

// A record that is not there, or is damaged, is in nobody's way; one that cannot be looked at may be of what
// lives.
Status CheckReadable(const Result<TaskFacts>& facts) {
  const StatusCode code = facts.status().code();
  return code == StatusCode::kNotFound || code == StatusCode::kCorrupt ? Status() : facts.status();
}

// What a program that ran here to its end has said is not given up for an image of it on its way.
Status CheckNotDone(const TaskPaths& paths) {
  Result<TaskFacts> facts = ReadTaskFacts(paths);
  RETURN_IF_ERROR(CheckReadable(facts));
  if (!facts.ok() || DeriveCondition(*facts).condition != TaskCondition::kExited) return Status();
  return Status(StatusCode::kFailedPrecondition, paths.name + " has run there to its end");
}

Status CheckIdle(const Folders& folders, const Registry& registry, const ArrivedJob& job) {
  JobPicture picture = registry.Find(job.name);
  if (picture != nullptr && !picture->operation().empty()) {
    return Status(StatusCode::kFailedPrecondition,
                  "operation " + picture->operation() + " works on " + job.name + " there");
  }
  for (const std::string& task : job.tasks) {
    Result<TaskFacts> facts = ReadTaskFacts(TaskPaths(folders, task));
    RETURN_IF_ERROR(CheckReadable(facts));
    if (facts.ok() && facts->ghost_listens)
      return Status(StatusCode::kFailedPrecondition, "a ghost works on " + task + " there");
    RETURN_IF_ERROR(CheckNotDone(TaskPaths(folders, task)));
  }
  return Status();
}

bool AnyLive(const Folders& folders, const CopyRow& row) {
  return std::any_of(row.tasks.begin(), row.tasks.end(), [&](const std::string& task) {
    Result<TaskFacts> facts = ReadTaskFacts(TaskPaths(folders, task));
    return !CheckReadable(facts).ok() || (facts.ok() && IsLive(DeriveCondition(*facts).condition));
  });
}

// It says no more than that its task came with an image.
bool IsPlainImport(const TaskPaths& paths) {
  Result<TaskFacts> facts = ReadTaskFacts(paths);
  return facts.ok() && facts->exit.is_null() && facts->process.is_null() && MovedTo(paths.folder).empty() &&
         TextField(facts->status, "ended_by") == "import";
}

// Of another stay, or none: it is replaced as a whole.
Status WriteTask(const Site& site, const Store& store, const std::string& task, const std::string& image) {
  TaskPaths paths(site.folders, task);
  if (IsPlainImport(paths)) return WriteImportedStatus(paths, image);
  RETURN_IF_ERROR(CheckNotDone(paths));
  ASSIGN_OR_RETURN(Manifest manifest, MetaOf(store, task, image));
  ASSIGN_OR_RETURN(TaskConfig config, ParseTaskConfig(manifest.task));
  RETURN_IF_ERROR(RemoveTree(paths.folder));
  RETURN_IF_ERROR(WriteImportedTask(paths, RecordOfTask(site, paths, manifest.task, config), image));
  return MakeFolders(paths.ctl);
}

Status WriteImageOfJob(const Folders& folders, const CopyRow& row) {
  return WriteJobImage(folders.state, row.job, {row.image, row.made, row.images});
}

// Also where images are left of a job that is not on record any more.
Result<std::string> NextJobImage(const Folders& folders, const std::string& job) {
  ASSIGN_OR_RETURN(std::vector<std::string> names, ListFolder(JobFolder(folders, job) + "/images"));
  std::string last = "000000";
  for (const std::string& name : names) {
    std::string id = name.substr(0, last.size());
    if (IsImageId(id)) last = std::max(last, id);
  }
  return ImageIdAfter(last);
}

// On this node, on the devices that fit; none are named where it fits as it was.
JobRecord PlacedHere(JobRecord record, const std::vector<std::vector<int>>& gpus) {
  std::vector<int> all;
  for (const std::vector<int>& each : gpus) all.insert(all.end(), each.begin(), each.end());
  if (all.empty() && !record.nodes.empty()) all = record.nodes.front().gpus;
  record.nodes = {ThisNode(record.ranks(), all)};
  return record;
}

// Of a job that is not ranked, no lock.
Result<Fd> LockFor(const Folders& folders, const std::string& job, bool ranked) {
  if (!ranked) return Fd();
  return LockJob(folders.run, job);
}

}  // namespace

Result<std::unique_ptr<CopyShelf>> CopyShelf::Start(const Site& site, Database& database,
                                                    Registry& registry) {
  std::unique_ptr<CopyShelf> shelf(new CopyShelf(site, database, registry));
  RETURN_IF_ERROR(shelf->Recover());
  return shelf;
}

// What cannot be brought to an end now is with the next copy of the job, or by the next agent.
Status CopyShelf::Recover() {
  ASSIGN_OR_RETURN(std::vector<CopyRow> rows, table_.Broken());
  if (rows.empty()) return Status();
  ASSIGN_OR_RETURN(std::shared_ptr<Store> store, OpenOrCreateStore(site_.folders));
  for (CopyRow& row : rows) {
    Result<Fd> lock = LockFor(site_.folders, row.job, row.ranked);
    if (lock.ok()) Finish(*store, std::move(row));
  }
  (void)store->CollectGarbage();
  return Status();
}

// Its images were to be published one after the other: with all of them it is one, else it never was.
void CopyShelf::Finish(Store& store, CopyRow row) {
  if (!IsStored(store, row)) return Remove(store, row);
  Status established = AnyLive(site_.folders, row) ? Status() : Establish(store, row);
  if (!established.ok()) return;
  row.whole = true;
  (void)table_.Write(row);
}

bool CopyShelf::IsStored(const Store& store, const CopyRow& row) const {
  for (size_t rank = 0; rank < row.tasks.size(); ++rank) {
    if (StoredSum(store, row.tasks[rank], row.images[rank]) != row.sums[rank]) return false;
  }
  return true;
}

Result<std::vector<CopyRow>> CopyShelf::Stored(const Store& store, const std::string& job) {
  ASSIGN_OR_RETURN(std::vector<CopyRow> rows, table_.Of(job));
  std::vector<CopyRow> stored;
  for (CopyRow& row : rows) {
    if (IsStored(store, row)) {
      stored.push_back(std::move(row));
    } else {
      RETURN_IF_ERROR(table_.Remove(row));
    }
  }
  return stored;
}

Status CopyShelf::Establish(const Store& store, const CopyRow& row) {
  for (size_t rank = 0; rank < row.tasks.size(); ++rank)
    RETURN_IF_ERROR(WriteTask(site_, store, row.tasks[rank], row.images[rank]));
  if (row.ranked) {
    ASSIGN_OR_RETURN(JobRecord record, ParseJobRecord(row.job_json));
    RETURN_IF_ERROR(WriteJobRecord(site_.folders.state, record));
    // Last: it is what makes the ranks' images one.
    RETURN_IF_ERROR(WriteImageOfJob(site_.folders, row));
  }
  registry_.SetMovedTo(row.job, "");
  registry_.Refresh(row.job);
  return Status();
}

void CopyShelf::Remove(Store& store, const CopyRow& row) {
  if (row.ranked) (void)RemoveJobImage(site_.folders.state, row.job, row.image);
  for (size_t rank = 0; rank < row.tasks.size(); ++rank) {
    if (StoredSum(store, row.tasks[rank], row.images[rank]) == row.sums[rank])
      (void)RemoveImage(store, row.tasks[rank], row.images[rank]);
  }
  (void)table_.Remove(row);
}

void CopyShelf::Keep(Store& store, const std::string& job, size_t keep) {
  Result<std::vector<CopyRow>> rows = Stored(store, job);
  if (!rows.ok() || rows->size() <= keep) return;
  for (size_t i = 0; i < rows->size() - keep; ++i) Remove(store, (*rows)[i]);
  (void)store.CollectGarbage();
}

Result<CopyRow> CopyShelf::Commit(const ArrivedJob& job, const std::optional<JobRecord>& record,
                                  Receiving& receiving, std::vector<ImageManifest> manifests, uint64_t made) {
  const std::shared_ptr<Store>& store = receiving.store();
  ASSIGN_OR_RETURN(PreparedImages prepared,
                   PreparedImages::Prepare(store, *receiving.writer(), job.tasks, std::move(manifests)));
  CopyRow row{job.name,  prepared.ids().front(), job.ranked,      made, false,
              job.tasks, prepared.ids(),         prepared.sums(), ""};
  if (record) {
    ASSIGN_OR_RETURN(row.image, NextJobImage(site_.folders, job.name));
    row.job_json = JobRecordText(*record);
  }
  RETURN_IF_ERROR(table_.Write(row));
  Status done = prepared.Publish();
  if (done.ok()) done = Establish(*store, row);
  if (done.ok()) {
    row.whole = true;
    done = table_.Write(row);
  }
  if (done.ok()) return row;
  Remove(*store, row);
  return done;
}

Result<CopyShelf::Kept> CopyShelf::Take(const ArrivedJob& job, const std::optional<JobRecord>& record,
                                        const std::vector<std::vector<int>>& gpus, Receiving& receiving,
                                        uint32_t keep) {
  std::lock_guard one(mutex_);
  ASSIGN_OR_RETURN(Fd lock, LockFor(site_.folders, job.name, job.ranked));
  Store& store = *receiving.store();
  ASSIGN_OR_RETURN(std::vector<CopyRow> broken, table_.Broken());
  for (CopyRow& row : broken) {
    if (row.job == job.name) Finish(store, std::move(row));
  }
  std::vector<TaskConfig> of;
  for (const Arriving& rank : receiving.ranks()) of.push_back(rank.config);
  RETURN_IF_ERROR(CheckRoomFor(site_.folders, job, of));
  RETURN_IF_ERROR(CheckIdle(site_.folders, registry_, job));
  ASSIGN_OR_RETURN(std::vector<ImageManifest> manifests, receiving.Manifests());
  ASSIGN_OR_RETURN(uint64_t made, WhenMade(manifests));
  ASSIGN_OR_RETURN(std::vector<CopyRow> rows, Stored(store, job.name));
  for (const CopyRow& row : rows) {
    ASSIGN_OR_RETURN(bool same, IsOf(store, row, manifests));
    if (!same) continue;
    RETURN_IF_ERROR(Establish(store, rows.back()));
    return Kept{row.image, true};
  }
  if (!rows.empty() && rows.back().made > made) {
    return Status(StatusCode::kFailedPrecondition,
                  "a newer image of " + job.name + " was copied there before, as " + rows.back().image);
  }
  std::optional<JobRecord> placed;
  if (record) placed = PlacedHere(*record, gpus);
  Result<CopyRow> row = Commit(job, placed, receiving, std::move(manifests), made);
  if (!row.ok()) {
    if (!rows.empty()) (void)Establish(store, rows.back());
    return row.status();
  }
  Keep(store, job.name, keep > 0 ? keep : kCopiesKept);
  return Kept{row->image, false};
}

void CopyShelf::Reinstate(const std::string& job) {
  std::lock_guard one(mutex_);
  Result<std::vector<CopyRow>> known = table_.Of(job);
  if (!known.ok() || known->empty()) return;
  Result<std::shared_ptr<Store>> store = OpenOrCreateStore(site_.folders);
  if (!store.ok()) return;
  Result<std::vector<CopyRow>> rows = Stored(**store, job);
  if (!rows.ok() || rows->empty() || AnyLive(site_.folders, rows->back())) return;
  for (const CopyRow& row : *rows) {
    if (row.ranked) (void)WriteImageOfJob(site_.folders, row);
  }
  (void)Establish(**store, rows->back());
}

void CopyShelf::Forget(const std::string& job) {
  std::lock_guard one(mutex_);
  Result<std::vector<CopyRow>> rows = table_.Of(job);
  if (!rows.ok() || rows->empty()) return;
  Result<Fd> lock = LockFor(site_.folders, job, rows->front().ranked);
  Result<std::shared_ptr<Store>> store = OpenOrCreateStore(site_.folders);
  if (lock.ok() && store.ok()) Keep(**store, job, 0);
}

}  // namespace stasis
