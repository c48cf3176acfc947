// One migration to another node, from its beginning or from where an agent that was killed has left it.
#ifndef COORDINATOR_AGENT_MIGRATION_RUN_H_
#define COORDINATOR_AGENT_MIGRATION_RUN_H_

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "coordinator/agent/chunk_sender.h"
#include "coordinator/agent/handover.h"
#include "coordinator/agent/migration.h"
#include "coordinator/agent/precopy_rule.h"
#include "coordinator/agent/signs_of_life.h"
#include "coordinator/agent/source_job.h"
#include "dedup/store.h"
#include "stasis/v1/agent.pb.h"

namespace stasis {

class MigrationRun {
 public:
  MigrationRun(const MigrationOptions& options, OperationContext& context, v1::MigrateRequest request)
      : options_(options), context_(context), request_(std::move(request)) {}

  Json Carry();
  Json Recover();

 private:
  using ChunkSet = std::unordered_set<Hash128, HashLowBits>;

  // What Recover() needs.
  struct Memory {
    std::string stage;  // "copying", "stopping", then names of Giver's records
    std::string token;
    std::string target;  // name of the node
    bool was_paused = false;
    std::vector<SourceImage> early;  // made for sending ahead: of no use afterwards
    SourceImage image;               // of the job as it was stopped
    std::string order;               // the verb of the one that has taken it back
  };

  Status Remember(const std::string& stage);
  void TakeMemory(const Json& json);

  Status Meet();
  Status MeasureWay();
  Status MakeOffer();
  Status SendAhead();
  Status MakeEarlyImage();
  Status SendStable(PrecopyFacts* facts);
  Status Stop();
  Status CheckpointWhileSending();
  Status SendRest();

  Json HandOverAndEnd(Giver giver);
  void CarryOut(Giver& giver);
  HandOverAnswer Answer(const Result<v1::Outcome>& outcome);
  HandOverAnswer TellTarget();
  Result<v1::Outcome> AskOnce();
  HandOverAnswer AskTarget();
  bool Keep();
  bool BringBack();
  bool End();
  bool Yield();
  Status UnmarkHere();
  Reclaim ReclaimOf(const std::string& job) const;
  bool Owed(const Status& written);
  void RefuseOthers(const Status& unheard);
  void Pause(int milliseconds);
  bool LeaveItToTheNext();

  Status OkOf(const Json& result);
  Result<std::vector<ChunkRef>> ChunksOf(const SourceImage& image);
  uint64_t StoredBytes(const std::vector<ChunkRef>& chunks) const;
  Status CheckInterrupt();
  void DropEarlyImages();
  Json Back(const Status& why);
  void TellTargetItIsOver();
  Json Gone();
  Json Kept();
  Json TakenBack();
  Json Failed(const Status& status, const std::string& left) const;

  const MigrationOptions& options_;
  OperationContext& context_;
  const v1::MigrateRequest request_;

  std::unique_ptr<PeerLink> peer_;
  std::optional<SourceJob> job_;
  std::shared_ptr<Store> store_;
  std::unique_ptr<ChunkSender> sender_;
  std::unique_ptr<SignsOfLife> signs_;  // since the offer was accepted
  Memory memory_;

  uint64_t device_bytes_ = 0;
  double bytes_per_second_ = 0;
  double early_standstill_ = 0;    // seconds, of the latest early image
  double precopy_standstill_ = 0;  // of all of them
  ChunkSet early_chunks_;          // of the latest early image
  Json figures_ = Json::object();
  Json failure_ = Json::object();  // of a ghost, or of the target
  v1::Outcome outcome_;
  MonotonicTime begun_{}, stopped_{};
  bool recovered_ = false;
  bool kept_ = false;
  int interrupts_ = 0;
  int asked_ = 0;           // in vain, in a row
  bool refused_ = false;    // others are, on the job
  bool not_ended_ = false;  // what is paused here could not be ended at once
  bool not_owed_ = false;   // that it was taken back could not be written down at once
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_MIGRATION_RUN_H_
