// What tests call: to configure the machine, to inject failures, and to read the report.
#include <cstring>

#include "core.h"
#include "json.h"

namespace emu {

namespace {
std::string configurationError;

double number(const Json &object, const char *name, double otherwise) {
  const Json *value = object.get(name);
  return value && value->kind == Json::Number ? value->number : otherwise;
}

std::string text(const Json &object, const char *name, const std::string &otherwise) {
  const Json *value = object.get(name);
  return value && value->kind == Json::String ? value->string : otherwise;
}

void addDevice(const Json &description) {
  auto device = std::make_unique<Device>();
  const int ordinal = (int)machine.devices.size();
  device->ordinal = ordinal;
  device->name = text(description, "name", "Emulated GPU");
  device->totalBytes = (u64)number(description, "memoryBytes", 256.0 * (1 << 20));
  device->multiprocessors = (int)number(description, "multiprocessors", 132);
  device->pciSwitch = (int)number(description, "pciSwitch", ordinal / 2);
  device->numaNode = (int)number(description, "numaNode", 0);
  if (const Json *capability = description.get("computeCapability")) {
    if (capability->items.size() != 2) throw std::runtime_error("computeCapability is [major, minor]");
    device->major = (int)capability->items[0].number;
    device->minor = (int)capability->items[1].number;
  }
  char busId[32];
  snprintf(busId, sizeof busId, "0000:%02X:00.0", 16 * (device->pciSwitch + 1) + ordinal % 16);
  device->pciBusId = text(description, "pciBusId", busId);
  // Disjoint ranges of a terabyte, far from where the process has its own memory.
  device->nextAddress = 0x200000000000ull + (u64)ordinal * 0x10000000000ull;
  auto context = std::make_unique<Context>();
  context->device = device.get();
  machine.devices.push_back(std::move(device));
  machine.contexts.push_back(std::move(context));
}

void readNames(const Json *list, std::set<std::string> &into) {
  into.clear();
  if (list)
    for (const Json &name : list->items) into.insert(name.string);
}

void pairs(const Json *list, std::set<std::pair<int, int>> &into) {
  if (!list) return;
  for (const Json &pair : list->items) {
    if (pair.items.size() != 2) throw std::runtime_error("a pair of devices is [from, to]");
    into.insert({(int)pair.items[0].number, (int)pair.items[1].number});
  }
}

std::string list(const std::vector<std::string> &sentences) {
  std::string result = "[";
  for (size_t i = 0; i < sentences.size(); i++) result += (i ? "," : "") + quoted(sentences[i]);
  return result + "]";
}

bool clean() {
  for (const auto &entry : machine.allocations)
    if (entry.second.kind != Allocation::Registered) return false;
  for (const auto &stream : machine.streams)
    if (!stream->legacy) return false;
  return machine.events.empty() && countModules() == 0;
}
} // namespace

void configure(const char *json) {
  const Json root = JsonReader(json).read();
  if (root.kind != Json::Object) throw std::runtime_error("the configuration is not an object");
  machine.configured = true;
  const std::set<std::string> known = {"devices", "peers", "nvlink", "seed", "hostility", "failOnRace", "driverVersion", "verbose", "computes", "defects", "endAt"};
  for (const auto &member : root.members)
    if (!known.count(member.first)) throw std::runtime_error("the configuration has no '" + member.first + "'");
  if (const Json *devices = root.get("devices")) {
    if (!clean()) throw std::runtime_error("devices can be changed only while nothing is allocated");
    machine.contexts.clear();
    machine.devices.clear();
    machine.streams.clear();
    machine.initialized = false;
    machine.noPeer.clear();
    machine.nvlink.clear();
    current = nullptr;
    for (const Json &device : devices->items) addDevice(device);
    machine.defects.clear();
  }
  if (const Json *peers = root.get("peers")) {
    // The listed pairs can reach each other; all others cannot.
    std::set<std::pair<int, int>> can;
    pairs(peers, can);
    machine.noPeer.clear();
    for (int from = 0; from < (int)machine.devices.size(); from++)
      for (int to = 0; to < (int)machine.devices.size(); to++)
        if (from != to && !can.count({from, to})) machine.noPeer.insert({from, to});
  }
  pairs(root.get("nvlink"), machine.nvlink);
  if (const Json *defects = root.get("defects")) readNames(defects, machine.defects);
  machine.seed = (u64)number(root, "seed", (double)machine.seed);
  machine.random.seed(machine.seed);
  const std::string hostility = text(root, "hostility", "");
  if (hostility == "late") machine.hostility = Machine::Late;
  else if (hostility == "random") machine.hostility = Machine::Random;
  else if (hostility == "early") machine.hostility = Machine::Early;
  else if (!hostility.empty()) throw std::runtime_error("hostility is late, random or early");
  if (const Json *fail = root.get("failOnRace")) machine.failOnRace = fail->boolean;
  if (const Json *verbose = root.get("verbose")) machine.verbose = verbose->boolean;
  if (const Json *end = root.get("endAt")) {
    if (end->items.size() != 2) throw std::runtime_error("endAt is [call, how often it works before]");
    machine.endAt = {end->items[0].string, (u64)end->items[1].number};
  }
  const Json *computes = root.get("computes");
  machine.computes = !computes || computes->boolean;
  machine.driverVersion = (int)number(root, "driverVersion", machine.driverVersion);
}

void ensureConfigured() {
  if (machine.configured) return;
  const char *environment = getenv("TURNTABLE_EMULATOR");
  try {
    if (environment) configure(environment);
    if (machine.devices.empty() && !(environment && strstr(environment, "\"devices\""))) configure("{\"devices\":[{}]}");
  } catch (const std::exception &error) {
    fprintf(stderr, "emulated driver: TURNTABLE_EMULATOR: %s\n", error.what());
    machine.configured = true;
  }
}

} // namespace emu

