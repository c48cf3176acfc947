#include "ghost/socket_folders.h"

#include <sys/stat.h>

#include <filesystem>

#include "ghost/testing.h"

namespace stasis {
namespace {

std::string Varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(0x80 | (value & 0x7f));
  return out + static_cast<char>(value);
}
std::string Number(int field, uint64_t value) {
  return Varint(static_cast<uint64_t>(field) << 3) + Varint(value);
}
std::string Bytes(int field, const std::string& value) {
  return Varint((static_cast<uint64_t>(field) << 3) | 2) + Varint(value.size()) + value;
}

class Image {
 public:
  Image() {
    Word(0x54564319);
    Word(0x56303138);
  }
  // As CRIU writes a unix socket: name and owner, and whether its file is gone.
  void Socket(const std::string& name, uint64_t uid = 0, bool deleted = false) {
    std::string socket = Number(1, 3) + Number(2, 77) + Number(3, 1) + Number(4, 10) + Bytes(11, name) +
                         Bytes(13, Number(1, 0140600) + Number(2, uid) + Number(3, uid + 1));
    if (deleted) socket += Number(15, 1);
    const std::string entry = Number(1, 3) + Number(2, 3) + Bytes(16, socket);
    Word(static_cast<uint32_t>(entry.size()));
    bytes_ += entry;
  }
  std::vector<std::string> Paths() const {
    Result<std::vector<SocketFolder>> folders = Parse();
    EXPECT_TRUE(folders.ok()) << folders.status().ToString();
    std::vector<std::string> paths;
    if (folders.ok())
      for (const SocketFolder& folder : *folders) paths.push_back(folder.path);
    return paths;
  }
  Result<std::vector<SocketFolder>> Parse() const {
    return ParseSocketFolders(std::as_bytes(std::span(bytes_)));
  }
  std::string& bytes() { return bytes_; }

 private:
  void Word(uint32_t word) { bytes_.append(reinterpret_cast<const char*>(&word), 4); }
  std::string bytes_;
};

TEST(SocketFoldersTest, OfSocketsThatHaveAFile) {
  Image image;
  image.Socket(std::string("/tmp/pymp-b/listener-x\0", 23), 1000);
  image.Socket("/tmp/pymp-a/listener-y");
  image.Socket("/tmp/pymp-a/listener-z");
  image.Socket(std::string("\0abstract/x", 11));
  image.Socket("");
  image.Socket("relative/x");
  image.Socket("/top");
  image.Socket("/tmp/gone/x", 0, true);
  image.Socket("/tmp/../etc/x");
  EXPECT_EQ(image.Paths(), (std::vector<std::string>{"/tmp/pymp-a", "/tmp/pymp-b"}));
  Result<std::vector<SocketFolder>> folders = image.Parse();
  ASSERT_OK(folders.status());
  EXPECT_EQ(folders->back().uid, 1000u);
  EXPECT_EQ(folders->back().gid, 1001u);
}

TEST(SocketFoldersTest, EveryCutIsAnErrorOrAWholeNumberOfEntries) {
  Image image;
  image.Socket("/tmp/a/x");
  image.Socket("/tmp/b/y");
  const std::string whole = image.bytes();
  for (size_t size = 0; size < whole.size(); ++size) {
    image.bytes() = whole.substr(0, size);
    Result<std::vector<SocketFolder>> folders = image.Parse();
    if (folders.ok()) {
      EXPECT_LE(folders->size(), 1u);
    } else {
      EXPECT_EQ(folders.status().code(), StatusCode::kCorrupt);
    }
  }
}

TEST(SocketFoldersTest, AreMadeForTheirOwnerAndGoAgainUnlessKept) {
  std::string top = "/tmp/socket-folders-XXXXXX";
  ASSERT_NE(mkdtemp(top.data()), nullptr);
  const SocketFolder folder{top + "/a/b", getuid(), getgid()};
  for (const bool keep : {false, true}) {
    {
      MadeFolders made;
      ASSERT_OK(made.Make(folder));
      ASSERT_OK(made.Make({top + "/a", getuid(), getgid()}));
      struct stat info {};
      ASSERT_EQ(stat(folder.path.c_str(), &info), 0);
      EXPECT_EQ(info.st_mode & 07777, 0700u);
      if (keep) made.Keep();
    }
    EXPECT_EQ(std::filesystem::exists(top + "/a"), keep);
    EXPECT_EQ(std::filesystem::exists(folder.path), keep);
  }
  EXPECT_TRUE(std::filesystem::is_directory(top)) << "it was there before";
  std::filesystem::remove_all(top);
}

TEST(SocketFoldersTest, WhereThereIsAFileInTheWayNothingIsChanged) {
  std::string top = "/tmp/socket-folders-XXXXXX";
  ASSERT_NE(mkdtemp(top.data()), nullptr);
  fclose(fopen((top + "/file").c_str(), "w"));
  {
    MadeFolders made;
    EXPECT_FALSE(made.Make({top + "/file/b", getuid(), getgid()}).ok());
  }
  EXPECT_TRUE(std::filesystem::is_regular_file(top + "/file"));
  std::filesystem::remove_all(top);
}

}  // namespace
}  // namespace stasis
