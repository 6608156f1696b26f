// Graphs, as captured from streams and used by the graph calls.
#pragma once
#include "core.h"

namespace emu {

struct GraphNode {
  // The stream of the capture that it was submitted to; nodes of one branch are in order.
  int branch = 0;
  std::vector<int> after;
  Task task;
  // Of a copy or fill, the devices whose memory it touches, -1 for the host: an update may change addresses, and not these.
  std::vector<int> devices;
  // Waits for (or records) an event outside of the graph whenever the graph is launched.
  Event *externalWait = nullptr;
  Event *externalRecord = nullptr;
};

struct Graph {
  std::vector<GraphNode> nodes;
  int branches = 0;
  Context *context = nullptr;
};

struct GraphExec {
  Graph graph;
  Context *context = nullptr;
  // Stand-ins for the streams of the capture.
  std::vector<std::shared_ptr<Stream>> branches;
};

struct Capture {
  std::unique_ptr<Graph> graph{new Graph};
  Stream *origin = nullptr;
  int mode = 0;
  u64 thread = 0;
  bool invalid = false;
  std::set<Stream *> streams;
  // For each branch: its last node (-1: none), and what its next node has to wait for.
  std::vector<int> last;
  std::vector<std::vector<int>> pending;
};

// Adds a stream to a capture; its branch's next node comes after `after` (-1: nothing).
void join(const std::shared_ptr<Capture> &capture, Stream &stream, int after);
int captureTask(Stream &stream, Task task);
u64 threadNumber();

} // namespace emu
