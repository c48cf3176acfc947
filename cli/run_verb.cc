// `stasis run`: puts a task on record, starts its program under the interposer, and stays with it.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <optional>

#include "base/task_protocol.h"
#include "cli/device_choice.h"
#include "cli/foreground.h"
#include "cli/launch.h"
#include "cli/program.h"
#include "cli/subprocess.h"
#include "cli/values.h"
#include "cli/verbs.h"

namespace stasis {
namespace {

constexpr int kMaxNumber = 1000000;

// A task's folders, made for it and removed again unless it was started.
class Claim {
 public:
  // kAlreadyExists: there is a task of that name.
  static Result<Claim> Make(const Folders& folders, const std::string& name) {
    RETURN_IF_ERROR(MakeFolders(folders.state + "/tasks"));
    TaskPaths paths(folders, name);
    if (mkdir(paths.folder.c_str(), 0700) != 0) {
      if (errno != EEXIST) return ErrnoStatus(errno, "create " + paths.folder);
      return Status(StatusCode::kAlreadyExists, "there is a task " + name + " already");
    }
    Claim claim(paths);
    std::error_code error;
    // Sockets of an earlier task of this name.
    std::filesystem::remove_all(paths.run, error);
    RETURN_IF_ERROR(MakeFolders(paths.ctl));
    return claim;
  }
  Claim(Claim&& other) noexcept : paths_(std::exchange(other.paths_, std::nullopt)) {}
  Claim& operator=(Claim&&) = delete;
  ~Claim() {
    if (!paths_) return;
    std::error_code error;
    std::filesystem::remove_all(paths_->folder, error);
    std::filesystem::remove_all(paths_->run, error);
  }
  const TaskPaths& paths() const { return *paths_; }
  void Keep() { paths_.reset(); }

