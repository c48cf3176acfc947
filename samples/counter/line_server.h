// Serves lines of text to any number of clients on the loopback interface, all in one thread.
#pragma once

#include <stdint.h>

#include <functional>
#include <map>
#include <string>

namespace counter {

class LineServer {
 public:
  enum class Next { kGoOn, kStop };

  // Answers one line (without its line feed) by setting *reply (likewise).
  using Handler = std::function<Next(const std::string& line, std::string* reply)>;

  // Listens on 127.0.0.1; port 0 lets the system choose. Ends the program when the port is taken.
  explicit LineServer(uint16_t port);
  LineServer(const LineServer&) = delete;
  LineServer& operator=(const LineServer&) = delete;
  ~LineServer();

  uint16_t port() const { return port_; }

  // Serves until the handler says kStop. A client that sends an endless line, or does not read its replies,
  // is dropped; the others are not held up.
  void Run(const Handler& handler);

 private:
  void Accept();
  Next Serve(int client, const Handler& handler);
  Next AnswerLines(int client, const Handler& handler);
  void Drop(int client);

  int listener_;
  uint16_t port_;
  std::map<int, std::string> clients_;  // received but not yet answered, by socket
};

}  // namespace counter
