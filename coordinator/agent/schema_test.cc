#include "coordinator/agent/schema.h"

#include <gtest/gtest.h>

#include "base/sqlite/database.h"
#include "base/testing.h"

namespace stasis {
namespace {

TEST(Schema, OfAllModulesCanBeMadeAndStays) {
  TempFolder folder;
  std::string id;
  for (int i = 0; i < 2; i++) {
    Result<std::unique_ptr<Database>> database = Database::Open(folder / "state/agent.db", SchemaSteps());
    ASSERT_OK(database.status());
    Result<std::vector<DbRow>> rows = (*database)->Query("SELECT value FROM meta WHERE key = 'agent_id'");
    ASSERT_OK(rows.status());
    ASSERT_EQ(rows->size(), 1u);
    EXPECT_EQ(rows->at(0).Text(0).size(), 32u);
    EXPECT_TRUE(i == 0 || rows->at(0).Text(0) == id) << "it stays";
    id = rows->at(0).Text(0);
  }
}

}  // namespace
}  // namespace stasis
