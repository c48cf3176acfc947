#include "ghost/member.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "base/message.h"
#include "base/task_protocol.h"
#include "base/unix_socket.h"
#include "ghost/proc.h"
#include "ghost/testing.h"

namespace stasis {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Deadline Soon() { return Deadline::After(seconds(60)); }

// A process that says hello to whoever connects.
class Process {
 public:
  explicit Process(const std::string& path) {
    Result<UnixListener> listener = UnixListener::Listen(path);
    EXPECT_TRUE(listener.ok());
    listener_ = std::move(*listener);
    pid_ = fork();
    if (pid_ == 0) Serve(listener_);
  }
  ~Process() {
    (void)kill(pid_, SIGKILL);
    (void)waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

  void Stop() const {
    ASSERT_EQ(kill(pid_, SIGSTOP), 0);
    int status = 0;
    ASSERT_EQ(waitpid(pid_, &status, WUNTRACED), pid_);
    ASSERT_TRUE(WIFSTOPPED(status));
  }
  void Continue() const { ASSERT_EQ(kill(pid_, SIGCONT), 0); }

 private:
  [[noreturn]] static void Serve(UnixListener& listener) {
    for (;;) {
      Result<Fd> socket = listener.Accept();
      if (!socket.ok()) {
        usleep(1000);
        continue;
      }
      MessageDecoder decoder;
      Result<Message> request = ReceiveMessage(socket->get(), decoder, Soon());
      if (!request.ok()) continue;
      Message answer;
      answer.type = static_cast<uint32_t>(TaskMessage::kOk);
      answer.request_id = request->request_id;
      answer.payload = Encode(TaskHello());
      (void)SendMessage(socket->get(), std::move(answer), Soon());
    }
  }

  UnixListener listener_;
  pid_t pid_ = -1;
};

class MemberTest : public testing::Test {
 protected:
  std::string Path() const { return folder_.path() + "/member.sock"; }
  TempFolder folder_;
  Process process_{Path()};
};

TEST_F(MemberTest, OneThatIsStoppedIsNotAsked) {
  process_.Stop();
  auto member = Member::Connect(Path(), process_.pid(), Soon());
  EXPECT_EQ(member.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(member.status().message().find("kill -CONT"), std::string::npos) << member.status().ToString();
}

TEST_F(MemberTest, OneThatIsToGoOnIsWaitedForWhileItIsStopped) {
  process_.Stop();
  std::thread later([this] {
    std::this_thread::sleep_for(milliseconds(50));
    process_.Continue();
  });
  auto member = Member::Connect(Path(), process_.pid(), Soon(), /*appearing=*/true);
  later.join();
  EXPECT_TRUE(member.ok()) << member.status().ToString();
}

TEST_F(MemberTest, AndIsNamedWhenItStaysSo) {
  process_.Stop();
  auto member =
      Member::Connect(Path(), process_.pid(), Deadline::After(milliseconds(30)), /*appearing=*/true);
  EXPECT_EQ(member.status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(MemberTest, OneThatHasEndedIsNotWaitedFor) {
  ASSERT_EQ(kill(process_.pid(), SIGKILL), 0);
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(process_.pid()), &info, WEXITED | WNOWAIT), 0);
  auto member = Member::Connect(Path(), process_.pid(), Soon(), /*appearing=*/true);
  EXPECT_EQ(member.status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace stasis
