// Who is let in, and what is told of it.
#include "proto/rpc/gate.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>

#include "base/log/log.h"
#include "base/testing.h"
#include "coordinator/agent/config.h"
#include "coordinator/agent/fence.h"
#include "coordinator/agent/schema.h"
#include "proto/rpc/audit.h"

namespace stasis {
namespace {

// A certificate in PEM, signed by itself: whose it is, is TLS's to check.
std::string CertificateOf(const std::vector<std::pair<const char*, const char*>>& subject,
                          long lasts_seconds) {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = X509_new();
  X509_gmtime_adj(X509_getm_notBefore(certificate), -7200);
  X509_gmtime_adj(X509_getm_notAfter(certificate), lasts_seconds);
  X509_set_pubkey(certificate, key);
  X509_NAME* name = X509_get_subject_name(certificate);
  for (const auto& [field, value] : subject) {
    X509_NAME_add_entry_by_txt(name, field, MBSTRING_UTF8, reinterpret_cast<const unsigned char*>(value), -1,
                               -1, 0);
  }
  X509_sign(certificate, key, EVP_sha256());
  BIO* memory = BIO_new(BIO_s_mem());
  PEM_write_bio_X509(memory, certificate);
  char* text = nullptr;
  long size = BIO_get_mem_data(memory, &text);
  std::string pem(text, static_cast<size_t>(size));
  BIO_free(memory);
  X509_free(certificate);
  EVP_PKEY_free(key);
  return pem;
}

TEST(Certificate, SaysWhoAndAsWhat) {
  Result<Certificate> read =
      ReadClientCertificate(CertificateOf({{"CN", "node-7"}, {"OU", "stasis-agent"}}, 3600));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->actor.name, "cn node-7");
  EXPECT_EQ(read->actor.role, Role::kAgent);
}

TEST(Certificate, OtherUnitsDoNotMatter) {
  Result<Certificate> read =
      ReadClientCertificate(CertificateOf({{"OU", "physics"}, {"OU", "stasis-reader"}, {"CN", "x"}}, 3600));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->actor.role, Role::kReader);
}

TEST(Certificate, NeedsExactlyOneRoleAndAName) {
  for (const auto& subject : std::vector<std::vector<std::pair<const char*, const char*>>>{
           {{"CN", "x"}},
           {{"CN", "x"}, {"OU", "stasis-root"}},
           {{"CN", "x"}, {"OU", "stasis-reader"}, {"OU", "stasis-operator"}},
           {{"OU", "stasis-reader"}},
           {{"CN", "x"}, {"CN", "y"}, {"OU", "stasis-reader"}},
           {{"CN", "x\ny"}, {"OU", "stasis-reader"}}}) {
    EXPECT_EQ(ReadClientCertificate(CertificateOf(subject, 3600)).status().code(),
              StatusCode::kPermissionDenied);
  }
  EXPECT_FALSE(ReadClientCertificate("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").ok());
}

TEST(Certificates, OneThatExpiresWhileItIsUsedIsNoneAnyMore) {
  std::string pem = CertificateOf({{"CN", "x"}, {"OU", "stasis-operator"}}, 100);
  Certificates certificates;
  int64_t now = time(nullptr);
  EXPECT_TRUE(certificates.ActorOf(pem, now).ok());
  EXPECT_EQ(certificates.ActorOf(pem, now + 200).status().code(), StatusCode::kPermissionDenied);
}

TEST(Roles, EachMayDoItsOwn) {
  EXPECT_TRUE(MayDo(Role::kReader, Access::kRead));
  EXPECT_FALSE(MayDo(Role::kReader, Access::kChange));
  EXPECT_FALSE(MayDo(Role::kOperator, Access::kPeer));
  EXPECT_TRUE(MayDo(Role::kScheduler, Access::kChange));
  EXPECT_TRUE(MayDo(Role::kAgent, Access::kLook));
  EXPECT_FALSE(MayDo(Role::kAgent, Access::kRead));
  EXPECT_FALSE(MayDo(Role::kAgent, Access::kChange));
}

// Keeps what came in.
class Hall {
 public:
  void Take(int fd) {
    std::lock_guard lock(mutex_);
    fds_.push_back(fd);
    more_.notify_all();
  }
  int First() {
    std::unique_lock lock(mutex_);
    more_.wait(lock, [this] { return !fds_.empty(); });
    return fds_.front();
  }

 private:
  std::mutex mutex_;
  std::condition_variable more_;
  std::vector<int> fds_;
};

