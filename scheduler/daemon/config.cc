#include "scheduler/daemon/config.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>

#include "base/duration.h"
#include "scheduler/policy.h"

#ifndef STASIS_VERSION
#error "the build tells the version"
#endif

namespace stasis::scheduler {
namespace {

constexpr char kAbout[] =
    "The scheduler of a cluster: whose jobs run on which devices, by way of the nodes' agents.";

constexpr char kFooter[] = R"(Examples:
  stasis-schedd
  stasis-schedd --listen unix:/run/stasis/schedd.sock --listen 0.0.0.0:7471 --policy astraea --lease 15m \
    --tls-ca ca.pem --tls-cert schedd.pem --tls-key schedd.key

Agents join with `stasisd --join HOST:PORT`. SIGTERM and SIGINT end it in good order; jobs run on, and the next
stasis-schedd with the same state folder takes them up. Its log is on standard error, one JSON object a line.
docs/schedd.md says how it works.

Environment:
  STASIS_STATE_DIR   the parent of the default of --state (default: /var/lib/stasis for root, else ~/.local/state/stasis)
  STASIS_RUN_DIR     for the socket (default: /run/stasis for root, else $XDG_RUNTIME_DIR/stasis or /tmp/stasis-UID)
  STASIS_TLS_CA, STASIS_TLS_CERT, STASIS_TLS_KEY   where --tls-... is not given)";

struct Texts {
  std::vector<std::string> listen;
  std::string web, metrics;
  bool web_clear = false;
  std::string lease = "15m", node_timeout = "30s", checkpoint_interval = "10m", settle = "1m",
              image_wait = "10m", pause_timeout = "5m", keep_ended = "7d", log_level = "info";
};

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string StateFolder() {
  std::string state = Variable("STASIS_STATE_DIR");
  if (!state.empty()) return state + "/schedd";
  if (geteuid() == 0) return "/var/lib/stasis/schedd";
  state = Variable("XDG_STATE_HOME");
  return (state.empty() ? Variable("HOME") + "/.local/state" : state) + "/stasis/schedd";
}

std::string RunFolder() {
  const std::string run = Variable("STASIS_RUN_DIR");
  if (!run.empty()) return run;
  if (geteuid() == 0) return "/run/stasis";
  const std::string runtime = Variable("XDG_RUNTIME_DIR");
  return runtime.empty() ? "/tmp/stasis-" + std::to_string(geteuid()) : runtime + "/stasis";
}

Result<Time> Milliseconds(const std::string& text) {
  ASSIGN_OR_RETURN(const Duration time, ParseLongDuration(text));
  return std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
}

// "0": never, or not at all.
Result<Time> MillisecondsOrNone(const std::string& text) {
  if (text == "0") return Time{0};
  return Milliseconds(text);
}

// The page has no TLS and asks nobody who he is.
Result<Endpoint> PageEndpoint(const Texts& texts) {
  ASSIGN_OR_RETURN(Endpoint endpoint, ParseEndpoint(texts.web));
  if (endpoint.unix_socket) return Status(StatusCode::kInvalidArgument, "--web: HOST:PORT");
  if (texts.web_clear || endpoint.loopback()) return endpoint;
  return Status(StatusCode::kInvalidArgument,
                "--web: others would read there in the clear what happens; --web-clear allows it");
}

Status CheckMetrics(const std::string& text) {
  if (text.empty()) return Status();
  const Result<Endpoint> endpoint = ParseEndpoint(text);
  if (endpoint.ok() && !endpoint->unix_socket) return Status();
  return Status(StatusCode::kInvalidArgument, "--metrics: HOST:PORT is expected");
}

Status Interpret(const Texts& texts, SchedulerConfig* config) {
  for (const std::string& text : texts.listen) {
    ASSIGN_OR_RETURN(const Endpoint endpoint, ParseEndpoint(text));
    config->listen.push_back(endpoint);
  }
  if (config->listen.empty()) {
    ASSIGN_OR_RETURN(const Endpoint endpoint, ParseEndpoint("unix:" + RunFolder() + "/schedd.sock"));
    config->listen.push_back(endpoint);
  }
  if (!texts.web.empty()) {
    ASSIGN_OR_RETURN(config->web, PageEndpoint(texts));
  }
  RETURN_IF_ERROR(CheckMetrics(texts.metrics));
  config->metrics = texts.metrics;
  if (config->state.empty()) config->state = StateFolder();
  if (!config->state.starts_with('/'))
    return Status(StatusCode::kInvalidArgument, "--state: an absolute path");
  ASSIGN_OR_RETURN(config->lease, Milliseconds(texts.lease));
  ASSIGN_OR_RETURN(config->node_timeout, ParseDuration(texts.node_timeout));
  ASSIGN_OR_RETURN(config->settle, Milliseconds(texts.settle));
  ASSIGN_OR_RETURN(config->image_wait, MillisecondsOrNone(texts.image_wait));
  ASSIGN_OR_RETURN(config->pause_timeout, MillisecondsOrNone(texts.pause_timeout));
  ASSIGN_OR_RETURN(config->checkpoint_interval, MillisecondsOrNone(texts.checkpoint_interval));
  ASSIGN_OR_RETURN(config->keep_ended, Milliseconds(texts.keep_ended));
  config->log_level = LogLevelByName(texts.log_level).value_or(LogLevel::kInfo);
  return Status();
}

void AddOptions(CLI::App& app, Texts& texts, SchedulerConfig& config) {
  app.set_version_flag("--version", "stasis-schedd " STASIS_VERSION);
  app.footer(kFooter);
  app.add_option("--state", config.state, "folder of schedd.db (default: the state folder's schedd/)")
      ->type_name("FOLDER");
  app.add_option("--listen", texts.listen,
                 "unix:/PATH or HOST:PORT; may be repeated (default: unix:RUN/schedd.sock)")
      ->type_name("ENDPOINT")
      ->allow_extra_args(false);
  app.add_option("--tls-ca", config.tls.ca, "who signs the certificates of the others, PEM")
      ->type_name("FILE");
  app.add_option("--tls-cert", config.tls.certificate,
                 "its own certificate, of the role stasis-scheduler, PEM")
      ->type_name("FILE");
  app.add_option("--tls-key", config.tls.key, "its key, PEM, readable by its owner alone")->type_name("FILE");
  app.add_option("--web", texts.web, "serve the page of the cluster there, on loopback (default: not)")
      ->type_name("HOST:PORT");
  app.add_flag("--web-clear", texts.web_clear,
               "also on an address that others reach: whoever does sees the page, in the clear");
  app.add_option("--metrics", texts.metrics, "serve Prometheus there (default: not)")->type_name("HOST:PORT");
  std::vector<std::string> policies(PolicyNames().begin(), PolicyNames().end());
  app.add_option("--policy", config.policy, PolicyList() + " (default astraea)")
      ->check(CLI::IsMember(policies))
      ->type_name("NAME");
  app.add_option("--lease", texts.lease, "how long a job keeps its devices at least (default 15m)")
      ->type_name("TIME");
  app.add_option("--node-timeout", texts.node_timeout,
                 "how long a node may be silent before its jobs come back elsewhere (default 30s)")
      ->type_name("TIME");
  app.add_option("--checkpoint-interval", texts.checkpoint_interval,
                 "between images of a job that does not say; 0: none (default 10m)")
      ->type_name("TIME");
  app.add_option("--image-wait", texts.image_wait,
                 "how long a job whose images are all on nodes that are not reached waits for them before it "
                 "begins anew; 0: not (default 10m)")
      ->type_name("TIME");
  app.add_option("--pause-timeout", texts.pause_timeout,
                 "how long a job may take to pause before it runs on and others are asked; 0: for ever "
                 "(default 5m)")
      ->type_name("TIME");
  app.add_option("--settle", texts.settle,
                 "how long two jobs share devices before it is judged whether that pays (default 1m)")
      ->type_name("TIME");
  app.add_option("--keep-ended", texts.keep_ended, "how long jobs are on record after their end (default 7d)")
      ->type_name("TIME");
  app.add_option("--compact-after", config.compact_after,
                 "after so many facts the database is made small again (default 20000)")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 40))
      ->type_name("N");
  app.add_option("--log-level", texts.log_level, "the least that is logged: debug, info, warning, error")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}))
      ->type_name("LEVEL");
}

}  // namespace

ConfigOutcome ParseConfig(const std::vector<std::string>& arguments, SchedulerConfig* config) {
  CLI::App app(kAbout, "stasis-schedd");
  app.get_formatter()->column_width(34);
  config->tls = TlsFromEnvironment();
  Texts texts;
  AddOptions(app, texts, *config);
  return ParseCommandLine(app, arguments, [&] { return Interpret(texts, config); });
}

void VisitCommandLine(const std::function<void(const CLI::App&)>& visit) {
  CLI::App app(kAbout, "stasis-schedd");
  SchedulerConfig config;
  Texts texts;
  AddOptions(app, texts, config);
  visit(app);
}

}  // namespace stasis::scheduler
