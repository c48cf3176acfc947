#include "intercept/libraries/handle_library.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "intercept/libraries/handles.h"

namespace stasis::libraries {
namespace {

void* At(uintptr_t address) { return reinterpret_cast<void*>(address); }

// A library whose handles have one setting, and the addresses that the test wants.
class Fake : public HandleLibrary {
 public:
  class Object final : public HandleObject {
   public:
    explicit Object(Fake& library) : library_(library) {}
    void Read(void* real) override { setting_ = library_.settings[real]; }
    Status Apply(void* real) override {
      if (library_.refuse_settings) return Status(StatusCode::kDriver, "FakeSet: error 1");
      library_.settings[real] = setting_;
      return {};
    }

   private:
    Fake& library_;
    int setting_ = 0;
  };

  const char* Name() const override { return "Fake"; }
  void* ProgramCreates(uintptr_t address, int setting = 0) {
    settings[At(address)] = setting;
    return Made(At(address), std::make_shared<Object>(*this));
  }
  bool ProgramDestroys(void* visible, bool succeeds = true) {
    return Destroyed(visible, [&](void* real) { return succeeds && settings.erase(real) == 1; });
  }

  std::map<void*, int> settings;  // of the objects that are there, by real handle
  std::vector<uintptr_t> next;    // addresses of new objects, last first
  bool refuse_settings = false;

 protected:
  Result<void*> Create() override {
    if (next.empty()) return Status(StatusCode::kResourceExhausted, "FakeCreate: error 3");
    void* real = At(next.back());
    next.pop_back();
    settings[real] = -1;
    return real;
  }
  Status Destroy(void* real) override {
    return settings.erase(real) == 1 ? Status() : Status(StatusCode::kDriver, "FakeDestroy: error 1");
  }
};

class HandleLibraryTest : public testing::Test {
 protected:
  void TearDown() override {
    for (void* handle : handles_) library_.ProgramDestroys(handle);
    EXPECT_TRUE(library_.settings.empty());
  }
  void* Create(uintptr_t address, int setting = 0) {
    void* visible = library_.ProgramCreates(address, setting);
    EXPECT_TRUE(handles_.insert(visible).second);
    return visible;
  }
  void Destroy(void* visible) {
    EXPECT_TRUE(library_.ProgramDestroys(visible));
    handles_.erase(visible);
  }
  int SettingOf(void* visible) { return library_.settings.at(ToReal(visible)); }

