// softgpu-smi: shows a node's devices and processes, and injects faults.
#include <poll.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "softgpu/device/client.h"
#include "softgpu/device/config.h"
#include "softgpu/device/smi_report.h"

namespace {

struct CommandLine {
  std::string socket;
  bool json = false;
  double watch_s = 0;
  bool inject = false;
  uint32_t gpu = 0;
  std::string kind;
};

void AddOptions(CLI::App& app, CommandLine& line) {
  app.add_option("--socket", line.socket, "the daemon's socket (default: as for softgpud)");
  app.add_flag("--json", line.json, "print JSON");
  app.add_option("--watch", line.watch_s, "print again every so many seconds")
      ->check(CLI::Range(0.1, 86400.0));
  app.require_subcommand(0, 1);
  CLI::App* fault = app.add_subcommand("fault", "make a device fail");
  fault->add_option("--gpu", line.gpu, "index of the device")->required();
  fault->add_option("--kind", line.kind, "fell-off-bus, ecc, slow=F, oom-after=N, none, reset")->required();
  fault->fallthrough();
  fault->callback([&line] { line.inject = true; });
}

int Complain(std::string_view text, int exit_code) {
  std::fprintf(stderr, "softgpu-smi: %.*s\n", static_cast<int>(text.size()), text.data());
  return exit_code;
}

stasis::Status Report(softgpu::DeviceClient& client, const CommandLine& line) {
  for (;;) {
    ASSIGN_OR_RETURN(softgpu::Inventory inventory, client.GetInventory());
    std::string text = line.json ? softgpu::JsonReport(inventory) : softgpu::TableReport(inventory);
    if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0) {
      return stasis::ErrnoStatus(errno, "print");
    }
    if (line.watch_s == 0) return stasis::Status();
    (void)poll(nullptr, 0, static_cast<int>(line.watch_s * 1000));
  }
}

int Run(const CommandLine& line) {
  softgpu::Fault fault;
  if (line.inject) {
    stasis::Result<softgpu::Fault> parsed = softgpu::ParseFault(line.kind);
    if (!parsed.ok()) return Complain(parsed.status().message(), 2);
    fault = *parsed;
  }
  softgpu::ConnectOptions options;
  options.socket_path = line.socket;
  options.observer = true;
  auto client = softgpu::DeviceClient::Connect(options, nullptr);
  if (!client.ok()) return Complain(client.status().message(), 1);
  stasis::Status status = line.inject ? (*client)->InjectFault(line.gpu, fault) : Report(**client, line);
  if (!status.ok()) return Complain(status.message(), 1);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine line;
  CLI::App app("softgpu-smi: the devices of a softgpud");
  AddOptions(app, line);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return Complain(error.what(), 2);
  }
  return Run(line);
}
