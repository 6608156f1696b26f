// Streams and events. A stream is a queue that does nothing by itself: operations run when a call waits for them or queries them,
// together with just what they depend on, or with whatever else the API would allow to run before, by the seed.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <thread>

#include "graph.h"

namespace emu {

namespace {
// No call waits for a host function: a thread runs them in the end, as a GPU would.
std::condition_variable_any &hostFunctionsSubmitted = *new std::condition_variable_any;
std::deque<Point> &hostFunctionPoints = *new std::deque<Point>;
bool progressStarted = false;

void progress() {
  for (;;) {
    std::unique_lock<std::recursive_mutex> hold(machine.lock);
    hostFunctionsSubmitted.wait(hold, [] { return !hostFunctionPoints.empty(); });
    const Point point = hostFunctionPoints.front();
    hostFunctionPoints.pop_front();
    hold.unlock();
    // Gives the caller time to submit more, so that different work runs early.
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    hold.lock();
    runThrough(*point.stream, point.seq);
  }
}

void noteHostFunction(const Point &point) {
  hostFunctionPoints.push_back(point);
  if (!progressStarted) {
    progressStarted = true;
    std::thread(progress).detach();
  }
  hostFunctionsSubmitted.notify_one();
}
} // namespace

std::shared_ptr<Stream> makeStream(Context *context, unsigned flags, const std::string &label) {
  auto stream = std::make_shared<Stream>();
  if (machine.freeStreamIds.empty()) {
    stream->id = machine.nextStreamId++;
    machine.lastSeqOfId.push_back(0);
  } else {
    stream->id = machine.freeStreamIds.back();
    machine.freeStreamIds.pop_back();
  }
  // Numbers continue after those of the identity's last owner, so its work stays earlier.
  stream->submitted = stream->done = machine.lastSeqOfId[stream->id];
  stream->context = context;
  stream->flags = flags;
  stream->label = label.empty() ? "stream " + std::to_string(stream->id) + " of device " + std::to_string(context->device->ordinal)
                                : label;
  machine.streams.insert(stream);
  return stream;
}

void retireStream(const std::shared_ptr<Stream> &stream) {
  machine.lastSeqOfId[stream->id] = stream->submitted;
  // Only work that the host knows has ended may be forgotten.
  if (machine.host.get(stream->id) >= stream->submitted) machine.freeStreamIds.push_back(stream->id);
  machine.streams.erase(stream);
}

std::shared_ptr<Stream> streamOf(u64 handle, int &status) {
  if (handle <= 2) {
    status = INVALID_CONTEXT;
    if (!current) return nullptr;
    if (!current->legacyStream) {
      current->legacyStream =
          makeStream(current, 0, "the null stream of device " + std::to_string(current->device->ordinal));
      current->legacyStream->legacy = true;
    }
    return current->legacyStream;
  }
  Stream *wanted = (Stream *)handle;
  for (const auto &stream : machine.streams)
    if (stream.get() == wanted && !stream->destroyed && !stream->ofGraph) {
      status = stream->context->device->lost ? stream->context->device->lost : stream->context->poison;
      return status ? nullptr : stream;
    }
  status = INVALID_HANDLE;
  return nullptr;
}

void poison(Context *context, int status, const std::string &message) {
  if (!context->poison) context->poison = status;
  machine.faults.push_back(message);
  fprintf(stderr, "emulated driver: %s\n", message.c_str());
}

int submit(Stream &stream, Task task) {
  if (stream.capture) return captureTask(stream, std::move(task));
  const bool hostFunction = task.hostFunction;
  // The null stream waits for all blocking streams of its context, and they for it.
  if (stream.legacy || !(stream.flags & 1)) {
    for (const auto &other : machine.streams) {
      if (other.get() == &stream || other->context != stream.context || (other->flags & 1) || other->ofGraph) continue;
      if (stream.legacy || other->legacy) {
        stream.after.push_back({other, other->submitted});
        stream.clock.join(other->clock);
      }
    }
  }
  const u64 seq = ++stream.submitted;
  machine.operations++;
  stream.clock.join(machine.host);
  stream.clock.set(stream.id, seq);
  const bool clean = check(stream, seq, task, stream.clock);
  stream.pending.push_back({seq, std::move(task), std::move(stream.after)});
  stream.after.clear();
  if (hostFunction) noteHostFunction({stream.shared_from_this(), seq});
  return clean || !machine.failOnRace ? SUCCESS : LAUNCH_FAILED;
}

void runThrough(Stream &stream, u64 seq) {
  const auto self = stream.shared_from_this();
  while (stream.done < seq && !stream.pending.empty()) {
    // While an operation runs (a host function that calls back), nothing else of its stream runs.
    if (stream.running) return;
    stream.running = true;
    Operation operation = std::move(stream.pending.front());
    stream.pending.pop_front();
    for (const Point &point : operation.after) runThrough(*point.stream, point.seq);
    Context *context = stream.context;
    if (operation.task.run && !context->poison && !context->device->lost) {
      const int status = operation.task.run(context);
      if (status && !context->poison)
        poison(context, status, operation.task.name + " on " + stream.label + " failed with " + std::to_string(status));
    }
    machine.clockNs += 1000;
    stream.done = operation.seq;
    stream.running = false;
  }
  if (stream.destroyed && stream.pending.empty()) retireStream(self);
}

namespace {
// Runs other work, as the API allows, before the work that the caller waits for.
void disturb(Stream &wanted) {
  if (machine.hostility == Machine::Late) return;
  std::vector<std::shared_ptr<Stream>> others(machine.streams.begin(), machine.streams.end());
  others.erase(std::remove_if(others.begin(), others.end(),
                              [&](const std::shared_ptr<Stream> &other) { return other.get() == &wanted || other->pending.empty(); }),
               others.end());
  std::sort(others.begin(), others.end(), [](const auto &a, const auto &b) { return a->id < b->id; });
  std::shuffle(others.begin(), others.end(), machine.random);
  for (const auto &other : others) {
    const u64 choice = machine.hostility == Machine::Early ? 3 : machine.random() % 4;
    if (choice < 2 || other->pending.empty()) continue;
    const u64 count = choice == 3 ? other->pending.size() : 1 + machine.random() % other->pending.size();
    runThrough(*other, other->pending.front().seq + count - 1);
  }
}
} // namespace

int force(Stream &stream, u64 seq, const Clock &clock) {
  const auto keep = stream.shared_from_this();
  disturb(stream);
  runThrough(stream, seq);
  machine.host.join(clock);
  return stream.context->device->lost ? stream.context->device->lost : stream.context->poison;
}

int forceContext(Context *context) {
  std::vector<std::shared_ptr<Stream>> all(machine.streams.begin(), machine.streams.end());
  std::sort(all.begin(), all.end(), [](const auto &a, const auto &b) { return a->id < b->id; });
  if (machine.hostility != Machine::Late) std::shuffle(all.begin(), all.end(), machine.random);
  for (const auto &stream : all)
    if (stream->context == context) {
      runThrough(*stream, stream->submitted);
      machine.host.join(stream->clock);
    }
  return context->device->lost ? context->device->lost : context->poison;
}

void stir(Stream &stream) {
  disturb(stream);
  if (stream.pending.empty()) return;
  // A query makes some progress, sometimes none, but a loop of queries always ends.
  if (machine.hostility != Machine::Early && machine.random() % 3 == 0) return;
  const u64 count = 1 + machine.random() % (2 * stream.pending.size());
  const auto keep = stream.shared_from_this();
  runThrough(stream, std::min(stream.submitted, stream.pending.front().seq + count - 1));
}

} // namespace emu

