#include "coordinator/agent/migration.h"

#include "coordinator/agent/migration_run.h"
#include "coordinator/job_result.h"

namespace stasis {
namespace {

class NodeMigration final : public OperationKind {
 public:
  explicit NodeMigration(MigrationOptions options) : options_(std::move(options)) {}

  Json Carry(OperationContext& context) override {
    v1::MigrateRequest request;
    if (!request.ParseFromString(context.request())) return Unreadable();
    return MigrationRun(options_, context, std::move(request)).Carry();
  }
  Json Recover(OperationContext& context) override {
    v1::MigrateRequest request;
    if (!request.ParseFromString(context.request())) return Unreadable();
    return MigrationRun(options_, context, std::move(request)).Recover();
  }

 private:
  static Json Unreadable() {
    return FailureJson("migrate", Status(StatusCode::kCorrupt, "the request cannot be read"), "");
  }
  const MigrationOptions options_;
};

}  // namespace

std::unique_ptr<OperationKind> MakeNodeMigration(MigrationOptions options) {
  return std::make_unique<NodeMigration>(std::move(options));
}

}  // namespace stasis
