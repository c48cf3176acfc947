// `stasis images show`: what is in an image, and what it needs to be restored on this machine.
#include <fmt/format.h>

#include <ctime>

#include "cli/images.h"
#include "cli/job_image_verbs.h"
#include "coordinator/node/image_device_needs.h"
#include "coordinator/node/image_needs.h"
#include "coordinator/node/job.h"

namespace stasis {
namespace {

std::string TimeText(uint64_t seconds) {
  std::time_t time = static_cast<std::time_t>(seconds);
  tm parts{};
  char text[64];
  if (localtime_r(&time, &parts) == nullptr) return "?";
  return std::string(text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts));
}

std::string Line(const char* what, const std::string& text) { return fmt::format("{:<12} {}\n", what, text); }

Json DevicesJson(const ManifestMember& member) {
  Json devices = Json::array();
  for (const TaskDevice& device : member.devices) devices.push_back(DeviceJson(device));
  return devices;
}

Json ProcessesJson(const Manifest& manifest) {
  Json processes = Json::array();
  for (const ManifestMember& member : manifest.members) {
    processes.push_back({{"nspid", member.nspid},
                         {"strategy", TaskStrategyName(member.strategy)},
                         {"driver_version", member.driver_version},
                         {"device_bytes", DeviceBytesOf(member)},
                         {"active_bytes", ActiveBytesOf(member)},
                         {"devices", DevicesJson(member)}});
  }
  return processes;
}

Json ProgramsJson(const Manifest& manifest) {
  Json programs = Json::array();
  for (const ManifestProgram& program : manifest.programs) {
    programs.push_back({{"path", program.path}, {"build_id", program.build_id}, {"size", program.size}});
  }
  return programs;
}

Json FilesJson(const Manifest& manifest) {
  Json files = Json::array();
  for (const ManifestFile& file : manifest.files) {
    files.push_back({{"path", file.path}, {"size", file.size}, {"writable", file.writable}});
  }
  return files;
}

Json NeedsJson(const std::vector<Need>& needs) {
  Json list = Json::array();
  for (const Need& need : needs) {
    Json met = need.met == Met::kUnknown ? Json() : Json(need.met == Met::kYes);
    list.push_back({{"what", need.what}, {"needed", need.needed}, {"met", met}, {"here", need.here}});
  }
  return list;
}

Json FoldersJson(const ImageReader& image) {
  Json folders = Json::object();
  for (const std::string& folder : image.folders()) {
    Json files = Json::array();
    for (const ImageFile& file : image.FolderFiles(folder)) {
      files.push_back({{"name", file.name}, {"size", file.size}});
    }
    folders[folder] = files;
  }
  return folders;
}

std::string ProcessesText(const Manifest& manifest) {
  std::string text;
  for (const ManifestMember& member : manifest.members) {
    text += Line("process", fmt::format("{} (in its namespace), {}, CUDA {}: {} of device memory, {} active",
                                        member.nspid, TaskStrategyName(member.strategy),
                                        DriverVersionText(member.driver_version),
                                        SizeText(DeviceBytesOf(member)), SizeText(ActiveBytesOf(member))));
    for (const TaskDevice& device : member.devices) {
      if (!device.used) continue;
      text += Line("", fmt::format("device {}: {}, capability {}.{}, {}", device.virtual_ordinal, device.name,
                                   device.compute_capability / 10, device.compute_capability % 10,
                                   SizeText(device.total_memory)));
    }
  }
  return text;
}

std::string ContentText(const ImageReader& image, const Manifest& manifest, const TaskConfig& task) {
  std::string command;
  for (const std::string& argument : task.argv) command += (command.empty() ? "" : " ") + argument;
  std::string text = Line("image", image.task() + "/" + image.id());
  text += Line("made", fmt::format("{} on Linux {} ({}) with criu {}", TimeText(manifest.created),
                                   manifest.kernel, manifest.machine, manifest.criu));
  text += Line("command", Printable(command));
  text += Line("folder", Printable(task.cwd));
  ImageCounts counts = image.counts();
  text += Line("size", fmt::format("{}: {} zero, {} unique", SizeText(counts.bytes),
                                   SizeText(counts.zero_bytes), SizeText(counts.unique_bytes)));
  text += ProcessesText(manifest);
  for (const std::string& folder : image.folders()) {
    uint64_t bytes = 0;
    std::vector<ImageFile> files = image.FolderFiles(folder);
    for (const ImageFile& file : files) bytes += file.size;
    text += Line("files", fmt::format("{}: {} files, {}", folder, files.size(), SizeText(bytes)));
  }
  text += Line("log", fmt::format("{}{}", Printable(manifest.log),
                                  manifest.log_copied ? " (a copy is in the image)" : ""));
  for (const ManifestProgram& program : manifest.programs) {
    text +=
        Line("program", Printable(program.path) + (program.build_id.empty() ? "" : "  " + program.build_id));
  }
  for (const ManifestFile& file : manifest.files) {
    text += Line("open file", fmt::format("{}  {}{}", Printable(file.path), SizeText(file.size),
                                          file.writable ? "" : ", only read"));
  }
  return text;
}

// Programs and files that are as they should be are many; they are counted.
std::string NeedsText(const std::vector<Need>& needs) {
  std::string text = "\nTo restore it here:\n";
  size_t same = 0;
  for (const Need& need : needs) {
    bool listed = need.what != "program" && need.what != "file";
    if (!listed && need.met == Met::kYes && need.here.empty()) {
      same++;
      continue;
    }
    text += fmt::format("  {:<8} {:<18} {}\n", MetName(need.met), need.what, Printable(need.needed));
    if (!need.here.empty()) text += fmt::format("  {:<27} here: {}\n", "", Printable(need.here));
  }
  text += fmt::format("  {:<8} {} programs and files are as they were\n\n", MetName(Met::kYes), same);
  return text + Summary(needs) + "\n";
}

int ShowCheckpoint(const ImageReader& image, const Manifest& manifest, Context& context) {
  Result<TaskConfig> task = ParseTaskConfig(manifest.task);
  if (!task.ok()) return FailOfStore(task.status(), context);
  std::vector<Need> needs = NeedsOf(manifest, *task, image.task(), LookForDevices(*task, context), context);
  ImageCounts counts = image.counts();
  Json fields = {{"image", image.task() + "/" + image.id()},
                 {"id", image.id()},
                 {"created", manifest.created},
                 {"kernel", manifest.kernel},
                 {"machine", manifest.machine},
                 {"criu", manifest.criu},
                 {"argv", task->argv},
                 {"cwd", task->cwd},
                 {"device", task->device},
                 {"driver", task->driver},
                 {"bytes", counts.bytes},
                 {"zero_bytes", counts.zero_bytes},
                 {"unique_bytes", counts.unique_bytes},
                 {"manifest_bytes", counts.manifest_bytes},
                 {"device_bytes", manifest.DeviceBytes()},
                 {"active_bytes", manifest.ActiveBytes()},
                 {"log", manifest.log},
                 {"log_copied", manifest.log_copied},
                 {"processes", ProcessesJson(manifest)},
                 {"programs", ProgramsJson(manifest)},
                 {"files", FilesJson(manifest)},
                 {"folders", FoldersJson(image)},
                 {"needs", NeedsJson(needs)},
                 {"restorable", !AnyUnmet(needs)},
                 {"summary", Summary(needs)}};
  return context.reporter.Done(fields, ContentText(image, manifest, *task) + NeedsText(needs));
}

}  // namespace

int ImagesShowVerb(const Options& options, Context& context) {
  Result<ImageName> name = ParseImageName(options.target, context.folders);
  if (!name.ok()) return context.reporter.Fail(name.status());
  context.reporter.set_task(name->task);
  if (IsJob(context.folders, name->task)) return ShowJobImage(*name, context);
  Result<std::unique_ptr<ImageReader>> image = OpenImage(*name, context.folders);
  if (!image.ok()) return FailOfStore(image.status(), context);
  Result<Manifest> manifest = ParseManifest((*image)->meta());
  if (!manifest.ok()) {
    return FailOfStore(std::move(manifest).status().WithContext(name->Text() + " is no checkpoint"), context);
  }
  return ShowCheckpoint(**image, *manifest, context);
}

}  // namespace stasis
