// Capture and graphs. A captured stream becomes a branch: its nodes are in order, and waits between streams become edges.
// A launch submits every node anew, so that the happens-before check sees each run of a graph like any other work.
#include <cstring>
#include <algorithm>
#include <pthread.h>

#include "graph.h"

namespace emu {

namespace {
std::set<Graph *> graphs;
std::set<GraphExec *> execs;
std::set<std::shared_ptr<Capture>> captures;

void leave(const std::shared_ptr<Capture> &capture) {
  for (Stream *stream : capture->streams) {
    stream->capture = nullptr;
    stream->captureBranch = -1;
  }
  for (Event *event : machine.events)
    if (event->capture == capture) {
      event->capture = nullptr;
      event->record = nullptr;
    }
  if (capture->mode == 0) machine.globalCaptures--;
  captures.erase(capture);
}

bool sameShape(const Graph &one, const Graph &other) {
  if (one.nodes.size() != other.nodes.size() || one.branches != other.branches) return false;
  for (size_t i = 0; i < one.nodes.size(); i++) {
    const GraphNode &a = one.nodes[i], &b = other.nodes[i];
    if (a.branch != b.branch || a.after != b.after || a.task.kind != b.task.kind || a.devices != b.devices) return false;
  }
  return true;
}

int launchGraph(GraphExec &exec, Stream &stream) {
  if (stream.capture) return NOT_SUPPORTED;
  while ((int)exec.branches.size() < exec.graph.branches) {
    auto branch = makeStream(stream.context, 1, "branch " + std::to_string(exec.branches.size()) + " of a graph on device " +
                                                    std::to_string(stream.context->device->ordinal));
    branch->ofGraph = true;
    exec.branches.push_back(branch);
  }
  // A launch comes after the work in its stream, and after the last launch of the same graph.
  Task begin;
  begin.name = "the start of a graph";
  begin.kind = "empty";
  int status = submit(stream, begin);
  for (const auto &branch : exec.branches) {
    branch->after.push_back({stream.shared_from_this(), stream.submitted});
    for (const auto &other : exec.branches) {
      branch->after.push_back({other, other->submitted});
      branch->clock.join(other->clock);
    }
    branch->clock.join(stream.clock);
  }
  struct Place {
    Point point;
    Clock clock;
  };
  std::vector<Place> places;
  for (const GraphNode &node : exec.graph.nodes) {
    const auto &branch = exec.branches[node.branch];
    for (const int earlier : node.after) {
      branch->after.push_back(places[earlier].point);
      branch->clock.join(places[earlier].clock);
    }
    if (node.externalWait && node.externalWait->record) {
      branch->after.push_back(node.externalWait->record->point);
      branch->clock.join(node.externalWait->record->clock);
    } else if (node.externalWait) {
      machine.unrecordedWaits.push_back("a graph waited for event " + std::to_string(node.externalWait->id) +
                                        ", which had never been recorded");
    }
    Task task = node.task.launch ? launchTask(node.task.launch) : node.task;
    std::shared_ptr<Record> record;
    if (node.externalRecord) {
      record = std::make_shared<Record>();
      task.run = [record](Context *) {
        record->ns = machine.clockNs;
        return (int)SUCCESS;
      };
    }
    const int submitted = submit(*branch, task);
    if (submitted && !status) status = submitted;
    places.push_back({{branch, branch->submitted}, branch->clock});
    if (record) {
      record->point = places.back().point;
      record->clock = places.back().clock;
      node.externalRecord->record = record;
    }
  }
  for (const auto &branch : exec.branches) {
    stream.after.push_back({branch, branch->submitted});
    stream.clock.join(branch->clock);
  }
  Task end;
  end.name = "the end of a graph";
  end.kind = "empty";
  const int ended = submit(stream, end);
  return status ? status : ended;
}
} // namespace

void dropGraphs(Context *context) {
  for (auto graph = graphs.begin(); graph != graphs.end();) {
    if ((*graph)->context != context) {
      graph++;
      continue;
    }
    delete *graph;
    graph = graphs.erase(graph);
  }
  for (auto exec = execs.begin(); exec != execs.end();) {
    if ((*exec)->context != context) {
      exec++;
      continue;
    }
    for (const auto &branch : (*exec)->branches) machine.streams.erase(branch);
    delete *exec;
    exec = execs.erase(exec);
  }
}

size_t countGraphs() { return graphs.size(); }
size_t countGraphExecs() { return execs.size(); }
u64 threadNumber() { return (u64)pthread_self(); }

void invalidateCaptures() {
  for (const auto &capture : captures)
    if (capture->mode == 0) capture->invalid = true;
}

void join(const std::shared_ptr<Capture> &capture, Stream &stream, int after) {
  stream.capture = capture;
  stream.captureBranch = capture->graph->branches++;
  capture->streams.insert(&stream);
  capture->last.push_back(-1);
  capture->pending.emplace_back();
  if (after >= 0) capture->pending.back().push_back(after);
}

int captureTask(Stream &stream, Task task) {
  const auto capture = stream.capture;
  if (capture->invalid) return CAPTURE_INVALIDATED;
  const int branch = stream.captureBranch;
  GraphNode node;
  node.branch = branch;
  node.after = std::move(capture->pending[branch]);
  capture->pending[branch].clear();
  if (task.kind == "copy" || task.kind == "fill")
    for (const Access &access : task.accesses) {
      const Allocation *allocation = find(access.lo);
      node.devices.push_back(allocation ? allocation->device : -1);
    }
  node.task = std::move(task);
  capture->graph->nodes.push_back(std::move(node));
  capture->last[branch] = (int)capture->graph->nodes.size() - 1;
  return SUCCESS;
}

} // namespace emu

