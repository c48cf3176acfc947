// softgpud: owns the devices of one node. Parses its options, listens, says that it is ready, serves.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/raw_log.h"
#include "softgpu/device/autostart.h"
#include "softgpu/device/client.h"
#include "softgpu/device/config.h"
#include "softgpu/device/server.h"

namespace {

struct CommandLine {
  softgpu::Server::Options server;
  std::string memory = "4GiB";
  std::string topology = "all";
  double slice_ms = 5;
  double idle_exit_s = 0;
  int ready_fd = -1;
};

void AddOptions(CLI::App& app, CommandLine& line) {
  softgpu::NodeConfig& node = line.server.node;
  app.add_option("--gpus", node.gpus, "number of devices")->envname("SOFTGPU_GPUS")->capture_default_str();
  app.add_option("--memory", line.memory, "memory per device, as 512MiB or 2GiB")
      ->envname("SOFTGPU_MEMORY")
      ->capture_default_str();
  app.add_option("--name", node.device_name, "name of the devices")
      ->envname("SOFTGPU_NAME")
      ->capture_default_str();
  app.add_option("--node", node.node_name, "name of the node")
      ->envname("SOFTGPU_NODE")
      ->capture_default_str();
  app.add_option("--sms", node.sm_count, "multiprocessors reported per device")
      ->envname("SOFTGPU_SMS")
      ->capture_default_str();
  app.add_option("--clock-mhz", node.clock_mhz, "clock rate reported")
      ->envname("SOFTGPU_CLOCK_MHZ")
      ->capture_default_str();
  app.add_option("--socket", line.server.socket_path,
                 "where to listen (default: $SOFTGPU_SOCKET, else below $XDG_RUNTIME_DIR, else below /tmp)");
  app.add_option("--h2d-gbps", node.h2d_gbps, "host to device bandwidth in GB/s, 0 = no limit")
      ->envname("SOFTGPU_H2D_GBPS");
  app.add_option("--d2h-gbps", node.d2h_gbps, "device to host bandwidth")->envname("SOFTGPU_D2H_GBPS");
  app.add_option("--d2d-gbps", node.d2d_gbps, "bandwidth inside a device")->envname("SOFTGPU_D2D_GBPS");
  app.add_option("--peer-gbps", node.peer_gbps, "bandwidth between two devices")
      ->envname("SOFTGPU_PEER_GBPS");
  app.add_option("--topology", line.topology, "pairs with peer access: all, none, or as 0-1,2-3")
      ->envname("SOFTGPU_TOPOLOGY")
      ->capture_default_str();
  app.add_option("--slice-ms", line.slice_ms, "time slice of a device that several processes want")
      ->envname("SOFTGPU_SLICE_MS")
      ->capture_default_str();
  app.add_option("--idle-exit", line.idle_exit_s, "seconds without a user after which to exit, 0 = never")
      ->check(CLI::Range(0.0, 1e6));
  app.add_option("--ready-fd", line.ready_fd, "descriptor that gets one byte when the daemon listens");
}

std::chrono::nanoseconds Seconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds));
}

// What the options mean, beyond their syntax.
stasis::Status Interpret(CommandLine& line) {
  softgpu::NodeConfig& node = line.server.node;
  ASSIGN_OR_RETURN(node.memory_bytes, softgpu::ParseSize(line.memory));
  ASSIGN_OR_RETURN(node.topology, softgpu::ParseTopology(line.topology));
  // Outside this range the conversion below has no meaning; CheckConfig names the limits.
  node.slice =
      line.slice_ms > 0 && line.slice_ms < 1e6 ? Seconds(line.slice_ms / 1e3) : stasis::Duration::zero();
  line.server.idle_exit = Seconds(line.idle_exit_s);
  if (line.server.socket_path.empty()) line.server.socket_path = softgpu::DefaultSocketPath();
  return softgpu::CheckConfig(node);
}

int Complain(const std::string& text, int exit_code) {
  std::fprintf(stderr, "softgpud: %s\n", text.c_str());
  return exit_code;
}

// The variables that took part, because a wrong value in one of them is easily overlooked.
std::string FromEnvironment(const CLI::App& app) {
  std::string text;
  for (const CLI::Option* option : app.get_options()) {
    const char* value = option->get_envname().empty() ? nullptr : std::getenv(option->get_envname().c_str());
    if (value != nullptr) text += (text.empty() ? "" : " ") + option->get_envname() + "=" + value;
  }
  return text.empty() ? "" : " (environment: " + text + ")";
}

int Parse(CLI::App& app, int argc, char** argv, CommandLine& line, bool* done) {
  *done = true;
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return Complain(error.what() + FromEnvironment(app), 2);
  }
  stasis::Status status = Interpret(line);
  if (!status.ok()) return Complain(std::string(status.message()) + FromEnvironment(app), 2);
  *done = false;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  stasis::SetRawLogName("softgpud");
  CommandLine line;
  CLI::App app("softgpud: the devices of one node, as a driver's kernel half would own them");
  AddOptions(app, line);
  bool done = false;
  int exit_code = Parse(app, argc, argv, line, &done);
  if (done) return exit_code;

  auto server = softgpu::Server::Create(line.server);
  if (!server.ok()) return Complain(std::string(server.status().message()), 1);
  if (line.ready_fd >= 0) {
    bool told = write(line.ready_fd, &softgpu::kReadyByte, 1) == 1;
    if (!told) return Complain("nobody reads the descriptor of --ready-fd", 1);
    // The standard descriptors may be the same pipe, and stay.
    if (line.ready_fd > STDERR_FILENO) close(line.ready_fd);
  }
  stasis::Status status = (*server)->Run();
  if (!status.ok()) return Complain(status.ToString(), 1);
  return 0;
}