  Fake library_;
  std::set<void*> handles_;
};

TEST_F(HandleLibraryTest, AHandleIsWhatTheLibraryGave) {
  EXPECT_EQ(Create(0x1000), At(0x1000));
  EXPECT_EQ(ToReal(At(0x1000)), At(0x1000));
}

TEST_F(HandleLibraryTest, ComesBackUnderTheSameHandleWithItsSettings) {
  void* first = Create(0x1000, 7);
  void* second = Create(0x2000, 8);
  ASSERT_TRUE(library_.GiveUp().ok());
  EXPECT_TRUE(library_.settings.empty());
  EXPECT_EQ(ToReal(first), nullptr);
  library_.next = {0x4000, 0x3000};
  ASSERT_TRUE(library_.Rebuild().ok());
  EXPECT_EQ(ToReal(first), At(0x3000));
  EXPECT_EQ(ToVisible(At(0x3000)), first);
  EXPECT_EQ(SettingOf(first), 7);
  EXPECT_EQ(SettingOf(second), 8);
}

TEST_F(HandleLibraryTest, HandlesSwapPlaces) {
  void* first = Create(0x1000, 7);
  void* second = Create(0x2000, 8);
  ASSERT_TRUE(library_.GiveUp().ok());
  library_.next = {0x1000, 0x2000};
  ASSERT_TRUE(library_.Rebuild().ok());
  EXPECT_EQ(ToReal(first), At(0x2000));
  EXPECT_EQ(ToReal(second), At(0x1000));
  EXPECT_EQ(ToVisible(At(0x1000)), second);
  EXPECT_EQ(SettingOf(first), 7);
}

TEST_F(HandleLibraryTest, AValueThatALivingHandleShowsIsNotGivenOut) {
  void* first = Create(0x1000, 7);
  ASSERT_TRUE(library_.GiveUp().ok());
  library_.next = {0x3000};
  ASSERT_TRUE(library_.Rebuild().ok());
  void* second = Create(0x1000, 8);
  EXPECT_NE(second, first);
  EXPECT_EQ(ToReal(second), At(0x1000));
  EXPECT_EQ(SettingOf(first), 7);
  Destroy(second);
  Destroy(first);
  EXPECT_EQ(Create(0x1000), At(0x1000));  // nobody shows it any more
}

TEST_F(HandleLibraryTest, AHandleThatIsDestroyedIsNotMadeAgain) {
  Destroy(Create(0x1000));
  ASSERT_TRUE(library_.GiveUp().ok());
  EXPECT_TRUE(library_.Rebuild().ok());
  EXPECT_TRUE(library_.settings.empty());
}

TEST_F(HandleLibraryTest, ADestructionThatFailsLeavesTheHandle) {
  void* handle = Create(0x1000, 7);
  EXPECT_FALSE(library_.ProgramDestroys(handle, /*succeeds=*/false));
  ASSERT_TRUE(library_.GiveUp().ok());
  library_.next = {0x3000};
  ASSERT_TRUE(library_.Rebuild().ok());
  EXPECT_EQ(SettingOf(handle), 7);
}

TEST_F(HandleLibraryTest, AKeptHandleIsNotTouched) {
  void* kept = Create(0x1000, 7);
  library_.Keep(kept);
  ASSERT_TRUE(library_.GiveUp().ok());
  EXPECT_EQ(SettingOf(kept), 7);
  EXPECT_TRUE(library_.Rebuild().ok());
}

TEST_F(HandleLibraryTest, ARebuildThatFailsCanBeTriedAgain) {
  void* first = Create(0x1000, 7);
  void* second = Create(0x2000, 8);
  ASSERT_TRUE(library_.GiveUp().ok());
  library_.next = {0x3000};
  EXPECT_EQ(library_.Rebuild().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(library_.settings.empty());
  EXPECT_EQ(ToReal(first), nullptr);  // the library's own error is what a call gets
  EXPECT_EQ(ToReal(second), nullptr);
  library_.next = {0x6000, 0x5000};
  ASSERT_TRUE(library_.Rebuild().ok());
  EXPECT_EQ(SettingOf(first), 7);
  EXPECT_EQ(SettingOf(second), 8);
}

TEST_F(HandleLibraryTest, AHandleWhoseSettingsFailIsDestroyedAgain) {
  void* handle = Create(0x1000, 7);
  ASSERT_TRUE(library_.GiveUp().ok());
  library_.next = {0x3000};
  library_.refuse_settings = true;
  EXPECT_EQ(library_.Rebuild().code(), StatusCode::kDriver);
  EXPECT_TRUE(library_.settings.empty());
  library_.next = {0x3000};
  library_.refuse_settings = false;
  ASSERT_TRUE(library_.Rebuild().ok());
  EXPECT_EQ(SettingOf(handle), 7);
}

TEST_F(HandleLibraryTest, ManyCollisionsTakeNoMoreThanTheyNeed) {
  void* first = Create(0x1000);
  ASSERT_TRUE(library_.GiveUp().ok());
  library_.next = {0x3000};
  ASSERT_TRUE(library_.Rebuild().ok());
  std::set<void*> shown;
  for (int i = 0; i < 5000; ++i) {
    void* other = Create(0x1000);
    shown.insert(other);
    Destroy(other);
  }
  EXPECT_EQ(shown.size(), 1u);
  EXPECT_EQ(shown.count(first), 0u);
}

}  // namespace
}  // namespace stasis::libraries
