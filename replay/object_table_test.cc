#include "replay/object_table.h"

#include <gtest/gtest.h>

#include <thread>

#include "replay/translate.h"

namespace stasis::replay {
namespace {

class FakeRecord final : public Record {
 public:
  using Record::Record;
  Status Destroy() override { return {}; }
  Result<uint64_t> Rebuild() override { return visible(); }
};

RecordPtr Make(ObjectKind kind, std::vector<RecordPtr> parents = {}) {
  return std::make_shared<FakeRecord>(kind, std::move(parents));
}

void* Pointer(uint64_t value) { return reinterpret_cast<void*>(value); }
uint64_t Real(uint64_t visible) {
  return reinterpret_cast<uint64_t>(ToReal(static_cast<char*>(Pointer(visible))));
}
uint64_t Visible(uint64_t real) {
  return reinterpret_cast<uint64_t>(ToVisible(static_cast<char*>(Pointer(real))));
}

ObjectTable& Table() { return ObjectTable::Get(); }

class ObjectTableTest : public testing::Test {
 protected:
  void TearDown() override {
    for (const RecordPtr& record : Table().InOrder()) Table().Remove(record);
    Table().ForgetReal();
  }
};

// Runs first: translation has not begun.
TEST_F(ObjectTableTest, IdentityFirst) {
  EXPECT_EQ(Table().Add(Make(ObjectKind::kStream), 0x100), 0x100u);
  EXPECT_FALSE(Translating());
  EXPECT_EQ(Real(0x100), 0x100u);
  EXPECT_NE(Table().Find(0x100), nullptr);
  EXPECT_NE(Table().FindReal(0x100), nullptr);
}

TEST_F(ObjectTableTest, AMillionStreamsAndEventsLeaveNothing) {
  for (int i = 0; i < 500000; ++i) {
    for (ObjectKind kind : {ObjectKind::kStream, ObjectKind::kEvent}) {
      const RecordPtr record = Make(kind);
      Table().Add(record, 0x1000 + (i % 7) * 16 + (kind == ObjectKind::kEvent ? 0x1000 : 0));
      Table().Remove(record);
    }
  }
  EXPECT_EQ(Table().size(), 0u);
}

TEST_F(ObjectTableTest, DependentsVanishWithTheirParent) {
  const RecordPtr context = Make(ObjectKind::kContext), module = Make(ObjectKind::kModule, {context});
  const RecordPtr function = Make(ObjectKind::kFunction, {module}), other = Make(ObjectKind::kContext);
  const RecordPtr stream = Make(ObjectKind::kStream, {other});
  Table().Add(context, 0x10);
  Table().Add(other, 0x20);
  Table().Add(stream, 0x30);
  Table().Add(function, 0x40);
  Table().Add(module, 0x50);
  Table().RemoveDependents(*context);
  EXPECT_EQ(Table().size(), 3u);
  EXPECT_EQ(Table().Find(0x40), nullptr);
  EXPECT_EQ(Table().Find(0x50), nullptr);
  Table().Remove(other);
  EXPECT_EQ(Table().InOrder(), std::vector<RecordPtr>{context});
}

// The driver hands out a handle again before the hook that destroyed its first owner has come to the table.
TEST_F(ObjectTableTest, ALateRemovalSparesTheNewOwner) {
  const RecordPtr first = Make(ObjectKind::kStream), second = Make(ObjectKind::kStream);
  Table().Add(first, 0x10);
  Table().Add(second, 0x10);
  Table().Remove(first);
  EXPECT_EQ(Table().Find(0x10), second);
}

TEST_F(ObjectTableTest, SharedHandlesHaveOneRecord) {
  const RecordPtr first = Make(ObjectKind::kKernel);
  EXPECT_EQ(Table().AddShared(first, 0x10), 0x10u);
  EXPECT_EQ(Table().AddShared(Make(ObjectKind::kKernel), 0x10), 0x10u);
  EXPECT_EQ(Table().Find(0x10), first);
}

TEST_F(ObjectTableTest, ParentsComeFirst) {
  const RecordPtr event = Make(ObjectKind::kEvent), late = Make(ObjectKind::kStream),
                  early = Make(ObjectKind::kStream);
  Table().Add(event, 0x10);
  Table().Add(early, 0x20);
  Table().Add(late, 0x30);
  EXPECT_EQ(Table().InOrder(), (std::vector<RecordPtr>{early, late, event}));
  EXPECT_EQ(Table().InOrder(ObjectKind::kStream), (std::vector<RecordPtr>{early, late}));
}

TEST_F(ObjectTableTest, RebuiltObjectsKeepTheirVisibleHandles) {
  const RecordPtr a = Make(ObjectKind::kStream), b = Make(ObjectKind::kStream);
  Table().Add(a, 0x100);
  Table().Add(b, 0x200);
  Table().ForgetReal();
  Table().SetReal(*a, 0x200);  // each has what the other was shown as
  Table().SetReal(*b, 0x100);
  EXPECT_EQ(Real(0x100), 0x200u);
  EXPECT_EQ(Real(0x200), 0x100u);
  EXPECT_EQ(Visible(0x100), 0x200u);
  EXPECT_EQ(Table().FindReal(0x100), b);
  EXPECT_EQ(Real(0), 0u);
  EXPECT_EQ(Real(0x999), 0x999u);
}

TEST_F(ObjectTableTest, AFreshHandleThatIsTakenGetsAnother) {
  const RecordPtr old = Make(ObjectKind::kStream);
  Table().Add(old, 0x100);
  Table().ForgetReal();
  Table().SetReal(*old, 0x500);
  const RecordPtr fresh = Make(ObjectKind::kEvent);
  const uint64_t shown = Table().Add(fresh, 0x100);
  EXPECT_NE(shown, 0x100u);
  EXPECT_EQ(Real(shown), 0x100u);
  EXPECT_EQ(Visible(0x100), shown);
  EXPECT_EQ(Real(0x100), 0x500u);
  Table().Remove(fresh);
  EXPECT_EQ(Visible(0x100), 0x100u);
  // The made-up handle is used again: a program that goes on like this does not grow.
  for (int i = 0; i < 100000; ++i) {
    const RecordPtr again = Make(ObjectKind::kEvent);
    ASSERT_EQ(Table().Add(again, 0x100), shown);
    Table().Remove(again);
  }
  EXPECT_EQ(Table().size(), 1u);
  // A handle that nobody was shown is shown as it is, and needs no translation.
  EXPECT_EQ(Table().Add(Make(ObjectKind::kStream), 0x700), 0x700u);
  EXPECT_EQ(Real(0x700), 0x700u);
}

TEST_F(ObjectTableTest, ThreadsAddAndRemoveTheirOwn) {
  std::vector<std::thread> threads;
  for (uint64_t i = 1; i <= 4; ++i) {
    threads.emplace_back([i] {
      for (int n = 0; n < 20000; ++n) {
        const RecordPtr record = Make(ObjectKind::kStream);
        const uint64_t shown = Table().Add(record, i << 20);
        if (Table().Find(shown) != record) ADD_FAILURE();
        Table().Remove(record);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Table().size(), 0u);
}

}  // namespace
}  // namespace stasis::replay
