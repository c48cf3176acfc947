// What `stasis top` shows, apart from the terminal.
#ifndef CLI_TOP_MODEL_H_
#define CLI_TOP_MODEL_H_

#include <array>
#include <string>
#include <vector>

#include "coordinator/node/layout.h"
#include "stasis/v1/agent.pb.h"

namespace stasis {

// One agent and what it has told last.
struct TopNode {
  std::string endpoint;
  std::string error;  // why nothing newer is known; empty: it answers
  v1::NodeInfo info;
  v1::DevicesResponse devices;
  std::vector<v1::Job> jobs;
  std::vector<v1::Operation> operations;  // the newest first
};

enum class TopPart { kNodes, kDevices, kJobs, kOperations };
inline constexpr size_t kTopParts = 4;

// What the user looks at.
struct TopView {
  TopPart focus = TopPart::kJobs;
  std::array<size_t, kTopParts> first{};  // row that stands at the top of each part
  bool stopped = false;

  void NextPart() { focus = static_cast<TopPart>((static_cast<size_t>(focus) + 1) % kTopParts); }
  void Move(int rows);
};

struct TopLine {
  enum class Kind { kTitle, kFocusedTitle, kRow, kTrouble };
  Kind kind = Kind::kRow;
  std::string text;
};

// At most `height` lines of at most `width` characters. Each part gets what it needs while there is room, at
// least its title and a row; `view.first` is brought back to where rows are. `now_ms`: since 1970.
std::vector<TopLine> TopLines(const std::vector<TopNode>& nodes, TopView* view, int width, int height,
                              int64_t now_ms);

// All of it as text without an end, and as a document.
std::string TopText(const std::vector<TopNode>& nodes, int64_t now_ms);
Json TopDocument(const std::vector<TopNode>& nodes);

}  // namespace stasis

#endif  // CLI_TOP_MODEL_H_
