// A server whose state is one number in device memory. Clients connect to 127.0.0.1 and send lines:
//   inc    adds one and answers the new value
//   get    answers the value
//   quit   answers "bye" and ends the server with status 0
// Any other line is answered "error: ...".
#include "counter.h"

#include <stdio.h>

#include "../common/options.h"
#include "line_server.h"

namespace {

class HostCounter : public counter::Counter {
 public:
  uint64_t Increment() override { return ++value_; }
  uint64_t Value() override { return value_; }

 private:
  uint64_t value_ = 0;
};

counter::LineServer::Next Answer(counter::Counter* value, const std::string& line, std::string* reply) {
  using Next = counter::LineServer::Next;
  if (line == "quit") {
    *reply = "bye";
    return Next::kStop;
  }
  if (line == "inc") {
    *reply = std::to_string(value->Increment());
  } else if (line == "get") {
    *reply = std::to_string(value->Value());
  } else {
    *reply = "error: expected inc, get or quit";
  }
  return Next::kGoOn;
}

}  // namespace

int main(int argc, char** argv) {
  int port = 0;
  int device = 0;
  bool reference = false;
  sample::Options options("counts requests on a local socket, in device memory");
  options.Integer("--port", &port, 0, 65535, "TCP port on 127.0.0.1, 0: the system chooses");
  options.Integer("--device", &device, 0, 1023, "CUDA device");
  options.Flag("--reference", &reference, "count on the host, without CUDA");
  options.Parse(argc, argv);

  const std::unique_ptr<counter::Counter> value =
      reference ? std::make_unique<HostCounter>() : counter::MakeDeviceCounter(device);
  counter::LineServer server(static_cast<uint16_t>(port));
  printf("listening on 127.0.0.1:%d\n", server.port());
  server.Run([&](const std::string& line, std::string* reply) { return Answer(value.get(), line, reply); });
  printf("stopped at %llu\n", static_cast<unsigned long long>(value->Value()));
  return 0;
}
