#include "proto/rpc/daemon.h"

#include <grpc/support/log.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <sstream>

namespace stasis {
namespace {

constexpr int kExitUsage = 2;

void LogForGrpc(gpr_log_func_args* arguments) {
  const LogLevel level =
      arguments->severity == GPR_LOG_SEVERITY_ERROR ? LogLevel::kWarning : LogLevel::kDebug;
  Log(level, "grpc", arguments->message);
}

ConfigOutcome WrongUsage(const CLI::App& app, const std::string& why) {
  return {true, kExitUsage, why + " (`" + app.get_name() + " --help` explains)"};
}

}  // namespace

ConfigOutcome ParseCommandLine(CLI::App& app, const std::vector<std::string>& arguments,
                               const std::function<Status()>& interpret) {
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // as CLI::App::parse wants them
  std::ostringstream out, errors;
  try {
    app.parse(reversed);
  } catch (const CLI::Success& help) {
    app.exit(help, out, errors);
    return {true, 0, out.str()};
  } catch (const CLI::ParseError& error) {
    return WrongUsage(app, error.what());
  }
  const Status good = interpret();
  return good.ok() ? ConfigOutcome() : WrongUsage(app, std::string(good.message()));
}

int PrintOutcome(const ConfigOutcome& outcome) {
  const bool asked_for = outcome.exit_code == 0;
  std::fprintf(asked_for ? stdout : stderr, "%s%s", outcome.text.c_str(), asked_for ? "" : "\n");
  return outcome.exit_code;
}

Status RunDaemon(const char* component, LogLevel level, const std::function<Status()>& serve) {
  SetLogLevel(level);
  gpr_set_log_function(LogForGrpc);
  Status served = serve();
  if (!served.ok())
    Log(LogLevel::kError, component, "cannot go on",
        {{"code", StatusCodeName(served.code())}, {"why", std::string(served.message())}});
  return served;
}

Result<EndSignals> EndSignals::Take() {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, signal);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  Fd fd(signalfd(-1, &set, SFD_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, "signalfd");
  return EndSignals(std::move(fd));
}

int EndSignals::Read() const {
  signalfd_siginfo info{};
  const bool whole = read(fd_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info);
  return whole && info.ssi_signo != SIGHUP ? static_cast<int>(info.ssi_signo) : 0;
}

}  // namespace stasis