 private:
  explicit Claim(TaskPaths paths) : paths_(std::move(paths)) {}
  std::optional<TaskPaths> paths_;
};

// The program's file name as far as a task name can hold it.
std::string NameStem(const std::string& program) {
  std::string stem;
  for (char c : program.substr(program.rfind('/') + 1)) {
    bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    if (plain && stem.size() < 32) stem += c;
  }
  return stem.empty() ? "task" : stem;
}

Result<Claim> ClaimName(const Options& options, const Folders& folders) {
  if (!options.name.empty()) return Claim::Make(folders, options.name);
  std::string stem = NameStem(options.program[0]);
  for (int number = 1; number < kMaxNumber; number++) {
    Result<Claim> claim = Claim::Make(folders, stem + "-" + std::to_string(number));
    if (claim.ok() || claim.status().code() != StatusCode::kAlreadyExists) return claim;
  }
  return Status(StatusCode::kAlreadyExists, "every name " + stem + "-N is taken");
}

std::string ClashRemedy(const Folders& folders, const std::string& name) {
  Result<TaskFacts> facts = ReadTaskFacts(TaskPaths(folders, name));
  if (!facts.ok()) return "`stasis rm " + name + "` removes what is left of it";
  TaskCondition condition = DeriveCondition(*facts).condition;
  if (IsLive(condition)) return "choose another --name, or end it with `stasis cancel " + name + "`";
  return fmt::format("it is {}; choose another --name, or forget it with its images: `stasis rm {}`",
                     TaskConditionName(condition), name);
}

std::vector<std::string> TaskEnvironment(const Options& options, const Context& context,
                                         const DeviceChoice& device, const TaskPaths& paths,
                                         std::vector<std::string> environment) {
  environment = ChangeEnvironment(std::move(environment), device.task_environment);
  std::string preloads = EnvironmentValue(environment, "LD_PRELOAD");
  std::string gpus = kTaskGpusVariable;
  if (!options.gpus.empty()) gpus += "=" + GpuListText(options.gpus);
  return ChangeEnvironment(
      std::move(environment),
      {std::string(kTaskFolderVariable) + "=" + paths.run,
       std::string(kTaskDriverVariable) + "=" + device.driver.path,
       std::string(kTaskStrategyVariable) + "=" + options.strategy,
       std::string(kTaskManagedVariable) + "=" + options.managed, gpus,
       "LD_PRELOAD=" + context.files.preload + (preloads.empty() ? "" : ":" + preloads)});
}

Status WriteTask(const Options& options, const DeviceChoice& device, const TaskPaths& paths,
                 bool namespaces) {
  std::error_code error;
  auto now = std::chrono::system_clock::now().time_since_epoch();
  return WriteJson(paths.File("task.json"),
                   {{"version", 1},
                    {"name", paths.name},
                    {"argv", options.program},
                    {"cwd", std::filesystem::current_path(error).string()},
                    {"created", std::chrono::duration_cast<std::chrono::seconds>(now).count()},
                    {"uid", geteuid()},
                    {"device", device.kind},
                    {"driver", device.driver.path},
                    {"driver_environment", device.driver_environment},
                    {"strategy", options.strategy},
                    {"gpus", options.gpus},
                    {"managed", options.managed},
                    {"pid_namespace", namespaces},
                    {"log", paths.File("output.log")}});
}

// What is decided before anything of the task exists.
struct Plan {
  std::string executable;
  std::string unmanaged;  // why, or ""
  DeviceChoice device;
  std::vector<std::string> environment;  // the user's, with --env
  bool namespaces = false;
};

Result<Plan> MakePlan(const Options& options, const Context& context, const std::string& executable,
                      std::vector<std::string> environment) {
  Plan plan;
  plan.executable = executable;
  plan.environment = std::move(environment);
  RETURN_IF_ERROR(RequireFile(context.files.preload, R_OK, "the interposer"));
  RETURN_IF_ERROR(RequireFile(context.files.init, X_OK, "stasis-init"));
  ASSIGN_OR_RETURN(plan.unmanaged, WhyUnmanaged(executable));
  ASSIGN_OR_RETURN(plan.device, ChooseDevice(options.device, context.files, plan.environment));
  RETURN_IF_ERROR(CheckGpus(options.gpus, plan.device.driver));
  plan.namespaces = HasSysAdmin();
  return plan;
}

void Tell(const Plan& plan, const TaskPaths& paths, Reporter& reporter) {
  reporter.Note(fmt::format("task {} on {}", paths.name, plan.device.sentence));
  if (!plan.unmanaged.empty()) {
    reporter.Note(
        fmt::format("{} is unmanaged: {}, so the interposer does not reach it; it runs, but cannot be paused",
                    plan.executable, plan.unmanaged));
  }
  if (!plan.namespaces) {
    reporter.Note(
        "without CAP_SYS_ADMIN the task gets no PID namespace: it can be paused and resumed, but not "
        "checkpointed (`stasis doctor` says more)");
  }
}

int Start(const Options& options, Context& context, const Plan& plan, Claim claim) {
  TaskPaths paths = claim.paths();
  Reporter& reporter = context.reporter;
  reporter.set_task(paths.name);
  Result<SignalSource> signals = SignalSource::Create();
  if (!signals.ok()) return reporter.Fail(signals.status());
  Result<TaskFollower> follower = TaskFollower::Create(paths);
  if (!follower.ok()) return reporter.Fail(follower.status());
  Status written = WriteTask(options, plan.device, paths, plan.namespaces);
  if (!written.ok()) return reporter.Fail(written);
  Tell(plan, paths, reporter);
  LaunchOptions launch{context.files.init, plan.executable, options.program,
                       TaskEnvironment(options, context, plan.device, paths, plan.environment),
                       plan.namespaces};
  Result<ProcessIdentity> init = Launch(paths, launch);
  if (!init.ok()) {
    bool executed = std::string_view(init.status().message()).find("execute ") == 0;
    return reporter.Fail(init.status(), "", executed ? kExitCannotExecute : -1);
  }
  claim.Keep();
  Json fields = {{"pid", init->pid}, {"device", plan.device.kind}, {"driver", plan.device.driver.path}};
  if (options.detach) {
    fields["state"] = TaskConditionName(TaskCondition::kRunning);
    fields["log"] = paths.File("output.log");
    return reporter.Done(fields, paths.name);
  }
  return StayInForeground({paths, *init, 0, plan.unmanaged.empty(), fields}, *follower, *signals, context);
}

}  // namespace

int RunVerb(const Options& options, Context& context) {
  std::vector<std::string> environment = ChangeEnvironment(OwnEnvironment(), options.environment);
  Result<std::string> program = FindProgram(options.program[0], EnvironmentValue(environment, "PATH"));
  if (!program.ok()) {
    bool missing = program.status().code() == StatusCode::kNotFound;
    return context.reporter.Fail(program.status(), "", missing ? kExitNoProgram : kExitCannotExecute);
  }
  Result<Plan> plan = MakePlan(options, context, *program, std::move(environment));
  if (!plan.ok()) {
    bool missing = plan.status().code() == StatusCode::kNotFound;
    // 3 would say that there is no such task.
    return context.reporter.Fail(plan.status(), missing ? "`stasis doctor` shows what is missing" : "",
                                 missing ? kExitFailed : -1);
  }
  Result<Claim> claim = ClaimName(options, context.folders);
  if (!claim.ok()) {
    bool clash = claim.status().code() == StatusCode::kAlreadyExists;
    return context.reporter.Fail(claim.status(), clash ? ClashRemedy(context.folders, options.name) : "");
  }
  return Start(options, context, *plan, std::move(*claim));
}

}  // namespace stasis
