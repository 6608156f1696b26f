// Devices, their primary contexts, and peer access.
#include <cstring>

#include "core.h"

using namespace emu;

namespace {
Device *deviceAt(int ordinal) {
  return ordinal >= 0 && ordinal < (int)machine.devices.size() ? machine.devices[ordinal].get() : nullptr;
}

bool canAccess(int from, int to) { return from != to && !machine.noPeer.count({from, to}); }

bool isContext(const Context *context) {
  for (const auto &known : machine.contexts)
    if (known.get() == context) return true;
  return false;
}
} // namespace

EMU_API cuInit(unsigned flags) {
  ENTER(cuInit, Entry::Nothing);
  if (flags) return INVALID_VALUE;
  if (machine.devices.empty()) return NO_DEVICE;
  machine.initialized = true;
  return SUCCESS;
}

EMU_API cuDriverGetVersion(int *version) {
  ENTER(cuDriverGetVersion, Entry::Nothing);
  *version = machine.driverVersion;
  return SUCCESS;
}

EMU_API cuDeviceGetCount(int *count) {
  ENTER(cuDeviceGetCount, Entry::Driver);
  *count = (int)machine.devices.size();
  return SUCCESS;
}

EMU_API cuDeviceGet(int *device, int ordinal) {
  ENTER(cuDeviceGet, Entry::Driver);
  if (!deviceAt(ordinal)) return INVALID_DEVICE;
  *device = ordinal;
  return SUCCESS;
}

EMU_API cuDeviceGetName(char *name, int capacity, int ordinal) {
  ENTER(cuDeviceGetName, Entry::Driver);
  const Device *device = deviceAt(ordinal);
  if (!device) return INVALID_DEVICE;
  snprintf(name, capacity, "%s", device->name.c_str());
  return SUCCESS;
}

EMU_API cuDeviceGetPCIBusId(char *text, int capacity, int ordinal) {
  ENTER(cuDeviceGetPCIBusId, Entry::Driver);
  const Device *device = deviceAt(ordinal);
  if (!device) return INVALID_DEVICE;
  snprintf(text, capacity, "%s", device->pciBusId.c_str());
  return SUCCESS;
}

static int giveUuid(unsigned char *bytes, int ordinal) {
  if (!deviceAt(ordinal)) return INVALID_DEVICE;
  for (int i = 0; i < 16; i++) bytes[i] = (unsigned char)(0xE0 + i);
  bytes[15] = (unsigned char)ordinal;
  return SUCCESS;
}

EMU_API cuDeviceGetUuid(unsigned char *bytes, int ordinal) {
  ENTER(cuDeviceGetUuid, Entry::Driver);
  return giveUuid(bytes, ordinal);
}

EMU_API cuDeviceGetUuid_v2(unsigned char *bytes, int ordinal) {
  ENTER(cuDeviceGetUuid_v2, Entry::Driver);
  return giveUuid(bytes, ordinal);
}

EMU_API cuDeviceTotalMem_v2(size_t *bytes, int ordinal) {
  ENTER(cuDeviceTotalMem_v2, Entry::Driver);
  const Device *device = deviceAt(ordinal);
  if (!device) return INVALID_DEVICE;
  *bytes = device->totalBytes;
  return SUCCESS;
}

EMU_API cuDeviceGetAttribute(int *value, int attribute, int ordinal) {
  ENTER(cuDeviceGetAttribute, Entry::Driver);
  const Device *device = deviceAt(ordinal);
  if (!device) return INVALID_DEVICE;
  unsigned domain = 0, bus = 0, slot = 0;
  sscanf(device->pciBusId.c_str(), "%x:%x:%x", &domain, &bus, &slot);
  const std::map<int, int> values = {
      {1, 1024}, // MAX_THREADS_PER_BLOCK
      {2, 1024},
      {3, 1024},
      {4, 64},
      {5, 0x7fffffff},
      {6, 65535},
      {7, 65535},
      {8, 48 << 10}, // MAX_SHARED_MEMORY_PER_BLOCK
      {10, 32},      // WARP_SIZE
      {16, device->multiprocessors},
      {19, 1}, // CAN_MAP_HOST_MEMORY
      {33, (int)bus},
      {34, (int)slot},
      {36, 2619000}, // MEMORY_CLOCK_RATE, kHz
      {37, 6144},    // GLOBAL_MEMORY_BUS_WIDTH, bits
      {38, 50 << 20},
      {39, 2048},
      {40, 3}, // ASYNC_ENGINE_COUNT
      {41, 1}, // UNIFIED_ADDRESSING
      {50, (int)domain},
      {75, device->major},
      {76, device->minor},
      {81, 228 << 10},
      {88, 0},      // PAGEABLE_MEMORY_ACCESS
      {91, 1},      // CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
      {97, 232448}, // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
      {99, 1},      // HOST_REGISTER_SUPPORTED
      {102, 1},     // VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
      {113, 0},     // READ_ONLY_HOST_REGISTER_SUPPORTED
      {115, 1},     // MEMORY_POOLS_SUPPORTED
      {134, device->numaNode},
  };
  const auto found = values.find(attribute);
  *value = found == values.end() ? 0 : found->second;
  return SUCCESS;
}

