#include "ghost/criu_pages.h"

#include <span>

#include "ghost/testing.h"

namespace stasis {
namespace {

constexpr uint64_t kPageSize = 4096;
constexpr uint64_t kParent = 1, kLazy = 2, kPresent = 4;

class Pagemap {
 public:
  explicit Pagemap(uint64_t pages_id) {
    Word(0x54564319);
    Word(0x56084025);
    Message({{1, pages_id}});
  }
  // Fields of one message: number and value.
  void Message(const std::vector<std::pair<unsigned, uint64_t>>& fields) {
    std::string message;
    for (auto [number, value] : fields) message += Varint(number << 3) + Varint(value);
    Word(static_cast<uint32_t>(message.size()));
    bytes_ += message;
  }
  void Entry(uint64_t address, uint64_t pages, uint64_t flags) {
    Message({{1, address}, {2, pages}, {4, flags}, {5, pages}});
  }
  Result<CriuPagemap> Parse() const { return ParseCriuPagemap(std::as_bytes(std::span(bytes_))); }
  const std::string& bytes() const { return bytes_; }

 private:
  static std::string Varint(uint64_t value) {
    std::string out;
    for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
    return out + static_cast<char>(value);
  }
  void Word(uint32_t word) { bytes_.append(reinterpret_cast<const char*>(&word), 4); }
  std::string bytes_;
};

TEST(CriuPagesTest, OnlyWhatIsInTheFileCounts) {
  Pagemap map(9);
  map.Entry(0x10000, 2, kPresent);
  map.Entry(0x12000, 1, kPresent | kLazy);  // neighbours are one run
  map.Entry(0x20000, 5, kParent);
  map.Entry(0x30000, 5, 0);
  map.Entry(0x40000, 5, kLazy);
  map.Message({{1, 0x50000}, {2, 3}});          // as older versions wrote it
  map.Message({{1, 0x60000}, {2, 3}, {3, 1}});  // and in the parent
  Result<CriuPagemap> parsed = map.Parse();
  ASSERT_OK(parsed.status());
  EXPECT_EQ(parsed->pages_id, 9u);
  std::vector<Segment> expected = {{0x10000, 3 * kPageSize}, {0x50000, 3 * kPageSize}};
  EXPECT_EQ(parsed->segments, expected);
}

TEST(CriuPagesTest, NonsenseIsRefused) {
  Pagemap odd(1), far(1), many(1);
  odd.Entry(0x10001, 1, kPresent);
  far.Entry(1ull << 60, 1, kPresent);
  many.Entry(0x1000, 1ull << 60, kPresent);
  for (const Pagemap* map : {&odd, &far, &many})
    EXPECT_EQ(map->Parse().status().code(), StatusCode::kCorrupt);
  Pagemap good(1);
  good.Entry(0x1000, 300, kPresent);
  for (size_t size = 0; size < good.bytes().size(); ++size) {
    // Cut anywhere: an error, or fewer entries, and nothing else.
    (void)ParseCriuPagemap(std::as_bytes(std::span(good.bytes()).first(size)));
  }
}

TEST(CriuPagesTest, AFileThatItsMapDoesNotExplainIsCutByOffset) {
  TempFolder folder;
  Pagemap map(3), shared(4);
  map.Entry(0x10000, 2, kPresent);
  shared.Entry(0, 1, kPresent);
  WriteText(folder / "pagemap-77.img", map.bytes());
  WriteText(folder / "pagemap-shmem-5.img", shared.bytes());
  WriteText(folder / "pagemap-78.img", "nonsense");
  CriuPages pages(folder.path());
  EXPECT_EQ(pages.Of("pages-3.img", 2 * kPageSize), (std::vector<Segment>{{0x10000, 2 * kPageSize}}));
  EXPECT_EQ(pages.Of("pages-4.img", kPageSize), (std::vector<Segment>{{0, kPageSize}}));
  EXPECT_TRUE(pages.Of("pages-3.img", 3 * kPageSize).empty());
  EXPECT_TRUE(pages.Of("pages-9.img", kPageSize).empty());
  EXPECT_TRUE(pages.Of("core-77.img", 100).empty());
}

}  // namespace
}  // namespace stasis