using namespace emu;

// Gives 0, or 1 with the reason in emuLastError().
EMU_API emuConfigure(const char *json) {
  std::unique_lock<std::recursive_mutex> hold(machine.lock);
  try {
    configure(json);
    return 0;
  } catch (const std::exception &error) {
    configurationError = error.what();
    return 1;
  }
}

EMU_EXPORT const char *emuLastError() { return configurationError.c_str(); }

// The call of that name gives `status` once, after it has worked `after` times.
EMU_EXPORT void emuFailNext(const char *name, int status, int after) {
  std::unique_lock<std::recursive_mutex> hold(machine.lock);
  failNext(name, status, after);
}

// The device is gone: calls that use it give `status` from now on (0: it is back).
EMU_EXPORT void emuLoseDevice(int ordinal, int status) {
  std::unique_lock<std::recursive_mutex> hold(machine.lock);
  ensureConfigured();
  if (ordinal >= 0 && ordinal < (int)machine.devices.size()) machine.devices[ordinal]->lost = status;
}

// A sub-allocation: a kernel that is given its address, or one inside it, touches no more than up to its end.
EMU_EXPORT void emuDeclareRange(u64 address, u64 bytes) {
  std::unique_lock<std::recursive_mutex> hold(machine.lock);
  if (bytes) machine.declared[address] = bytes;
}

EMU_EXPORT void emuForgetRange(u64 address) {
  std::unique_lock<std::recursive_mutex> hold(machine.lock);
  machine.declared.erase(address);
}

// Everything seen so far as JSON. The text is valid until this thread's next call.
EMU_EXPORT const char *emuReport() {
  std::unique_lock<std::recursive_mutex> hold(machine.lock);
  thread_local std::string report;
  size_t streams = 0, bytes[4] = {0, 0, 0, 0};
  for (const auto &stream : machine.streams) streams += !stream->legacy && !stream->destroyed && !stream->ofGraph;
  std::vector<std::string> leaks;
  for (const auto &entry : machine.allocations) {
    bytes[entry.second.kind] += entry.second.bytes;
    leaks.push_back(describe(entry.first));
  }
  const auto count = [](const char *name, u64 value) { return quoted(name) + ":" + std::to_string(value); };
  report = "{" + quoted("races") + ":" + list(machine.races) + "," + count("racesFound", machine.racesFound) + "," +
           quoted("unrecordedWaits") + ":" + list(machine.unrecordedWaits) + "," + quoted("faults") + ":" + list(machine.faults) +
           "," + quoted("freesInUse") + ":" + list(machine.freesInUse) + "," + quoted("leaks") + ":" + list(leaks) + "," +
           quoted("live") + ":{" + count("deviceAllocations", countAllocations(Allocation::DeviceMemory)) + "," +
           count("deviceBytes", bytes[Allocation::DeviceMemory]) + "," +
           count("pinnedAllocations", countAllocations(Allocation::Pinned)) + "," + count("pinnedBytes", bytes[Allocation::Pinned]) +
           "," + count("registeredAllocations", countAllocations(Allocation::Registered)) + "," +
           count("registeredBytes", bytes[Allocation::Registered]) + "," +
           count("mappings", countAllocations(Allocation::Mapped)) + "," + count("physical", countPhysical()) + "," +
           count("streams", streams) + "," + count("events", machine.events.size()) + "," + count("modules", countModules()) + "," +
           count("graphs", countGraphs()) + "," + count("graphExecs", countGraphExecs()) + "}," + quoted("devices") + ":[";
  for (size_t i = 0; i < machine.devices.size(); i++)
    report += std::string(i ? "," : "") + "{" + count("usedBytes", machine.devices[i]->usedBytes) + "," +
              count("peakBytes", machine.devices[i]->peakBytes) + "}";
  report += "]," + quoted("calls") + ":{";
  for (const auto &call : machine.calls) report += (call.first == machine.calls.begin()->first ? "" : ",") + count(call.first.c_str(), call.second);
  const Machine::Copied &copied = machine.copied;
  report += "}," + quoted("copied") + ":{" + count("toDevice", copied.toDevice) + "," + count("toHost", copied.toHost) + "," +
            count("onDevice", copied.onDevice) + "," + count("acrossDevices", copied.acrossDevices) + "}," +
            count("operations", machine.operations) + "," + count("launches", machine.launches) + "," +
            count("products", machine.products) + "," + count("kernelsReadingHost", machine.kernelsReadingHost) + "," +
            count("productsReadingHost", machine.productsReadingHost) + "," + count("pageableCopies", machine.pageableCopies) + "," +
            count("seed", machine.seed) + "}";
  return report.c_str();
}

