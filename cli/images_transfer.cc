// `stasis images export` and `stasis images import`.
#include <fmt/format.h>

#include <filesystem>

#include "cli/images.h"
#include "cli/job_image_verbs.h"
#include "coordinator/node/imported_task.h"
#include "coordinator/node/job.h"
#include "ghost/manifest.h"

namespace stasis {
namespace {

std::string AbsolutePath(const std::string& path) {
  std::error_code error;
  std::string absolute = std::filesystem::absolute(path, error).string();
  return error ? path : absolute;
}

uint64_t SizeOf(const std::string& path) {
  std::error_code error;
  uint64_t size = std::filesystem::file_size(path, error);
  return error ? 0 : size;
}

int FailExport(const Status& status, const std::string& file, Context& context) {
  if (status.code() == StatusCode::kAlreadyExists) {
    return context.reporter.Fail(status, "name another file, or remove " + file + " first");
  }
  return FailOfStore(status, context);
}

int FailImport(const Status& status, Context& context) {
  if (status.code() == StatusCode::kAlreadyExists) {
    return context.reporter.Fail(status, "--as NAME imports it as a task of another name");
  }
  if (status.code() == StatusCode::kCorrupt) {
    return context.reporter.Fail(status, "nothing was imported; export it again, and compare both copies");
  }
  return FailOfStore(status, context);
}

// An exported file, understood as far as it can be before its chunks are looked at.
struct Incoming {
  ExportedImage exported;
  Manifest manifest;
  TaskConfig config;
  std::string name;  // of the task here
  bool task_exists = false;
};

// Images that are in the store under the name without a record of their task must be of the same one, too.
Status CheckStoredOrigin(const std::shared_ptr<Store>& store, const Incoming& incoming) {
  ASSIGN_OR_RETURN(std::vector<std::string> ids, ListImages(*store, incoming.name));
  for (const std::string& id : ids) {
    Result<std::unique_ptr<ImageReader>> image = ImageReader::Open(store, incoming.name, id);
    if (!image.ok()) continue;
    Result<Manifest> manifest = ParseManifest((*image)->meta());
    if (!manifest.ok()) continue;
    ASSIGN_OR_RETURN(TaskConfig config, ParseTaskConfig(manifest->task));
    if (SameOrigin(config, incoming.config)) continue;
    return Status(StatusCode::kAlreadyExists,
                  "the image " + incoming.name + "/" + id + " of another task is here");
  }
  return Status();
}

Status CheckName(const std::string& name, const Options& options) {
  Status good = CheckTaskName(name);
  if (good.ok() || !options.as.empty()) return good;
  return Status(StatusCode::kCorrupt, std::string(good.message()) + "; --as names another one");
}

Result<Incoming> Look(const Options& options, const Context& context) {
  Incoming incoming;
  ASSIGN_OR_RETURN(incoming.exported, PeekExport(options.file));
  Result<Manifest> manifest = ParseManifest(incoming.exported.meta);
  if (!manifest.ok()) return std::move(manifest).status().WithContext(options.file + " is no checkpoint");
  incoming.manifest = *std::move(manifest);
  ASSIGN_OR_RETURN(incoming.config, ParseTaskConfig(incoming.manifest.task));
  incoming.name = options.as.empty() ? incoming.exported.task : options.as;
  RETURN_IF_ERROR(CheckName(incoming.name, options));
  RETURN_IF_ERROR(
      CheckOrigin(TaskPaths(context.folders, incoming.name), incoming.config, &incoming.task_exists));
  return incoming;
}

// The file may have been replaced since it was looked at.
Status CheckImported(const std::shared_ptr<Store>& store, const Incoming& incoming, const std::string& id) {
  ASSIGN_OR_RETURN(std::unique_ptr<ImageReader> image, ImageReader::Open(store, incoming.name, id));
  if (image->meta() == incoming.exported.meta) return Status();
  return Status(StatusCode::kCorrupt, "the file was changed while it was imported");
}

Status MakeRecord(const Incoming& incoming, const std::string& id, const Context& context) {
  if (incoming.task_exists) return Status();
  TaskPaths paths(context.folders, incoming.name);
  return WriteImportedTask(
      paths, ImportedTaskJson(paths, incoming.manifest.task, incoming.config, context.files), id);
}

int ReportImported(const Incoming& incoming, const std::string& id, const Options& options,
                   Context& context) {
  std::string image = incoming.name + "/" + id;
  if (id != incoming.exported.id) {
    context.reporter.Note("the id " + incoming.exported.id + " is taken; it is " + id + " here");
  }
  context.reporter.set_task(incoming.name);
  return context.reporter.Done(
      {{"image", image},
       {"id", id},
       {"exported_as", incoming.exported.task + "/" + incoming.exported.id},
       {"task_created", !incoming.task_exists},
       {"file", AbsolutePath(options.file)}},
      fmt::format("imported {}; `stasis images show {}` says whether it can be restored here, and `stasis "
                  "restore {}` does it",
                  image, image, image));
}

}  // namespace

int ImagesExportVerb(const Options& options, Context& context) {
  Result<ImageName> name = ParseImageName(options.target, context.folders);
  if (!name.ok()) return context.reporter.Fail(name.status());
  context.reporter.set_task(name->task);
  if (IsJob(context.folders, name->task)) return RefuseJobExport(*name, context);
  Result<std::unique_ptr<ImageReader>> image = OpenImage(*name, context.folders);
  if (!image.ok()) return FailOfStore(image.status(), context);
  ImageName which{(*image)->task(), (*image)->id()};
  if (!RefuseRankImage(which, context).ok()) return RefuseJobExport(which, context);
  Status status = ExportImage(**image, options.file, ProgressOf("export " + which.Text(), context));
  if (!status.ok()) return FailExport(status, options.file, context);
  uint64_t file_bytes = SizeOf(options.file);
  return context.reporter.Done({{"image", which.Text()},
                                {"id", which.id},
                                {"file", AbsolutePath(options.file)},
                                {"file_bytes", file_bytes},
                                {"bytes", (*image)->counts().bytes}},
                               fmt::format("{} is in {}: {} of {}", which.Text(), options.file,
                                           SizeText(file_bytes), SizeText((*image)->counts().bytes)));
}

int ImagesImportVerb(const Options& options, Context& context) {
  Result<Incoming> incoming = Look(options, context);
  if (!incoming.ok()) return FailImport(incoming.status(), context);
  Result<std::shared_ptr<Store>> store = OpenOrCreateStore(context.folders);
  if (!store.ok()) return FailOfStore(store.status(), context);
  TellNotes(**store, context);
  Status status = CheckStoredOrigin(*store, *incoming);
  if (!status.ok()) return FailImport(status, context);
  std::string task = incoming->name, id;
  status = ImportImage(*store, options.file, &task, &id, ProgressOf("import " + task, context));
  if (!status.ok()) return FailImport(status, context);
  status = CheckImported(*store, *incoming, id);
  if (status.ok()) status = MakeRecord(*incoming, id, context);
  if (!status.ok()) {
    (void)RemoveImage(**store, task, id);
    return FailImport(status, context);
  }
  return ReportImported(*incoming, id, options, context);
}

}  // namespace stasis
