// The machine that the emulated driver pretends to drive. One lock guards all of it: calls come from any thread, and a call that
// waits does the waited-for work itself, on the thread that waits.
#pragma once
#include <cstdint>
#include <cstdio>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace emu {

typedef uint64_t u64;
typedef uint32_t u32;

const u64 page = 4096;

enum Status {
  SUCCESS = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  NOT_INITIALIZED = 3,
  DEVICE_UNAVAILABLE = 46,
  NO_DEVICE = 100,
  INVALID_DEVICE = 101,
  INVALID_IMAGE = 200,
  INVALID_CONTEXT = 201,
  PEER_ACCESS_UNSUPPORTED = 217,
  FILE_NOT_FOUND = 301,
  INVALID_HANDLE = 400,
  ILLEGAL_STATE = 401,
  NOT_FOUND = 500,
  NOT_READY = 600,
  ILLEGAL_ADDRESS = 700,
  LAUNCH_OUT_OF_RESOURCES = 701,
  PEER_ACCESS_ALREADY_ENABLED = 704,
  PEER_ACCESS_NOT_ENABLED = 705,
  HOST_MEMORY_ALREADY_REGISTERED = 712,
  HOST_MEMORY_NOT_REGISTERED = 713,
  LAUNCH_FAILED = 719,
  NOT_SUPPORTED = 801,
  CAPTURE_UNSUPPORTED = 900,
  CAPTURE_INVALIDATED = 901,
  CAPTURE_UNMATCHED = 903,
  CAPTURE_UNJOINED = 904,
  CAPTURE_ISOLATION = 905,
  CAPTURE_WRONG_THREAD = 908,
  GRAPH_UPDATE_FAILED = 910,
};
// Index: status. Gives nullptr for a number that the driver does not know.
const char *statusName(int status);

struct Stream;
struct Context;
struct Capture;

// How far each stream has got, as far as the owner of the clock knows.
struct Clock {
  std::vector<u64> at;
  u64 get(size_t stream) const { return stream < at.size() ? at[stream] : 0; }
  void set(size_t stream, u64 seq) {
    if (at.size() <= stream) at.resize(stream + 1);
    if (at[stream] < seq) at[stream] = seq;
  }
  void join(const Clock &other) {
    if (at.size() < other.at.size()) at.resize(other.at.size());
    for (size_t i = 0; i < other.at.size(); i++)
      if (at[i] < other.at[i]) at[i] = other.at[i];
  }
};

// Bytes [lo, hi) that an operation reads or writes.
struct Access {
  u64 lo, hi;
  bool write;
};

struct Function;

// A kernel with its arguments, copied at the call as the driver does.
struct Launch {
  Function *function = nullptr;
  u32 grid[3] = {1, 1, 1}, block[3] = {1, 1, 1}, sharedBytes = 0;
  std::vector<std::vector<unsigned char>> values;
  // Where the caller told the exact bytes that this launch touches.
  bool rangesKnown = false;
  std::vector<Access> ranges;
};

// What a caller asked for, before it has a place in a stream.
struct Task {
  std::string name;
  // For comparing graphs: 'kernel', 'copy', 'fill', 'host', 'library', 'wait', 'empty'.
  std::string kind;
  std::vector<Access> accesses;
  std::shared_ptr<Launch> launch;
  // Does the work on the CPU. A failure poisons the context.
  std::function<int(Context *)> run;
  bool hostFunction = false;
};

struct Point {
  std::shared_ptr<Stream> stream;
  u64 seq = 0;
};

struct Operation {
  u64 seq;
  Task task;
  std::vector<Point> after;
};

// One record of an event: what a wait refers to, also when the event is recorded again later.
struct Record {
  Point point;
  Clock clock;
  u64 ns = 0;
};

struct Stream : std::enable_shared_from_this<Stream> {
  size_t id = 0;
  Context *context = nullptr;
  unsigned flags = 0;
  int priority = 0;
  bool legacy = false, destroyed = false, ofGraph = false;
  std::string label;
  // Submitted so far; executed so far.
  u64 submitted = 0, done = 0;
  std::deque<Operation> pending;
  // What the next operation has to wait for.
  std::vector<Point> after;
  Clock clock;
  std::shared_ptr<Capture> capture;
  int captureBranch = -1;
  bool running = false;
};

struct Event {
  u64 id = 0;
  Context *context = nullptr;
  unsigned flags = 0;
  std::shared_ptr<Record> record;
  // Set instead where the event was recorded in a stream that is being captured.
  std::shared_ptr<Capture> capture;
  int captureNode = -1;
};

struct Device {
  int ordinal = 0;
  std::string name = "Emulated GPU", pciBusId, uuid;
  u64 totalBytes = 256u << 20, usedBytes = 0, peakBytes = 0;
  int major = 9, minor = 0, multiprocessors = 132, pciSwitch = 0, numaNode = 0;
  int lost = 0;
  u64 nextAddress = 0;
};

struct Context {
  Device *device = nullptr;
  int retained = 0;
  unsigned flags = 0;
  // Sticky: what every later call gives.
  int poison = 0;
  std::set<Context *> peers;
  std::shared_ptr<Stream> legacyStream;
};

struct Allocation {
  enum Kind { DeviceMemory, Pinned, Registered, Mapped } kind = DeviceMemory;
  u64 lo = 0, bytes = 0;
  // Of the mapping with its guard pages.
  u64 mapLo = 0, mapBytes = 0;
  // -1 for host memory.
  int device = -1;
  // The context whose reset frees it.
  Context *owner = nullptr;
  unsigned flags = 0;
  // Of VMM mappings: which devices were given access.
  std::set<int> access;
  u64 handle = 0;
  bool isHost() const { return kind == Pinned || kind == Registered; }
};

