#include "base/sqlite/database.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "base/testing.h"

namespace stasis {

class DatabaseTest : public testing::Test {
 protected:
  std::string Path() const { return folder_ / "state/agent.db"; }
  std::unique_ptr<Database> Open(const std::vector<std::string>& steps) {
    Result<std::unique_ptr<Database>> database = Try(steps);
    EXPECT_TRUE(database.ok()) << database.status().ToString();
    return database.ok() ? *std::move(database) : nullptr;
  }
  Result<std::unique_ptr<Database>> Try(const std::vector<std::string>& steps) {
    return Database::Open(Path(), steps);
  }
  static int64_t Count(Database& database, const std::string& table) {
    Result<std::vector<DbRow>> rows = database.Query("SELECT count(*) FROM " + table);
    return rows.ok() ? rows->at(0).Integer(0) : -1;
  }

  TempFolder folder_;
  const std::vector<std::string> steps_ = {"CREATE TABLE a (k TEXT PRIMARY KEY, v ANY) STRICT"};
};

namespace {

TEST_F(DatabaseTest, KeepsValuesOfEveryType) {
  std::unique_ptr<Database> database = Open(steps_);
  std::string bytes("\xff\x00\x80 z", 5);
  ASSERT_OK(database->Execute("INSERT INTO a VALUES ('i', ?), ('d', ?), ('s', ?), ('n', ?), ('e', ?)",
                              {int64_t{-7}, 2.5, bytes, nullptr, std::string()}));
  Result<std::vector<DbRow>> rows = database->Query("SELECT v FROM a ORDER BY k");  // d e i n s
  ASSERT_OK(rows.status());
  ASSERT_EQ(rows->size(), 5u);
  EXPECT_EQ(rows->at(0).Number(0), 2.5);
  EXPECT_EQ(rows->at(0).Integer(0), 0) << "another type";
  EXPECT_EQ(rows->at(1).Text(0), "");
  EXPECT_EQ(rows->at(2).Integer(0), -7);
  EXPECT_EQ(rows->at(2).Number(0), -7.0);
  EXPECT_EQ(rows->at(3).Text(0), "") << "NULL";
  EXPECT_EQ(rows->at(4).Text(0), bytes);
  EXPECT_EQ(rows->at(4).Text(9), "") << "no such column";
}

TEST_F(DatabaseTest, SaysWhatFailed) {
  std::unique_ptr<Database> database = Open(steps_);
  ASSERT_OK(database->Execute("INSERT INTO a VALUES ('k', 1)"));
  EXPECT_EQ(database->Execute("INSERT INTO a VALUES ('k', 2)").code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(database->Execute("INSERT INTO nothing VALUES (1)").code(), StatusCode::kInternal);
  EXPECT_EQ(database->Execute("SELECT ?").code(), StatusCode::kInternal) << "a value is missing";
  EXPECT_EQ(Count(*database, "a"), 1);
}

TEST_F(DatabaseTest, IsForItsUserAlone) {
  mode_t before = umask(0);
  std::unique_ptr<Database> database = Open(steps_);
  ASSERT_OK(database->Execute("INSERT INTO a VALUES ('k', 1)"));
  umask(before);
  for (const char* suffix : {"", "-wal", "-shm", ".lock"}) {
    struct stat info {};
    ASSERT_EQ(stat((Path() + suffix).c_str(), &info), 0) << suffix;
    EXPECT_EQ(info.st_mode & 0777, 0600u) << suffix;
  }
}

TEST_F(DatabaseTest, IsOpenInOneProcess) {
  std::unique_ptr<Database> first = Open(steps_);
  pid_t other = fork();
  ASSERT_GE(other, 0);
  if (other == 0) _exit(Try(steps_).status().code() == StatusCode::kFailedPrecondition ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(other, &status, 0), other);
  EXPECT_EQ(status, 0);
  ASSERT_OK(first->Execute("INSERT INTO a VALUES ('k', 1)"));
  first.reset();
  EXPECT_EQ(Count(*Open(steps_), "a"), 1);
}

TEST_F(DatabaseTest, IsFreeWhenItsProcessIsGoneAndAChildIsNot) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  pid_t owner = fork();
  ASSERT_GE(owner, 0);
  if (owner == 0) {
    std::unique_ptr<Database> database = Open(steps_);
    char byte;
    if (fork() == 0) {
      close(ends[1]);
      (void)!read(ends[0], &byte, 1);
    }
    _exit(database ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(owner, &status, 0), owner);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(Open(steps_));
  close(ends[1]);
  close(ends[0]);
}

TEST_F(DatabaseTest, WhatIsCommittedOutlivesAKilledProcess) {
  pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::unique_ptr<Database> database = Open(steps_);
    bool good = database && database->Execute("INSERT INTO a VALUES ('kept', 1)").ok();
    (void)database->Transaction([&] {
      (void)database->Execute("INSERT INTO a VALUES ('lost', 1)");
      _exit(good ? 0 : 1);
      return Status();
    });
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  Result<std::vector<DbRow>> rows = Open(steps_)->Query("SELECT k FROM a");
  ASSERT_OK(rows.status());
  ASSERT_EQ(rows->size(), 1u);
  EXPECT_EQ(rows->at(0).Text(0), "kept");
}

TEST_F(DatabaseTest, ATransactionIsAllOrNothing) {
  std::unique_ptr<Database> database = Open(steps_);
  Status refused(StatusCode::kCancelled, "no");
  Status failed = database->Transaction([&]() -> Status {
    RETURN_IF_ERROR(database->Execute("INSERT INTO a VALUES ('x', 1)"));
    return refused;
  });
  EXPECT_EQ(failed.code(), StatusCode::kCancelled);
  EXPECT_EQ(Count(*database, "a"), 0);
  ASSERT_OK(database->Transaction([&] { return database->Execute("INSERT INTO a VALUES ('x', 1)"); }));
  EXPECT_EQ(Count(*database, "a"), 1);
}

TEST_F(DatabaseTest, AnInnerTransactionIsUndoneAlone) {
  std::unique_ptr<Database> database = Open(steps_);
  ASSERT_OK(database->Transaction([&]() -> Status {
    RETURN_IF_ERROR(database->Execute("INSERT INTO a VALUES ('outer', 1)"));
    Status inner = database->Transaction([&]() -> Status {
      RETURN_IF_ERROR(database->Execute("INSERT INTO a VALUES ('inner', 1)"));
      return Status(StatusCode::kCancelled, "no");
    });
    EXPECT_FALSE(inner.ok());
    return database->Transaction([&] { return database->Execute("INSERT INTO a VALUES ('second', 1)"); });
  }));
  Result<std::vector<DbRow>> rows = database->Query("SELECT k FROM a ORDER BY k");
  ASSERT_OK(rows.status());
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_EQ(rows->at(0).Text(0), "outer");
  EXPECT_EQ(rows->at(1).Text(0), "second");
}

TEST_F(DatabaseTest, NothingIsKeptOfATransactionThatTheDatabaseRolledBack) {
  std::unique_ptr<Database> database = Open(steps_);
  Status failed = database->Transaction([&]() -> Status {
    RETURN_IF_ERROR(database->Execute("INSERT INTO a VALUES ('before', 1)"));
    EXPECT_FALSE(database->Execute("INSERT OR ROLLBACK INTO a VALUES ('before', 2)").ok());
    EXPECT_EQ(database->Execute("INSERT INTO a VALUES ('after', 1)").code(), StatusCode::kFailedPrecondition);
    return Status();
  });
  EXPECT_FALSE(failed.ok());
  EXPECT_EQ(Count(*database, "a"), 0);
}

TEST_F(DatabaseTest, ServesSeveralThreads) {
  std::unique_ptr<Database> database = Open({"CREATE TABLE n (v INTEGER); INSERT INTO n VALUES (0)"});
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; i++) {
    threads.emplace_back([&] {
      for (int j = 0; j < 10; j++) {
        EXPECT_TRUE(database
                        ->Transaction([&]() -> Status {
                          ASSIGN_OR_RETURN(std::vector<DbRow> rows, database->Query("SELECT v FROM n"));
                          return database->Execute("UPDATE n SET v = ?", {rows.at(0).Integer(0) + 1});
                        })
                        .ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  Result<std::vector<DbRow>> rows = database->Query("SELECT v FROM n");
  ASSERT_OK(rows.status());
  EXPECT_EQ(rows->at(0).Integer(0), 40);
}

TEST_F(DatabaseTest, IsBroughtFromVersionToVersion) {
  ASSERT_OK(Open(steps_)->Execute("INSERT INTO a VALUES ('k', 1)"));
  std::vector<std::string> more = steps_;
  more.push_back("ALTER TABLE a ADD COLUMN w INTEGER DEFAULT 5; CREATE TABLE b (x INTEGER)");
  {
    std::unique_ptr<Database> database = Open(more);
    Result<std::vector<DbRow>> rows = database->Query("SELECT k, w FROM a");
    ASSERT_OK(rows.status());
    EXPECT_EQ(rows->at(0).Integer(1), 5);
    EXPECT_EQ(Count(*database, "b"), 0);
  }
  EXPECT_EQ(Try(steps_).status().code(), StatusCode::kUnsupported) << "it is of a newer program";
}

TEST_F(DatabaseTest, AStepThatFailsChangesNothing) {
  Open(steps_).reset();
  std::vector<std::string> bad = steps_;
  bad.push_back("CREATE TABLE b (x INTEGER); CREATE TABLE a (x INTEGER)");
  EXPECT_FALSE(Try(bad).ok());
  std::unique_ptr<Database> database = Open(steps_);
  ASSERT_NE(database, nullptr);
  EXPECT_EQ(Count(*database, "b"), -1);
}

TEST_F(DatabaseTest, RefusesWhatIsNoDatabaseOfOurs) {
  ASSERT_OK(MakeFolders(folder_ / "state"));
  ASSERT_OK(WriteFileAtomically(Path(), std::string(5000, 'x')));
  EXPECT_EQ(Try(steps_).status().code(), StatusCode::kCorrupt);
  ASSERT_OK(RemoveTree(Path()));
  ASSERT_OK(Open(steps_)->Execute("PRAGMA application_id=1"));
  EXPECT_EQ(Try(steps_).status().code(), StatusCode::kCorrupt) << "of another program";
}

TEST_F(DatabaseTest, RefusesADamagedOne) {
  {
    std::unique_ptr<Database> database = Open(steps_);
    ASSERT_OK(database->Transaction([&]() -> Status {
      for (int i = 0; i < 200; i++) {
        RETURN_IF_ERROR(
            database->Execute("INSERT INTO a VALUES (?, ?)", {std::to_string(i), std::string(500, 'v')}));
      }
      return Status();
    }));
  }
  Result<Fd> file = OpenFile(Path(), O_RDWR);
  ASSERT_OK(file.status());
  std::vector<std::byte> noise(3 * 4096, std::byte{0x5a});
  ASSERT_OK(WriteAt(file->get(), noise, 3 * 4096));
  EXPECT_EQ(Try(steps_).status().code(), StatusCode::kCorrupt);
}

}  // namespace
}  // namespace stasis
