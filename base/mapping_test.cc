#include "base/mapping.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/fd.h"

namespace stasis {
namespace {

// Whether any page is mapped at `address`: mincore(2) fails with ENOMEM if not.
bool IsMapped(void* address) {
  unsigned char page;
  return mincore(address, 1, &page) == 0;
}

Fd FileOfSize(off_t size) {
  Fd file(memfd_create("mapping_test", MFD_CLOEXEC));
  EXPECT_EQ(ftruncate(file.get(), size), 0);
  return file;
}

TEST(MappingTest, AnonymousIsZeroWritableAndUnmapped) {
  void* where;
  {
    Result<Mapping> mapping = Mapping::Anonymous(8192);
    ASSERT_TRUE(mapping.ok());
    where = mapping->data();
    EXPECT_EQ(mapping->size(), 8192u);
    EXPECT_EQ(mapping->bytes()[8191], std::byte{0});
    std::memset(mapping->data(), 1, 8192);
    EXPECT_TRUE(IsMapped(where));
    errno = 42;
  }
  EXPECT_EQ(errno, 42);
  EXPECT_FALSE(IsMapped(where));
}

TEST(MappingTest, SharedMappingsOfOneFileSeeEachOther) {
  Fd file = FileOfSize(8192);
  Result<Mapping> one = Mapping::OfFd(file.get(), 4096, 4096, PROT_READ | PROT_WRITE);
  Result<Mapping> two = Mapping::OfFd(file.get(), 0, 8192, PROT_READ);
  Result<Mapping> own =
      Mapping::OfFd(file.get(), 0, 8192, PROT_READ | PROT_WRITE, Mapping::Sharing::kPrivate);
  file.Reset();
  ASSERT_TRUE(one.ok() && two.ok() && own.ok());
  own->bytes()[4096] = std::byte{9};
  one->bytes()[0] = std::byte{5};
  EXPECT_EQ(two->bytes()[4096], std::byte{5});
  EXPECT_EQ(own->bytes()[4096], std::byte{9});
}

TEST(MappingTest, ReserveCannotBeTouchedUntilProtected) {
  // More than a machine of ours has memory, and less than ThreadSanitizer leaves of the address space.
  Result<Mapping> mapping = Mapping::Reserve(size_t{1} << 37);
  ASSERT_TRUE(mapping.ok()) << mapping.status().ToString();
  EXPECT_DEATH(mapping->bytes()[0] = std::byte{1}, "");
  Result<Mapping> small = Mapping::Reserve(4096);
  ASSERT_TRUE(small.ok());
  ASSERT_TRUE(small->Protect(PROT_READ | PROT_WRITE).ok());
  small->bytes()[0] = std::byte{1};
}

TEST(MappingTest, LargePagesChangeNothingThatIsSeen) {
  constexpr size_t kSize = 5 << 20;
  Result<Mapping> mapping = Mapping::Anonymous(kSize);
  ASSERT_TRUE(mapping.ok());
  mapping->PreferLargePages();
  std::memset(mapping->data(), 7, kSize);
  EXPECT_EQ(mapping->bytes()[kSize - 1], std::byte{7});
  Mapping().PreferLargePages();
}

TEST(MappingTest, ReleaseAndAdoptMoveOwnership) {
  Result<Mapping> mapping = Mapping::Anonymous(4096);
  ASSERT_TRUE(mapping.ok());
  void* data = mapping->Release();
  EXPECT_FALSE(mapping->valid());
  mapping->Reset();
  EXPECT_TRUE(IsMapped(data));
  { Mapping adopted = Mapping::Adopt(data, 4096); }
  EXPECT_FALSE(IsMapped(data));
}

TEST(MappingTest, AssignmentUnmapsWhatWasHeld) {
  Mapping first = Mapping::Anonymous(4096).value();
  void* held = first.data();
  first = Mapping::Anonymous(8192).value();
  EXPECT_EQ(first.size(), 8192u);
  // The second was mapped while the first was, so they cannot be at the same place.
  EXPECT_NE(first.data(), held);
  EXPECT_FALSE(IsMapped(held));
}

TEST(MappingTest, ErrorsNameTheCause) {
  EXPECT_EQ(Mapping::Anonymous(0).status().code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(Mapping::OfFd(-1, 0, 4096, PROT_READ).ok());
  Fd file = FileOfSize(4096);
  EXPECT_EQ(Mapping::OfFd(file.get(), 1, 4096, PROT_READ).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace stasis