struct Fault {
  std::string message;
};

struct Machine {
  std::recursive_mutex lock;
  bool initialized = false, configured = false;
  int driverVersion = 13000;
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<std::unique_ptr<Context>> contexts;
  std::set<std::pair<int, int>> noPeer, nvlink;
  bool failOnRace = false, verbose = false;
  // Kernels and products are counted and checked, and compute nothing, where this is false.
  bool computes = true;
  // 'late': only what is needed; 'early': all that can run; 'random': a new choice at every force.
  enum Hostility { Late, Random, Early } hostility = Random;
  std::mt19937_64 random{1};
  u64 seed = 1;

  std::map<u64, Allocation> allocations;
  // Sub-allocations that the engine declared: address to bytes.
  std::map<u64, u64> declared;

  std::set<std::shared_ptr<Stream>> streams;
  std::vector<size_t> freeStreamIds;
  size_t nextStreamId = 0;
  std::vector<u64> lastSeqOfId;
  std::set<Event *> events;
  u64 nextEventId = 1;
  u64 clockNs = 1;
  // What the host knows to have ended.
  Clock host;
  int globalCaptures = 0;

  // The call, and how often it works, before one ends the process as if it had been killed.
  std::pair<std::string, u64> endAt;

  // The defects of this machine, by name: see the README.
  std::set<std::string> defects;
  bool hasDefect(const std::string &name) const { return defects.count(name) > 0; }

  // How often each call was made.
  std::map<std::string, u64> calls;
  u64 operations = 0, launches = 0, products = 0, pageableCopies = 0, racesFound = 0;
  // Bytes copied, by source and target.
  struct Copied {
    u64 toDevice = 0, toHost = 0, onDevice = 0, acrossDevices = 0;
  } copied;
  // Launches and products that were given addresses of host memory to read.
  u64 kernelsReadingHost = 0, productsReadingHost = 0;
  std::vector<std::string> races, unrecordedWaits, faults, freesInUse;
};
// Never destroyed: a thread may still be at work when the process ends.
extern Machine &machine;
extern thread_local Context *current;

// ---- control.cpp
void configure(const char *json);
void ensureConfigured();

// ---- memory.cpp
// The live allocation that holds an address; one past its end counts where `end` says so.
Allocation *find(u64 address, bool end = false);
// Whether a device may touch it: its own memory, a peer's with access enabled, pinned host memory.
bool reachable(Context *context, const Allocation &allocation, std::string &why);
// What bytes a pointer argument may touch, from the declared sub-allocations, else to the allocation's end.
u64 extentEnd(u64 address, const Allocation &allocation);
std::string describe(u64 address);
// Checks the bytes between the end of an allocation and its guard page.
bool slackIntact(const Allocation &allocation);
int makeAllocation(Device &device, u64 bytes, u64 *address);
int removeAllocation(u64 address);
size_t countAllocations(Allocation::Kind kind);

// ---- streams.cpp
std::shared_ptr<Stream> makeStream(Context *context, unsigned flags, const std::string &label);
void retireStream(const std::shared_ptr<Stream> &stream);
// The stream of a caller's handle; 0, 1 and 2 are the legacy stream of the current context. Empty when there is none.
std::shared_ptr<Stream> streamOf(u64 handle, int &status);
// Puts a task at the end of a stream, or into the graph that captures it.
int submit(Stream &stream, Task task);
// Runs the stream up to an operation, and what that needs from other streams.
void runThrough(Stream &stream, u64 seq);
// The same for a caller that waits: other streams may run ahead, by the hostility, and then the host knows that it ended.
int force(Stream &stream, u64 seq, const Clock &clock);
int forceContext(Context *context);
// Runs some work, as if time had passed; used by queries.
void stir(Stream &stream);
void poison(Context *context, int status, const std::string &message);

// ---- checker.cpp
// Records an operation's bytes; false when it conflicts with an operation that it is not ordered after.
bool check(const Stream &stream, u64 seq, const Task &task, const Clock &clock);
void forgetAccesses(u64 lo, u64 hi);
// Whether work that may still be running, as far as the host knows, touches the bytes.
bool inUse(u64 lo, u64 hi, std::string &what);

// ---- launch.cpp
int prepareLaunch(Context *context, Launch &launch, void **kernelParams, void **extra);
Task launchTask(std::shared_ptr<Launch> launch);
// For the reset of a context.
void dropModules(Context *context);
void dropGraphs(Context *context);
size_t countModules();
size_t countGraphs();
size_t countGraphExecs();
size_t countPhysical();

// ---- guard.cpp
// Runs work; a bad address does not end the process, but gives false and the address.
bool guarded(const std::function<void()> &work, u64 &badAddress);

// ---- entry.cpp
// Begins every call: takes the lock, and gives the injected failure, or the one that follows from the context's state.
struct Entry {
  std::unique_lock<std::recursive_mutex> hold;
  int status = SUCCESS;
  enum Needs { Nothing, Driver, CurrentContext };
  Entry(const char *name, Needs needs, bool unsafeInCapture = false);
};
void failNext(const char *name, int status, int after);
void invalidateCaptures();

} // namespace emu

#define EMU_API extern "C" __attribute__((visibility("default"))) int
#define EMU_EXPORT extern "C" __attribute__((visibility("default")))
#define ENTER(name, ...)                                       \
  emu::Entry entry(#name, __VA_ARGS__);                        \
  if (entry.status) return entry.status