using namespace emu;

EMU_API cuStreamBeginCapture_v2(u64 handle, int mode) {
  ENTER(cuStreamBeginCapture_v2, Entry::Driver);
  int status;
  const auto stream = streamOf(handle, status);
  if (!stream) return status;
  if (mode < 0 || mode > 2) return INVALID_VALUE;
  if (stream->legacy) return CAPTURE_UNSUPPORTED;
  if (stream->capture) return ILLEGAL_STATE;
  auto capture = std::make_shared<Capture>();
  capture->origin = stream.get();
  capture->mode = mode;
  capture->graph->context = stream->context;
  capture->thread = threadNumber();
  captures.insert(capture);
  if (mode == 0) machine.globalCaptures++;
  join(capture, *stream, -1);
  return SUCCESS;
}

EMU_API cuStreamIsCapturing(u64 handle, int *state) {
  ENTER(cuStreamIsCapturing, Entry::Driver);
  int status;
  const auto stream = streamOf(handle, status);
  if (!stream) return status;
  *state = !stream->capture ? 0 : stream->capture->invalid ? 2 : 1;
  return SUCCESS;
}

EMU_API cuStreamEndCapture(u64 handle, Graph **result) {
  ENTER(cuStreamEndCapture, Entry::Driver);
  *result = nullptr;
  int status;
  const auto stream = streamOf(handle, status);
  if (!stream) return status;
  const auto capture = stream->capture;
  if (!capture) return ILLEGAL_STATE;
  if (capture->origin != stream.get()) return CAPTURE_UNMATCHED;
  // On the thread where it began, unless it is RELAXED.
  if (capture->mode != 2 && capture->thread != threadNumber()) return CAPTURE_WRONG_THREAD;
  // Every branch must lead back to the stream at which the capture began.
  std::vector<bool> joined(capture->graph->nodes.size());
  std::vector<int> todo = capture->pending[stream->captureBranch];
  if (capture->last[stream->captureBranch] >= 0) todo.push_back(capture->last[stream->captureBranch]);
  std::vector<int> previous(capture->graph->nodes.size(), -1), last(capture->graph->branches, -1);
  for (size_t i = 0; i < capture->graph->nodes.size(); i++) {
    previous[i] = last[capture->graph->nodes[i].branch];
    last[capture->graph->nodes[i].branch] = (int)i;
  }
  while (!todo.empty()) {
    const int node = todo.back();
    todo.pop_back();
    if (node < 0 || joined[node]) continue;
    joined[node] = true;
    todo.push_back(previous[node]);
    for (const int earlier : capture->graph->nodes[node].after) todo.push_back(earlier);
  }
  const bool allJoined = std::find(joined.begin(), joined.end(), false) == joined.end();
  const bool invalid = capture->invalid;
  leave(capture);
  if (invalid) return CAPTURE_INVALIDATED;
  if (!allJoined) return CAPTURE_UNJOINED;
  *result = capture->graph.release();
  graphs.insert(*result);
  return SUCCESS;
}