using namespace emu;

EMU_API cuStreamCreateWithPriority(Stream **handle, unsigned flags, int priority) {
  ENTER(cuStreamCreateWithPriority, Entry::CurrentContext);
  if (flags > 1) return INVALID_VALUE;
  const auto stream = makeStream(current, flags, "");
  stream->priority = priority;
  *handle = stream.get();
  return SUCCESS;
}

EMU_API cuStreamCreate(Stream **handle, unsigned flags) {
  ENTER(cuStreamCreate, Entry::CurrentContext);
  if (flags > 1) return INVALID_VALUE;
  *handle = makeStream(current, flags, "").get();
  return SUCCESS;
}

EMU_API cuStreamDestroy_v2(u64 handle) {
  ENTER(cuStreamDestroy_v2, Entry::Driver);
  if (handle <= 2) return INVALID_HANDLE;
  for (const auto &stream : machine.streams)
    if (stream.get() == (Stream *)handle && !stream->destroyed && !stream->ofGraph) {
      // Returns at once; what was submitted still happens.
      const auto keep = stream;
      keep->destroyed = true;
      if (keep->pending.empty()) retireStream(keep);
      return SUCCESS;
    }
  return INVALID_HANDLE;
}

EMU_API cuStreamSynchronize(u64 handle) {
  ENTER(cuStreamSynchronize, Entry::Driver);
  int status;
  const auto stream = streamOf(handle, status);
  if (!stream) return status;
  if (stream->capture) {
    stream->capture->invalid = true;
    return CAPTURE_UNSUPPORTED;
  }
  if (stream->legacy) return forceContext(stream->context);
  return force(*stream, stream->submitted, stream->clock);
}

EMU_API cuStreamQuery(u64 handle) {
  ENTER(cuStreamQuery, Entry::Driver);
  int status;
  const auto stream = streamOf(handle, status);
  if (!stream) return status;
  if (stream->capture) {
    stream->capture->invalid = true;
    return CAPTURE_UNSUPPORTED;
  }
  stir(*stream);
  if (stream->context->poison) return stream->context->poison;
  if (stream->done < stream->submitted) return NOT_READY;
  machine.host.join(stream->clock);
  return SUCCESS;
}

EMU_API cuStreamGetPriority(u64 handle, int *priority) {
  ENTER(cuStreamGetPriority, Entry::Driver);
  int status;
  const auto stream = streamOf(handle, status);
  if (!stream) return status;
  *priority = stream->priority;
  return SUCCESS;
}

EMU_API cuCtxSynchronize() {
  ENTER(cuCtxSynchronize, Entry::CurrentContext, true);
  return forceContext(current);
}

EMU_API cuCtxSynchronize_v2(Context *context) {
  ENTER(cuCtxSynchronize_v2, Entry::Driver, true);
  if (!context) context = current;
  return context ? forceContext(context) : INVALID_CONTEXT;
}

EMU_API cuLaunchHostFunc(u64 handle, void (*function)(void *), void *data) {
  ENTER(cuLaunchHostFunc, Entry::Driver);
  int status;
  const auto stream = streamOf(handle, status);
  if (!stream) return status;
  Task task;
  task.name = "a host function";
  task.kind = "host";
  task.hostFunction = true;
  task.run = [function, data](Context *) {
    function(data);
    return SUCCESS;
  };
  return submit(*stream, task);
}