// Forgets what was seen; what is live stays.
EMU_EXPORT void emuForget() {
  std::unique_lock<std::recursive_mutex> hold(machine.lock);
  machine.races.clear();
  machine.racesFound = 0;
  machine.unrecordedWaits.clear();
  machine.faults.clear();
  machine.freesInUse.clear();
  machine.calls.clear();
  machine.operations = machine.launches = machine.products = machine.pageableCopies = 0;
  machine.kernelsReadingHost = machine.productsReadingHost = 0;
  machine.copied = {};
  for (auto &device : machine.devices) device->peakBytes = device->usedBytes;
}

// For the stand-ins of libraries that work on streams: puts their work into the queue. `accesses` is {lo, hi, writes} for each range.
EMU_API emuEnqueue(u64 handle, const char *name, const u64 *accesses, u32 count, int (*run)(void *), void *data, void (*drop)(void *)) {
  std::unique_lock<std::recursive_mutex> hold(machine.lock);
  int status;
  const auto stream = streamOf(handle, status);
  const std::shared_ptr<void> owned(data, drop);
  if (!stream) return status;
  if (stream->context->poison) return stream->context->poison;
  Task task;
  task.name = name;
  task.kind = "library";
  for (u32 i = 0; i < count; i++) task.accesses.push_back({accesses[3 * i], accesses[3 * i + 1], accesses[3 * i + 2] != 0});
  const std::string who = name;
  const std::vector<Access> ranges = task.accesses;
  task.run = [=](Context *context) {
    bool readsHost = false;
    for (const Access &access : ranges) {
      const Allocation *allocation = find(access.lo);
      std::string why;
      if (allocation && allocation->device < 0 && !access.write) readsHost = true;
      if (!allocation || access.hi > allocation->lo + allocation->bytes) why = describe(allocation ? access.hi - 1 : access.lo);
      else if (allocation->isHost() && machine.hasDefect("host-reads-by-library")) why = describe(access.lo);
      else reachable(context, *allocation, why);
      if (!why.empty()) {
        poison(context, ILLEGAL_ADDRESS, who + " touched " + why);
        return (int)ILLEGAL_ADDRESS;
      }
    }
    machine.products++;
    machine.productsReadingHost += readsHost;
    if (!machine.computes) return (int)SUCCESS;
    u64 bad = 0;
    int result = SUCCESS;
    if (!guarded([&] { result = run(owned.get()); }, bad)) {
      poison(context, ILLEGAL_ADDRESS, who + " touched " + describe(bad));
      return (int)ILLEGAL_ADDRESS;
    }
    return result;
  };
  return submit(*stream, task);
}

// For the same libraries: the failure injected for a call of theirs, and the defects of this machine.
EMU_API emuInjected(const char *name) {
  Entry entry(name, Entry::Nothing);
  return entry.status;
}

EMU_API emuHasDefect(const char *name) {
  std::unique_lock<std::recursive_mutex> hold(machine.lock);
  ensureConfigured();
  return machine.hasDefect(name);
}

// Whether a device is current on this thread; its compute capability as 10 * major + minor, or 0.
EMU_API emuCurrentArchitecture() {
  std::unique_lock<std::recursive_mutex> hold(machine.lock);
  return current ? current->device->major * 10 + current->device->minor : 0;
}