TEST(Doors, KnowWhoComesInByASocketOrByLoopback) {
  TempFolder folder;
  Endpoint socket_endpoint;
  socket_endpoint.unix_socket = true;
  socket_endpoint.path = folder / "run/s.sock";
  for (const Endpoint& endpoint : {socket_endpoint, Endpoint{false, "", "127.0.0.1", 0}}) {
    Result<std::unique_ptr<Doors>> doors = Doors::Open({endpoint});
    ASSERT_OK(doors.status());
    Hall hall;
    ASSERT_OK((*doors)->Begin([&](int fd) { hall.Take(fd); },
                              [](const Status& why) { ADD_FAILURE() << why.ToString(); }));
    Fd client;
    if (endpoint.unix_socket) {
      Result<Fd> connected = ConnectUnix(endpoint.path, Deadline::After(std::chrono::seconds(30)));
      ASSERT_OK(connected.status());
      client = std::move(*connected);
    } else {
      client.Reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(static_cast<uint16_t>((*doors)->endpoints()[0].port));
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      ASSERT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    }
    Fd server(hall.First());
    EXPECT_EQ((*doors)->OwnerOf(server.get()), geteuid());
    (*doors)->Stop();
  }
}

TEST(Doors, LeadNowhereThatOthersReach) {
  EXPECT_EQ(Doors::Open({Endpoint{false, "", "0.0.0.0", 0}}).status().code(), StatusCode::kPermissionDenied);
}

TEST(Fence, OnlyTheNewestReignChangesSomething) {
  TempFolder folder;
  {
    Result<std::unique_ptr<Database>> database = Database::Open(folder / "agent.db", SchemaSteps());
    ASSERT_OK(database.status());
    Result<std::unique_ptr<Fence>> fence = Fence::Load(**database);
    ASSERT_OK(fence.status());
    ASSERT_OK((*fence)->Admit(0));
    ASSERT_OK((*fence)->Admit(5));
    ASSERT_OK((*fence)->Admit(5));
    EXPECT_EQ((*fence)->Admit(4).code(), StatusCode::kFailedPrecondition);
    ASSERT_OK((*fence)->Admit(0));
  }
  Result<std::unique_ptr<Database>> database = Database::Open(folder / "agent.db", SchemaSteps());
  ASSERT_OK(database.status());
  Result<std::unique_ptr<Fence>> fence = Fence::Load(**database);
  ASSERT_OK(fence.status());
  EXPECT_EQ((*fence)->Admit(4).code(), StatusCode::kFailedPrecondition);
  ASSERT_OK((*fence)->Admit(6));
}

TEST(Audit, IsOnDiskWhenItHasEnded) {
  TempFolder folder;
  Result<std::unique_ptr<Database>> database = Database::Open(folder / "agent.db", SchemaSteps());
  ASSERT_OK(database.status());
  SetLogLevel(LogLevel::kError);
  {
    Audit audit(**database);
    audit.Record({"uid 0", "operator", "fd:7", "pause", "train", "op-000001", Status()});
    audit.Record({"", "", "ipv4:1.2.3.4:5", "run", "", "", Status(StatusCode::kPermissionDenied, "no")});
  }
  SetLogLevel(LogLevel::kInfo);
  Result<std::vector<DbRow>> rows =
      (*database)->Query("SELECT actor, verb, job, operation, code, message FROM audit ORDER BY id");
  ASSERT_OK(rows.status());
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_EQ((*rows)[0].Text(3), "op-000001");
  EXPECT_EQ((*rows)[0].Text(4), "OK");
  EXPECT_EQ((*rows)[1].Text(4), "PERMISSION_DENIED");
}

TEST(Log, ALineIsOneObject) {
  std::string line =
      LogLine(LogLevel::kWarning, "door", "a \"b\"\n", {{"why", "\xff"}, {"level", "no"}}, 1000001);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  Json parsed = Json::parse(line);
  EXPECT_EQ(parsed["time"], "1970-01-01T00:00:01.000001Z");
  EXPECT_EQ(parsed["level"], "warning");
  EXPECT_EQ(parsed["message"], "a \"b\"\n");
}

TEST(Config, HasDefaults) {
  AgentConfig config;
  EXPECT_FALSE(ParseConfig({}, {"/s", "/r"}, &config).done);
  ASSERT_EQ(config.listen.size(), 1u);
  EXPECT_EQ(config.listen[0].Target(), "unix:/r/stasisd.sock");
  EXPECT_EQ(config.patience, std::chrono::seconds(30));
  EXPECT_FALSE(config.node_name.empty());
}

TEST(Config, HoursBetweenFailures) {
  AgentConfig config;
  ASSERT_FALSE(ParseConfig({"--mtbf", "1.5"}, {"/s", "/r"}, &config).done);
  EXPECT_EQ(config.mtbf_ms, 5'400'000);
}

TEST(Config, WhatIsWrongIsUsage) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"--listen", "nowhere"},
                                             {"--peer-address", "node:0"},
                                             {"--log-level", "loud"},
                                             {"--what"},
                                             {"extra"},
                                             {"--patience", "0"},
                                             {"--metrics", "unix:/x"},
                                             {"--mtbf", "-1"},
                                             {"--mtbf", "nan"},
                                             {"--mtbf", "1e9"}}) {
    AgentConfig config;
    ConfigOutcome outcome = ParseConfig(arguments, {"/s", "/r"}, &config);
    EXPECT_TRUE(outcome.done) << arguments[0];
    EXPECT_EQ(outcome.exit_code, 2) << arguments[0];
  }
}

}  // namespace
}  // namespace stasis
