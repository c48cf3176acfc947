// `stasis images verify` and `stasis images gc`.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "cli/images.h"
#include "cli/job_image_verbs.h"
#include "coordinator/node/job.h"
#include "dedup/pack.h"

namespace stasis {
namespace {

Json ToJson(const std::vector<Damage>& damages) {
  Json list = Json::array();
  for (const Damage& damage : damages) {
    list.push_back({{"file", damage.file}, {"offset", damage.offset}, {"what", damage.what}});
  }
  return list;
}

// Each on a line of its own.
std::string ToText(const std::vector<Damage>& damages) {
  std::string text;
  for (const Damage& damage : damages) {
    text += fmt::format("\n  {} at offset {}: {}", damage.file, damage.offset, damage.what);
  }
  return text;
}

int FailDamaged(Json fields, const std::vector<Damage>& damages, const std::string& message,
                const std::string& remedy, Context& context) {
  fields["code"] = StatusCodeName(StatusCode::kCorrupt);
  fields["message"] = message + ToText(damages);
  fields["remedy"] = remedy;
  return context.reporter.FailWith(fields);
}

int ReportVerified(const VerifyReport& report, const std::string& what, Context& context) {
  Json fields = {{"damages", ToJson(report.damages)},
                 {"images", report.images},
                 {"packs", report.packs},
                 {"chunks", report.chunks},
                 {"bytes", report.bytes},
                 {"sealed_chunks", report.sealed_chunks},
                 {"sealed_images", report.sealed_images}};
  if (report.damages.empty()) {
    std::string text =
        fmt::format("{}: {} images, {}, no damage", what, report.images, SizeText(report.bytes));
    if (report.sealed_chunks + report.sealed_images > 0) {
      text += fmt::format(
          "; {} images and {} chunks are encrypted, and were looked at from outside only: "
          "STASIS_IDENTITY names the file of their identity",
          report.sealed_images, report.sealed_chunks);
    }
    return context.reporter.Done(fields, text);
  }
  return FailDamaged(fields, report.damages,
                     fmt::format("{}: {} damaged places", what, report.damages.size()),
                     "`stasis images verify TASK/ID` tells of one image whether it is whole", context);
}

// An error of the first image that is looked at and is not whole is a damage like another.
Status VerifyImage(const std::shared_ptr<Store>& store, const ImageName& name, VerifyReport* report,
                   Context& context) {
  Result<std::unique_ptr<ImageReader>> image = ImageReader::Open(store, name.task, name.id);
  Status status = image.status();
  if (image.ok()) status = (*image)->VerifyAll(ProgressOf("verify " + name.Text(), context));
  report->images++;
  if (image.ok()) report->bytes += (*image)->counts().bytes;
  if (image.ok()) report->chunks += (*image)->Chunks().size();
  if (status.ok()) return Status();
  if (status.code() != StatusCode::kCorrupt) return status;
  Damage damage = DamageOf("images/" + name.Text() + ".image", status);
  // The place is said by the message, as it may be in a pack.
  damage.what = std::string(status.message());
  report->damages.push_back(std::move(damage));
  return Status();
}

Result<VerifyReport> VerifySome(const std::shared_ptr<Store>& store, const ImageName& name,
                                Context& context) {
  VerifyReport report;
  if (IsJob(context.folders, name.task)) {
    ASSIGN_OR_RETURN(std::vector<ImageName> parts, PartsOf(name, context.folders, nullptr));
    for (const ImageName& part : parts) RETURN_IF_ERROR(VerifyImage(store, part, &report, context));
    return report;
  }
  std::vector<std::string> ids = {name.id};
  if (name.id.empty()) {
    ASSIGN_OR_RETURN(ids, ListImages(*store, name.task));
    if (ids.empty()) return Status(StatusCode::kNotFound, "task " + name.task + " has no image");
  }
  for (const std::string& id : ids) {
    RETURN_IF_ERROR(VerifyImage(store, {name.task, id}, &report, context));
  }
  return report;
}

int ReportCollected(const GcReport& report, Context& context) {
  uint64_t freed = report.bytes_before - std::min(report.bytes_before, report.bytes_after);
  std::string text = fmt::format("{} freed: {} packs removed, {} rewritten; {} left", SizeText(freed),
                                 report.packs_removed, report.packs_rewritten, SizeText(report.bytes_after));
  if (report.packs_in_use > 0) {
    text += fmt::format("; {} packs are in use and stay until the next time", report.packs_in_use);
  }
  Json fields = {{"freed_bytes", freed},
                 {"bytes_before", report.bytes_before},
                 {"bytes_after", report.bytes_after},
                 {"packs_removed", report.packs_removed},
                 {"packs_rewritten", report.packs_rewritten},
                 {"packs_in_use", report.packs_in_use},
                 {"leftovers_removed", report.leftovers_removed},
                 {"damages", ToJson(report.damages)}};
  if (report.damages.empty()) return context.reporter.Done(fields, text);
  return FailDamaged(fields, report.damages, text + "; packs that are damaged were left as they are",
                     "`stasis images verify` says which images are concerned", context);
}

int FailGc(const Status& status, Context& context) {
  if (status.code() != StatusCode::kFailedPrecondition) return FailOfStore(status, context);
  return context.reporter.Fail(status, "nothing was removed");
}

}  // namespace

int ImagesVerifyVerb(const Options& options, Context& context) {
  std::optional<ImageName> name;
  if (!options.target.empty()) {
    Result<ImageName> parsed = ParseImageName(options.target, context.folders);
    if (!parsed.ok()) return context.reporter.Fail(parsed.status());
    name = *parsed;
    context.reporter.set_task(name->task);
    Status old = RefuseOldImage(*name, context.folders);
    if (!old.ok()) return context.reporter.Fail(old);
  }
  Result<std::shared_ptr<Store>> store = OpenStore(context.folders);
  bool none = !store.ok() && store.status().code() == StatusCode::kNotFound;
  if (none && !name) return ReportVerified({}, "the store", context);
  if (!store.ok()) return FailOfStore(store.status(), context);
  TellNotes(**store, context);
  Result<VerifyReport> report =
      name ? VerifySome(*store, *name, context) : (*store)->Verify(ProgressOf("verify", context));
  if (!report.ok()) return FailOfStore(report.status(), context);
  return ReportVerified(*report, name ? name->Text() : "the store", context);
}

int ImagesGcVerb(const Options&, Context& context) {
  Result<std::shared_ptr<Store>> store = OpenStore(context.folders);
  GcReport report;
  if (!store.ok() && store.status().code() != StatusCode::kNotFound) {
    return FailOfStore(store.status(), context);
  }
  if (store.ok()) {
    TellNotes(**store, context);
    context.reporter.Progress("collect what no image names", 0, 0);
    Result<GcReport> collected = (*store)->CollectGarbage();
    if (!collected.ok()) return FailGc(collected.status(), context);
    report = *collected;
  }
  return ReportCollected(report, context);
}

}  // namespace stasis
