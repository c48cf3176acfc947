// The rule for TCP with real sockets: children of the test, which is outside of their trees.
#include "ghost/dumpable_tcp.h"

#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "base/fd.h"
#include "ghost/proc.h"
#include "ghost/testing.h"

namespace stasis {
namespace {

sockaddr_in Loopback() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

class Listener {
 public:
  Listener() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), address_(Loopback()) {
    socklen_t size = sizeof address_;
    auto* address = reinterpret_cast<sockaddr*>(&address_);
    EXPECT_EQ(bind(fd_.get(), address, size) | listen(fd_.get(), 8) | getsockname(fd_.get(), address, &size),
              0);
  }
  int fd() const { return fd_.get(); }
  std::string text() const { return "127.0.0.1:" + std::to_string(ntohs(address_.sin_port)); }
  Fd Connect() const {
    Fd fd(socket(AF_INET, SOCK_STREAM, 0));
    (void)!connect(fd.get(), reinterpret_cast<const sockaddr*>(&address_), sizeof address_);
    return fd;
  }
  Fd Accept() const { return Fd(accept(fd_.get(), nullptr, nullptr)); }

 private:
  Fd fd_;
  sockaddr_in address_;
};

// A process that keeps what `prepare` leaves open.
class Child {
 public:
  explicit Child(const std::function<void()>& prepare) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      prepare();
      (void)!write(ends[1], "x", 1);
      for (;;) pause();
    }
    close(ends[1]);
    char byte;
    EXPECT_EQ(read(ends[0], &byte, 1), 1);
    close(ends[0]);
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

struct Answer {
  Status status;
  std::string remedy;
};

Answer Check(const std::vector<pid_t>& tree, TcpCheck when) {
  Answer answer;
  answer.status = CheckTcp(tree, when, &answer.remedy);
  EXPECT_EQ(answer.status.ok(), answer.remedy.empty());
  return answer;
}

void ExpectSays(const Answer& answer, const std::string& text) {
  EXPECT_EQ(answer.status.code(), StatusCode::kUnsupported);
  EXPECT_NE(std::string(answer.status.message()).find(text), std::string::npos) << answer.status.ToString();
}

// A child that keeps one socket of all that the test has open.
void Keep(const Listener& listener, Fd& mine, const Fd& theirs) {
  close(listener.fd());
  (void)mine.Release();
  close(theirs.get());
}

TEST(DumpableTcpTest, AConnectionWithinATreeIsCarried) {
  Listener listener;
  Fd client = listener.Connect(), server = listener.Accept();
  Child one([&] { Keep(listener, client, server); }), other([&] { Keep(listener, server, client); });
  client.Reset();
  server.Reset();
  EXPECT_TRUE(Check({one.pid(), other.pid()}, TcpCheck::kStandingStill).status.ok());
  Result<bool> connected = HasTcpConnections({one.pid(), other.pid()});
  EXPECT_TRUE(connected.ok() && *connected);
}

TEST(DumpableTcpTest, OneThatLeadsOutNamesTheOtherEnd) {
  Listener listener;
  Fd client = listener.Connect(), server = listener.Accept();
  Child one([&] { Keep(listener, client, server); });
  client.Reset();
  for (TcpCheck when : {TcpCheck::kWhileRunning, TcpCheck::kStandingStill}) {
    Answer answer = Check({one.pid()}, when);
    ExpectSays(answer, "a TCP connection to " + listener.text() + " (process " + std::to_string(getpid()));
    EXPECT_NE(answer.remedy.find("inside the task"), std::string::npos) << answer.remedy;
  }
}

TEST(DumpableTcpTest, OneToAListenerOutsideLeadsOutBeforeItIsAccepted) {
  Listener listener;
  Fd client = listener.Connect();
  Child one([&] { close(listener.fd()); });
  client.Reset();
  ExpectSays(Check({one.pid()}, TcpCheck::kWhileRunning), "(process " + std::to_string(getpid()));
}

TEST(DumpableTcpTest, OneThatWaitsToBeAcceptedIsRefusedAtTheDumpOnly) {
  Listener listener;
  Fd client = listener.Connect();
  Child one([] {});
  client.Reset();
  close(listener.fd());
  EXPECT_TRUE(Check({one.pid()}, TcpCheck::kWhileRunning).status.ok());
  ExpectSays(Check({one.pid()}, TcpCheck::kStandingStill), "not been accepted yet");
}

TEST(DumpableTcpTest, AListenerAloneIsCarriedAndIsNoConnection) {
  Listener listener;
  Child one([] {});
  EXPECT_TRUE(Check({one.pid()}, TcpCheck::kStandingStill).status.ok());
  Result<bool> connected = HasTcpConnections({one.pid()});
  EXPECT_TRUE(connected.ok() && !*connected);
}

TEST(DumpableTcpTest, TheEndThatIsLeftIsCarriedOnceItHasHeardOfTheClose) {
  Listener listener;
  Fd client = listener.Connect(), server = listener.Accept();
  Child one([&] { Keep(listener, client, server); });
  client.Reset();
  server.Reset();
  EXPECT_TRUE(Check({one.pid()}, TcpCheck::kStandingStill).status.ok());
}

TEST(DumpableTcpTest, DataThatADeadProcessHasLeftInTheKernelAreWaitedFor) {
  Listener listener;
  Fd client = listener.Connect(), server = listener.Accept();
  Child one([&] { Keep(listener, client, server); });
  client.Reset();
  // More than the other end takes without reading: the rest, and the close behind it, stay here.
  std::string much(1 << 20, 'x');
  while (send(server.get(), much.data(), much.size(), MSG_DONTWAIT) > 0) continue;
  server.Reset();
  EXPECT_TRUE(Check({one.pid()}, TcpCheck::kWhileRunning).status.ok());
  ExpectSays(Check({one.pid()}, TcpCheck::kStandingStill), "opened or closed");
}

}  // namespace
}  // namespace stasis