EMU_API cuDevicePrimaryCtxRetain(Context **context, int ordinal) {
  ENTER(cuDevicePrimaryCtxRetain, Entry::Driver);
  Device *device = deviceAt(ordinal);
  if (!device) return INVALID_DEVICE;
  if (device->lost) return device->lost;
  Context *primary = machine.contexts[ordinal].get();
  primary->retained++;
  *context = primary;
  return SUCCESS;
}

EMU_API cuDevicePrimaryCtxRelease_v2(int ordinal) {
  ENTER(cuDevicePrimaryCtxRelease_v2, Entry::Driver);
  if (!deviceAt(ordinal)) return INVALID_DEVICE;
  Context *primary = machine.contexts[ordinal].get();
  if (primary->retained == 0) return INVALID_CONTEXT;
  if (--primary->retained == 0) forceContext(primary);
  return SUCCESS;
}

EMU_API cuDevicePrimaryCtxSetFlags_v2(int ordinal, unsigned flags) {
  ENTER(cuDevicePrimaryCtxSetFlags_v2, Entry::Driver);
  if (!deviceAt(ordinal)) return INVALID_DEVICE;
  if (flags & ~0x1fu) return INVALID_VALUE;
  machine.contexts[ordinal]->flags = flags;
  return SUCCESS;
}

EMU_API cuDevicePrimaryCtxGetState(int ordinal, unsigned *flags, int *active) {
  ENTER(cuDevicePrimaryCtxGetState, Entry::Driver);
  if (!deviceAt(ordinal)) return INVALID_DEVICE;
  *flags = machine.contexts[ordinal]->flags;
  *active = machine.contexts[ordinal]->retained > 0;
  return SUCCESS;
}

// Frees everything that the context had, and clears its poison.
EMU_API cuDevicePrimaryCtxReset_v2(int ordinal) {
  ENTER(cuDevicePrimaryCtxReset_v2, Entry::Driver);
  if (!deviceAt(ordinal)) return INVALID_DEVICE;
  Context *primary = machine.contexts[ordinal].get();
  forceContext(primary);
  std::vector<u64> own;
  for (const auto &entryOf : machine.allocations)
    if (entryOf.second.owner == primary) own.push_back(entryOf.first);
  for (const u64 address : own) removeAllocation(address);
  dropModules(primary);
  dropGraphs(primary);
  for (auto stream = machine.streams.begin(); stream != machine.streams.end();)
    stream = (*stream)->context == primary ? machine.streams.erase(stream) : std::next(stream);
  for (auto event = machine.events.begin(); event != machine.events.end();)
    event = (*event)->context == primary ? machine.events.erase(event) : std::next(event);
  primary->peers.clear();
  primary->legacyStream = nullptr;
  primary->poison = 0;
  return SUCCESS;
}

EMU_API cuCtxSetCurrent(Context *context) {
  ENTER(cuCtxSetCurrent, Entry::Driver);
  if (context && (!isContext(context) || !context->retained)) return INVALID_CONTEXT;
  current = context;
  return SUCCESS;
}

EMU_API cuCtxGetCurrent(Context **context) {
  ENTER(cuCtxGetCurrent, Entry::Driver);
  *context = current;
  return SUCCESS;
}

EMU_API cuCtxGetDevice(int *ordinal) {
  ENTER(cuCtxGetDevice, Entry::CurrentContext);
  *ordinal = current->device->ordinal;
  return SUCCESS;
}

EMU_API cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  ENTER(cuCtxGetStreamPriorityRange, Entry::CurrentContext);
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return SUCCESS;
}

EMU_API cuDeviceCanAccessPeer(int *can, int device, int peer) {
  ENTER(cuDeviceCanAccessPeer, Entry::Driver);
  if (!deviceAt(device) || !deviceAt(peer)) return INVALID_DEVICE;
  *can = canAccess(device, peer);
  return SUCCESS;
}

EMU_API cuDeviceGetP2PAttribute(int *value, int attribute, int device, int peer) {
  ENTER(cuDeviceGetP2PAttribute, Entry::Driver);
  if (!deviceAt(device) || !deviceAt(peer) || device == peer) return INVALID_DEVICE;
  const bool can = canAccess(device, peer);
  switch (attribute) {
  case 1: // PERFORMANCE_RANK: 0 is the fastest
    *value = machine.nvlink.count({device, peer}) ? 0 : 1;
    return SUCCESS;
  case 2: // ACCESS_SUPPORTED
    *value = can;
    return SUCCESS;
  case 3: // NATIVE_ATOMIC_SUPPORTED: over NVLink
    *value = can && machine.nvlink.count({device, peer});
    return SUCCESS;
  case 4:
    *value = can;
    return SUCCESS;
  default:
    return INVALID_VALUE;
  }
}

// One direction only: the current device may reach the peer's memory.
EMU_API cuCtxEnablePeerAccess(Context *peer, unsigned flags) {
  ENTER(cuCtxEnablePeerAccess, Entry::CurrentContext);
  if (flags) return INVALID_VALUE;
  if (!isContext(peer) || peer == current) return INVALID_CONTEXT;
  if (!canAccess(current->device->ordinal, peer->device->ordinal)) return PEER_ACCESS_UNSUPPORTED;
  return current->peers.insert(peer).second ? SUCCESS : PEER_ACCESS_ALREADY_ENABLED;
}

EMU_API cuCtxDisablePeerAccess(Context *peer) {
  ENTER(cuCtxDisablePeerAccess, Entry::CurrentContext);
  return current->peers.erase(peer) ? SUCCESS : PEER_ACCESS_NOT_ENABLED;
}
