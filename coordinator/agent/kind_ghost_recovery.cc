// A coordinator that is killed leaves the ranks to themselves: they come to rest as docs/jobs.md says. What
// that was is found here, and brought to where all are alike again.
#include <algorithm>

#include "coordinator/agent/kind_ghost.h"
#include "coordinator/job_result.h"
#include "coordinator/node/job.h"

namespace stasis {
namespace {

using Verb = JobRequest::Verb;
using Stands = std::vector<RankStand>;

constexpr char kMeanwhile[] = "the agent was started anew meanwhile";

std::string NewestImage(const Folders& folders, const std::string& job) {
  Result<std::vector<JobImage>> images = ListJobImages(folders.state, job);
  return images.ok() && !images->empty() ? images->back().id : "";
}

Json Done(Verb verb, const std::string& job) {
  return {{"ok", true}, {"verb", JobVerbName(verb)}, {"job", job}, {"notes", {kMeanwhile}}};
}

class JobRecovery {
 public:
  JobRecovery(LedJobOperation& led, const JobRequest& request, const Json& before, const Folders& folders)
      : led_(led), request_(request), before_(before), folders_(folders) {}

  Json Run() {
    Result<Stands> stands = led_.AwaitRest();
    if (!stands.ok()) return Failed(stands.status(), "in-doubt");
    stands_ = *std::move(stands);
    switch (request_.verb) {
      case Verb::kPause:
        return AllAt(stands_, RankStand::kPaused) ? Good() : RolledBack();
      case Verb::kResume:
        return AllAt(stands_, RankStand::kRunning) ? Good() : led_.Run(request_);
      case Verb::kCancel:
        return AllAt(stands_, RankStand::kEnded) ? Good() : led_.Run(request_);
      case Verb::kCheckpoint:
        return Checkpoint();
      case Verb::kRestore:
        return Restore();
      case Verb::kMigrate:
        return Migrate();
    }
    return Failed(Status(StatusCode::kInternal, "unknown verb"), "in-doubt");
  }

 private:
  Json Good() const { return Done(request_.verb, led_.record().name); }
  Json Failed(const Status& status, const std::string& left) const {
    Json result = FailureJson(JobVerbName(request_.verb), status, "");
    result["left"] = left;
    result["job"] = led_.record().name;
    return result;
  }

  // All ranks as they were; OK, or why they are not.
  Json Back() {
    RankStand goal = BoolField(before_, "paused") ? RankStand::kPaused : RankStand::kRunning;
    if (AllAt(stands_, goal)) return {{"ok", true}};
    if (!RanksAt(stands_, RankStand::kEnded).empty())
      return Failed(Status(StatusCode::kPeerDied, "ranks of the job have ended"), "lost");
    if (goal == RankStand::kPaused)
      return Failed(Status(StatusCode::kUnavailable, "the ranks are not all paused any more"), "in-doubt");
    JobRequest resume;
    resume.verb = Verb::kResume;
    return led_.Run(resume);
  }

  Json RolledBack() {
    Json back = Back();
    if (!BoolField(back, "ok")) {
      back["verb"] = JobVerbName(request_.verb);
      return back;
    }
    return Failed(Status(StatusCode::kUnavailable,
                         "the agent that led it was killed; all ranks are as they were before"),
                  "rolled-back");
  }

  Json Checkpoint() {
    std::string image = NewestImage(folders_, led_.record().name);
    if (image == TextField(before_, "image")) return RolledBack();
    Json done = request_.stop ? EndAll() : Back();
    Json result = BoolField(done, "ok") ? Good() : done;
    result["verb"] = JobVerbName(request_.verb);
    result["image"] = image;
    if (BoolField(result, "ok")) {
      result["stopped"] = request_.stop;
    } else {
      AddNote("image " + image + " is complete", &result);
    }
    return result;
  }

  // The image is there, and some ranks have not heard that they are to end.
  Json EndAll() {
    if (AllAt(stands_, RankStand::kEnded)) return {{"ok", true}};
    if (AllAt(stands_, RankStand::kPaused)) return led_.Run(request_);
    JobRequest cancel;
    cancel.verb = Verb::kCancel;
    return led_.Run(cancel);
  }

  Json Restore() {
    if (RanksAt(stands_, RankStand::kEnded).empty()) return Good();
    if (!AllAt(stands_, RankStand::kEnded)) {
      JobRequest cancel;
      cancel.verb = Verb::kCancel;
      Json ended = led_.Run(cancel);
      if (!BoolField(ended, "ok")) return ended;
    }
    return led_.Run(request_);
  }

  Json Migrate() {
    Json back = RolledBack();
    if (TextField(back, "left") != "rolled-back") return back;
    for (int rank = 0; rank < led_.record().ranks(); ++rank) {
      Result<Json> status = ReadJson(TaskPaths(folders_, led_.record().TaskOf(rank)).File("status.json"));
      bool there = status.ok() && IntegersField(*status, "gpus") == request_.gpus;
      if (!there) return back;
    }
    return Good();
  }

  LedJobOperation& led_;
  const JobRequest& request_;
  const Json& before_;
  const Folders& folders_;
  Stands stands_;
};

}  // namespace

Result<Json> JobBefore(const Folders& folders, const std::string& job) {
  ASSIGN_OR_RETURN(JobFacts facts, ReadJobFacts(folders, job));
  bool paused = std::all_of(facts.ranks.begin(), facts.ranks.end(), [](const RankFacts& rank) {
    return rank.on_record && rank.view.condition == TaskCondition::kPaused;
  });
  return Json{{"image", facts.last_image}, {"paused", paused}};
}

Json RecoverJob(LedJobOperation& led, const JobRequest& request, const Json& before, const Folders& folders) {
  return JobRecovery(led, request, before, folders).Run();
}

}  // namespace stasis