EMU_API cuGraphInstantiateWithFlags(GraphExec **result, Graph *graph, unsigned long long flags) {
  ENTER(cuGraphInstantiateWithFlags, Entry::CurrentContext);
  if (!graphs.count(graph)) return INVALID_VALUE;
  if (flags & ~0xfull) return INVALID_VALUE;
  if (machine.hasDefect("graphs")) return NOT_SUPPORTED;
  auto *exec = new GraphExec;
  exec->graph = *graph;
  exec->context = current;
  // It has separate arguments: changes to those of the graph do not affect it, nor the reverse.
  for (GraphNode &node : exec->graph.nodes)
    if (node.task.launch) node.task.launch = std::make_shared<Launch>(*node.task.launch);
  execs.insert(exec);
  *result = exec;
  return SUCCESS;
}

EMU_API cuGraphUpload(GraphExec *exec, u64 handle) {
  ENTER(cuGraphUpload, Entry::Driver);
  int status;
  if (!execs.count(exec)) return INVALID_VALUE;
  return streamOf(handle, status) ? SUCCESS : status;
}

EMU_API cuGraphLaunch(GraphExec *exec, u64 handle) {
  ENTER(cuGraphLaunch, Entry::Driver);
  int status;
  const auto stream = streamOf(handle, status);
  if (!stream) return status;
  return execs.count(exec) ? launchGraph(*exec, *stream) : INVALID_VALUE;
}

EMU_API cuGraphExecUpdate_v2(GraphExec *exec, Graph *graph, u64 *resultInfo) {
  ENTER(cuGraphExecUpdate_v2, Entry::CurrentContext);
  if (!execs.count(exec) || !graphs.count(graph)) return INVALID_VALUE;
  memset(resultInfo, 0, 24);
  if (!sameShape(exec->graph, *graph)) {
    *(u32 *)resultInfo = 2; // TOPOLOGY_CHANGED
    return GRAPH_UPDATE_FAILED;
  }
  exec->graph = *graph;
  for (GraphNode &node : exec->graph.nodes)
    if (node.task.launch) node.task.launch = std::make_shared<Launch>(*node.task.launch);
  return SUCCESS;
}

EMU_API cuGraphDestroy(Graph *graph) {
  ENTER(cuGraphDestroy, Entry::Driver);
  if (!graphs.erase(graph)) return INVALID_VALUE;
  delete graph;
  return SUCCESS;
}

EMU_API cuGraphExecDestroy(GraphExec *exec) {
  ENTER(cuGraphExecDestroy, Entry::Driver);
  if (!execs.erase(exec)) return INVALID_VALUE;
  for (const auto &branch : exec->branches) {
    const auto keep = branch;
    keep->destroyed = true;
    if (keep->pending.empty()) retireStream(keep);
  }
  delete exec;
  return SUCCESS;
}

// A node's handle is its place in the graph, counted from 1: it then also names the node of a graph made from it.
EMU_API cuGraphGetNodes(Graph *graph, u64 *nodes, size_t *count) {
  ENTER(cuGraphGetNodes, Entry::Driver);
  if (!graphs.count(graph)) return INVALID_VALUE;
  for (size_t i = 0; nodes && i < *count; i++) nodes[i] = i < graph->nodes.size() ? i + 1 : 0;
  if (!nodes || *count > graph->nodes.size()) *count = graph->nodes.size();
  return SUCCESS;
}

struct KernelNodeParams {
  Function *function;
  u32 grid[3], block[3], sharedBytes;
  void **kernelParams, **extra;
  void *kernel;
  Context *context;
};
static_assert(sizeof(KernelNodeParams) == 72, "as in cuda.h");

EMU_API cuGraphExecKernelNodeSetParams_v2(GraphExec *exec, u64 node, const KernelNodeParams *params) {
  ENTER(cuGraphExecKernelNodeSetParams_v2, Entry::CurrentContext);
  if (!execs.count(exec) || node == 0 || node > exec->graph.nodes.size()) return INVALID_VALUE;
  GraphNode &target = exec->graph.nodes[node - 1];
  if (!target.task.launch) return INVALID_VALUE;
  auto launch = std::make_shared<Launch>();
  launch->function = params->function;
  memcpy(launch->grid, params->grid, sizeof launch->grid);
  memcpy(launch->block, params->block, sizeof launch->block);
  launch->sharedBytes = params->sharedBytes;
  const int status = prepareLaunch(current, *launch, params->kernelParams, params->extra);
  if (status) return status;
  target.task = launchTask(launch);
  return SUCCESS;
}
