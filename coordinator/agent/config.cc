#include "coordinator/agent/config.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "coordinator/agent/request_checks.h"
#include "coordinator/node/values.h"

#ifndef STASIS_VERSION
#error "the build tells the version"
#endif

namespace stasis {
namespace {

constexpr double kMaxMtbfHours = 876'000;

constexpr char kAbout[] =
    "The agent of a node: its jobs, devices and images for users, schedulers and other agents.";

constexpr char kFooter[] = R"(Examples:
  stasisd
  stasisd --listen unix:/run/stasis/stasisd.sock --metrics 127.0.0.1:9464
  stasisd --listen unix:/run/stasis/stasisd.sock --listen 0.0.0.0:7470 --peer-address node-1:7470 \
    --tls-ca ca.pem --tls-cert node-1.pem --tls-key node-1.key --join login-1:7471

With --join the scheduler reaches this agent by --peer-address, else by the first --listen.

SIGTERM and SIGINT end it in good order: what it has started runs on. Its log is on standard error, one JSON object a
line. docs/agent.md says who may do what.

Environment:
  STASIS_STATE_DIR   records, logs and images (default: /var/lib/stasis for root, else ~/.local/state/stasis)
  STASIS_RUN_DIR     sockets (default: /run/stasis for root, else $XDG_RUNTIME_DIR/stasis or /tmp/stasis-UID)
  STASIS_CRIU        the criu to use
  STASIS_IDENTITY    file that reads images which are encrypted (`stasis images keygen`)
  STASIS_TLS_CA, STASIS_TLS_CERT, STASIS_TLS_KEY   where --tls-... is not given)";

struct Texts {
  std::vector<std::string> listen;
  std::string peer_address, metrics, log_level = "info", patience = "30s";
  double mtbf_hours = 0;
};

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 && name[0] != '\0' ? name : "localhost";
}

// host:port with a port.
Status CheckAddress(const char* option, const std::string& text, bool any_port) {
  if (text.empty()) return Status();
  Result<Endpoint> endpoint = ParseEndpoint(text);
  if (endpoint.ok() && !endpoint->unix_socket && (any_port || endpoint->port > 0)) return Status();
  return Errorf(StatusCode::kInvalidArgument, "%s: HOST:PORT is expected", option);
}

Status CheckJoin(const AgentConfig& config) {
  if (config.join.empty()) return Status();
  RETURN_IF_ERROR(ParseEndpoint(config.join).status());
  if (!config.peer_address.empty()) return Status();
  const std::string& host = config.listen.front().host;
  if (host != "0.0.0.0" && host != "::") return Status();
  return Status(StatusCode::kInvalidArgument,
                "--join: with --peer-address, under which the scheduler finds this agent");
}

Status Interpret(const Texts& texts, const Folders& folders, AgentConfig* config) {
  for (const std::string& text : texts.listen) {
    ASSIGN_OR_RETURN(Endpoint endpoint, ParseEndpoint(text));
    config->listen.push_back(endpoint);
  }
  if (config->listen.empty()) {
    ASSIGN_OR_RETURN(Endpoint endpoint, ParseEndpoint("unix:" + folders.run + "/stasisd.sock"));
    config->listen.push_back(endpoint);
  }
  RETURN_IF_ERROR(CheckAddress("--peer-address", texts.peer_address, false));
  config->peer_address = texts.peer_address;
  RETURN_IF_ERROR(CheckJoin(*config));
  RETURN_IF_ERROR(CheckAddress("--metrics", texts.metrics, true));
  config->metrics = texts.metrics;
  config->log_level = LogLevelByName(texts.log_level).value_or(LogLevel::kInfo);
  ASSIGN_OR_RETURN(config->patience, ParseDuration(texts.patience));
  if (!(texts.mtbf_hours >= 0 && texts.mtbf_hours <= kMaxMtbfHours))  // nor what is no number
    return Status(StatusCode::kInvalidArgument, "--mtbf: hours, a hundred years at most");
  config->mtbf_ms = texts.mtbf_hours * 3600 * 1000;
  if (config->node_name.empty()) config->node_name = HostName();
  return IsNodeName(config->node_name)
             ? Status()
             : Status(StatusCode::kInvalidArgument, "--node-name: that is no name of a node");
}

void AddOptions(CLI::App& app, Texts& texts, AgentConfig& config) {
  app.set_version_flag("--version", "stasisd " STASIS_VERSION);
  app.footer(kFooter);
  app.add_option("--listen", texts.listen,
                 "unix:/PATH or HOST:PORT; may be repeated (default: unix:RUN/stasisd.sock)")
      ->type_name("ENDPOINT")
      ->allow_extra_args(false);
  app.add_option("--peer-address", texts.peer_address, "where other agents and the scheduler reach this one")
      ->type_name("HOST:PORT");
  app.add_option("--join", config.join, "scheduler whose cluster this node belongs to")
      ->type_name("ENDPOINT");
  app.add_option("--tls-ca", config.tls.ca, "who signs the certificates of clients, PEM")->type_name("FILE");
  app.add_option("--tls-cert", config.tls.certificate, "the certificate of this node, PEM")
      ->type_name("FILE");
  app.add_option("--tls-key", config.tls.key, "its key, PEM, readable by its owner alone")->type_name("FILE");
  app.add_option("--metrics", texts.metrics, "serve Prometheus there (default: not)")->type_name("HOST:PORT");
  app.add_option("--node-name", config.node_name, "what this node is called (default: its host name)")
      ->type_name("NAME");
  app.add_option(
         "--mtbf", texts.mtbf_hours,
         "mean time between failures of this node, for intervals that are suggested (default: unknown)")
      ->type_name("HOURS");
  app.add_option(
         "--patience", texts.patience,
         "at the end: time for operations that run before they are left to the next agent (default 30s)")
      ->type_name("TIME");
  app.add_option("--log-level", texts.log_level, "the least that is logged: debug, info, warning, error")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}))
      ->type_name("LEVEL");
}

}  // namespace

ConfigOutcome ParseConfig(const std::vector<std::string>& arguments, const Folders& folders,
                          AgentConfig* config) {
  CLI::App app(kAbout, "stasisd");
  app.get_formatter()->column_width(34);
  config->tls = TlsFromEnvironment();
  Texts texts;
  AddOptions(app, texts, *config);
  return ParseCommandLine(app, arguments, [&] { return Interpret(texts, folders, config); });
}

void VisitCommandLine(const std::function<void(const CLI::App&)>& visit) {
  CLI::App app(kAbout, "stasisd");
  AgentConfig config;
  Texts texts;
  AddOptions(app, texts, config);
  visit(app);
}

}  // namespace stasis
