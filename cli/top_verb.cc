// `stasis top`: the terminal.
#define NCURSES_NOMACROS
#include <ncurses.h>
// Names of others, too.
#undef OK
#undef TRUE
#undef FALSE

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "cli/agent_verbs.h"
#include "cli/follow.h"
#include "cli/node_choice.h"
#include "cli/top_source.h"

namespace stasis {
namespace {

enum Colour : short { kPlain = 0, kTitle = 1, kFocus = 2, kTrouble = 3 };

int64_t NowMs() {
  auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

// The terminal is as it was before once the object is gone.
class Screen {
 public:
  Screen() {
    initscr();
    cbreak();
    noecho();
    curs_set(0);
    keypad(stdscr, true);
    nodelay(stdscr, true);
    if (!has_colors()) return;
    start_color();
    use_default_colors();
    init_pair(kTitle, COLOR_CYAN, -1);
    init_pair(kFocus, COLOR_BLACK, COLOR_CYAN);
    init_pair(kTrouble, COLOR_RED, -1);
  }
  ~Screen() { endwin(); }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  void Draw(const std::vector<TopNode>& nodes, TopView* view) {
    erase();
    int width = getmaxx(stdscr), height = getmaxy(stdscr);
    std::vector<TopLine> lines = TopLines(nodes, view, width, height - 1, NowMs());
    for (size_t row = 0; row < lines.size(); row++) {
      attrset(AttributesOf(lines[row].kind));
      mvaddnstr(static_cast<int>(row), 0, lines[row].text.c_str(), width);
    }
    attrset(A_DIM);
    const char* keys =
        view->stopped ? "stopped; Space goes on   q quit" : "q quit   Tab part   j k move   Space stop";
    mvaddnstr(height - 1, 0, keys, width);
    refresh();
  }

 private:
  static int AttributesOf(TopLine::Kind kind) {
    switch (kind) {
      case TopLine::Kind::kTitle:
        return static_cast<int>(A_BOLD) | COLOR_PAIR(kTitle);
      case TopLine::Kind::kFocusedTitle:
        return static_cast<int>(A_BOLD) | COLOR_PAIR(kFocus);
      case TopLine::Kind::kTrouble:
        return COLOR_PAIR(kTrouble);
      default:
        return static_cast<int>(A_NORMAL);
    }
  }
};

// False: the user wants to leave.
bool TakeKeys(TopView* view) {
  for (int key = getch(); key != ERR; key = getch()) {
    switch (key) {
      case 'q':
      case 'Q':
        return false;
      case '\t':
        view->NextPart();
        break;
      case 'j':
      case KEY_DOWN:
        view->Move(1);
        break;
      case 'k':
      case KEY_UP:
        view->Move(-1);
        break;
      case KEY_NPAGE:
        view->Move(10);
        break;
      case KEY_PPAGE:
        view->Move(-10);
        break;
      case ' ':
        view->stopped = !view->stopped;
        break;
      default:
        break;
    }
  }
  return true;
}

Status Show(const std::vector<std::string>& endpoints) {
  ASSIGN_OR_RETURN(SignalSource signals, SignalSource::Create());
  TopSource source(endpoints);
  std::vector<TopNode> nodes = source.Take();
  TopView view;
  Screen screen;
  for (;;) {
    screen.Draw(nodes, &view);
    pollfd waits[] = {
        {STDIN_FILENO, POLLIN, 0}, {signals.fd(), POLLIN, 0}, {view.stopped ? -1 : source.fd(), POLLIN, 0}};
    // A terminal that has changed its size interrupts.
    if (poll(waits, 3, -1) < 0 && errno != EINTR) return ErrnoStatus(errno, "poll");
    if (signals.Next() != 0 || (waits[0].revents & (POLLHUP | POLLERR)) != 0) return Status();
    if (!TakeKeys(&view)) return Status();
    if (waits[2].revents != 0) nodes = source.Take();
  }
}

std::vector<std::string> Split(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

int TellOnce(const std::vector<std::string>& endpoints, Context& context) {
  std::vector<TopNode> nodes;
  for (const std::string& endpoint : endpoints) nodes.push_back(AskTopNode(endpoint));
  return context.reporter.Done({{"nodes", TopDocument(nodes)}}, TopText(nodes, NowMs()));
}

}  // namespace

int TopVerb(const Options& options, Context& context) {
  std::vector<std::string> endpoints = Split(NamedNode(options));
  if (endpoints.empty() && AnswersLocally(context.folders)) endpoints = {LocalNode(context.folders)};
  if (endpoints.empty()) {
    return context.reporter.Fail(Status(StatusCode::kUnavailable, "no agent runs here"),
                                 "start stasisd, or name one with --node");
  }
  if (context.reporter.json() || isatty(STDOUT_FILENO) == 0 || isatty(STDIN_FILENO) == 0) {
    return TellOnce(endpoints, context);
  }
  Status status = Show(endpoints);
  return status.ok() ? kExitOk : context.reporter.Fail(status);
}

}  // namespace stasis
