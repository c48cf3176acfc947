#include "base/unix_socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace stasis {
namespace {

class UnixSocketTest : public ::testing::Test {
 protected:
  UnixSocketTest() {
    char folder[] = "/tmp/unix_socket_test.XXXXXX";
    EXPECT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
    path_ = folder_ + "/run/sub/socket";
  }
  ~UnixSocketTest() override { std::filesystem::remove_all(folder_); }

  static Deadline Soon() { return Deadline::After(std::chrono::seconds(60)); }
  static mode_t ModeOf(const std::string& path) {
    struct stat info {};
    EXPECT_EQ(stat(path.c_str(), &info), 0);
    return info.st_mode & 0777;
  }

  std::string folder_, path_;
};

TEST_F(UnixSocketTest, ConnectsAndKnowsThePeer) {
  Result<UnixListener> listener = UnixListener::Listen(path_);
  ASSERT_TRUE(listener.ok()) << listener.status().ToString();
  EXPECT_EQ(ModeOf(folder_ + "/run/sub"), 0700u);
  EXPECT_EQ(ModeOf(path_), 0600u);
  EXPECT_EQ(listener->Accept().status().code(), StatusCode::kUnavailable);
  Result<Fd> client = ConnectUnix(path_, Soon());
  ASSERT_TRUE(client.ok());
  Result<Fd> server = listener->Accept();
  ASSERT_TRUE(server.ok());
  for (int fd : {client->get(), server->get()}) {
    Result<PeerCredentials> peer = GetPeerCredentials(fd);
    ASSERT_TRUE(peer.ok());
    EXPECT_EQ(peer->pid, getpid());
    EXPECT_EQ(peer->uid, geteuid());
    EXPECT_NE(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
    EXPECT_NE(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
  }
}

TEST_F(UnixSocketTest, PathIsFreeAgainAfterClose) {
  { ASSERT_TRUE(UnixListener::Listen(path_).ok()); }
  EXPECT_EQ(ConnectUnix(path_, Soon()).status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(std::filesystem::is_empty(folder_ + "/run/sub"));
  EXPECT_TRUE(UnixListener::Listen(path_).ok());
}

TEST_F(UnixSocketTest, SecondListenerIsRefused) {
  Result<UnixListener> first = UnixListener::Listen(path_);
  ASSERT_TRUE(first.ok());
  Result<UnixListener> second = UnixListener::Listen(path_);
  EXPECT_EQ(second.status().code(), StatusCode::kAlreadyExists);
  EXPECT_TRUE(ConnectUnix(path_, Soon()).ok());
}

// A process that is killed leaves its socket file behind.
TEST_F(UnixSocketTest, StaleSocketIsReplaced) {
  pid_t child = fork();
  if (child == 0) {
    Result<UnixListener> listener = UnixListener::Listen(path_);
    _exit(listener.ok() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  ASSERT_TRUE(std::filesystem::exists(path_));
  EXPECT_EQ(ConnectUnix(path_, Soon()).status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(UnixListener::Listen(path_).ok());
}

TEST_F(UnixSocketTest, ForkedChildDoesNotRemoveTheSocket) {
  Result<UnixListener> listener = UnixListener::Listen(path_);
  ASSERT_TRUE(listener.ok());
  pid_t child = fork();
  if (child == 0) {
    listener->Close();
    _exit(0);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(ConnectUnix(path_, Soon()).ok());
}

// As a daemon that was killed while a child of its was on the way to its exec.
TEST_F(UnixSocketTest, AChildOfADeadListenerIsWaitedFor) {
  int ready[2];
  ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
  const pid_t daemon = fork();
  if (daemon == 0) {
    auto listener = UnixListener::Listen(path_);
    const pid_t child = fork();
    if (child == 0) {
      pollfd somebody{listener->fd(), POLLIN, 0};
      poll(&somebody, 1, -1);
      _exit(0);
    }
    (void)!write(ready[1], &child, sizeof child);
    for (;;) pause();
  }
  pid_t child = 0;
  ASSERT_EQ(read(ready[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
  kill(daemon, SIGKILL);
  ASSERT_EQ(waitpid(daemon, nullptr, 0), daemon);
  auto listener = UnixListener::Listen(path_);
  EXPECT_TRUE(listener.ok()) << listener.status().ToString();
  kill(child, SIGKILL);
  close(ready[0]);
  close(ready[1]);
}

TEST_F(UnixSocketTest, OtherFilesAreNotReplaced) {
  std::string file = folder_ + "/file";
  close(open(file.c_str(), O_CREAT | O_WRONLY, 0600));
  EXPECT_EQ(UnixListener::Listen(file).status().code(), StatusCode::kAlreadyExists);
  EXPECT_TRUE(std::filesystem::exists(file));
}

TEST_F(UnixSocketTest, OpenDirectoryIsRefused) {
  std::string open_folder = folder_ + "/open";
  ASSERT_EQ(mkdir(open_folder.c_str(), 0700), 0);
  ASSERT_EQ(chmod(open_folder.c_str(), 0777), 0);
  EXPECT_EQ(UnixListener::Listen(open_folder + "/socket").status().code(), StatusCode::kPermissionDenied);
  ASSERT_EQ(chmod(open_folder.c_str(), 01777), 0);
  EXPECT_TRUE(UnixListener::Listen(open_folder + "/socket").ok());
}

// Who owns a directory above, as a stranger who was first with /tmp/stasis-UID, may replace what is below.
TEST_F(UnixSocketTest, DirectoriesAboveAreLookedAtToo) {
  const std::string above = folder_ + "/above", path = above + "/run/tasks/job/ctl/1.sock";
  ASSERT_EQ(mkdir(above.c_str(), 0700), 0);
  EXPECT_TRUE(PrepareSocketDirectory(path).ok());
  ASSERT_EQ(chmod(above.c_str(), 0777), 0);
  EXPECT_EQ(UnixListener::Listen(path).status().code(), StatusCode::kPermissionDenied);
  ASSERT_EQ(chmod(above.c_str(), 01777), 0);  // as /tmp is
  EXPECT_TRUE(PrepareSocketDirectory(path).ok());
  if (geteuid() != 0) return;  // what follows takes another user
  constexpr uid_t kStranger = 4321;
  ASSERT_EQ(chmod(above.c_str(), 0755), 0);
  ASSERT_EQ(chown(above.c_str(), kStranger, kStranger), 0);
  EXPECT_EQ(UnixListener::Listen(path).status().code(), StatusCode::kPermissionDenied);
  ASSERT_EQ(chown(above.c_str(), 0, 0), 0);
  const std::string link = folder_ + "/link";
  ASSERT_EQ(symlink(above.c_str(), link.c_str()), 0);
  EXPECT_TRUE(PrepareSocketDirectory(link + "/run/tasks/job/ctl/1.sock").ok());
  ASSERT_EQ(lchown(link.c_str(), kStranger, kStranger), 0);
  EXPECT_EQ(PrepareSocketDirectory(link + "/run/tasks/job/ctl/1.sock").code(), StatusCode::kPermissionDenied);
}

TEST_F(UnixSocketTest, ARunFolderOfAStrangersIsNoneOfOurs) {
  const std::string folder = folder_ + "/run";
  EXPECT_TRUE(CheckRunFolder(folder).ok());  // it will be made
  ASSERT_EQ(mkdir(folder.c_str(), 0700), 0);
  EXPECT_TRUE(CheckRunFolder(folder).ok());
  ASSERT_EQ(chmod(folder.c_str(), 0770), 0);
  EXPECT_EQ(CheckRunFolder(folder).code(), StatusCode::kPermissionDenied);
  ASSERT_EQ(chmod(folder.c_str(), 0700), 0);
  if (geteuid() != 0) return;  // what follows takes another user
  constexpr uid_t kStranger = 4321;
  ASSERT_EQ(chown(folder.c_str(), kStranger, kStranger), 0);
  EXPECT_EQ(CheckRunFolder(folder).code(), StatusCode::kPermissionDenied);
  ASSERT_EQ(chown(folder.c_str(), 0, 0), 0);
  const std::string link = folder_ + "/link";
  ASSERT_EQ(symlink(folder.c_str(), link.c_str()), 0);
  ASSERT_EQ(lchown(link.c_str(), kStranger, kStranger), 0);
  EXPECT_EQ(CheckRunFolder(link).code(), StatusCode::kPermissionDenied);
}

TEST_F(UnixSocketTest, ImpossiblePathsAreRefused) {
  EXPECT_EQ(UnixListener::Listen("").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(UnixListener::Listen(folder_ + "/" + std::string(120, 'x')).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(ConnectUnix(std::string(108, 'x'), Soon()).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(UnixSocketTest, FullBacklogTimesOut) {
  Result<UnixListener> listener = UnixListener::Listen(path_);
  ASSERT_TRUE(listener.ok());
  std::vector<Fd> waiting;
  Status status;
  // The backlog is bounded by net.core.somaxconn, which is at most 65535 by default; descriptors may end
  // before.
  while (status.ok()) {
    Result<Fd> client = ConnectUnix(path_, Deadline::After(Duration::zero()));
    status = client.status();
    if (client.ok()) waiting.push_back(std::move(client).value());
  }
  EXPECT_TRUE(status.code() == StatusCode::kTimeout || status.code() == StatusCode::kResourceExhausted)
      << status.ToString();
  EXPECT_EQ(UnixListener::Listen(path_).status().code(), StatusCode::kAlreadyExists);
}

}  // namespace
}  // namespace stasis
