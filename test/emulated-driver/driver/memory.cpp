// Memory of the virtual GPUs, and pinned host memory. Every allocation is a separate mapping between two guard pages, ends as close to
// the second as its alignment allows, and is full of NaN; addresses are not used twice, so that a stale pointer is noticed.
#include <cstring>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core.h"

namespace emu {

namespace {
// cuMemAlloc promises 256 bytes.
const u64 alignment = 256;
const u64 chunk = 4u << 20;
const unsigned char slackByte = 0xA5;

u64 roundUp(u64 value, u64 unit) { return (value + unit - 1) / unit * unit; }

// A file of NaN whose pages are shared until they are written, so that memory costs nothing until it is used.
int nanFile() {
  static int file = -1;
  if (file < 0) {
    file = (int)syscall(SYS_memfd_create, "emulated-nan", 0);
    std::vector<unsigned char> bytes(chunk, 0xFF);
    if (file < 0 || write(file, bytes.data(), chunk) != (ssize_t)chunk) return -1;
  }
  return file;
}

bool fillWithNan(u64 lo, u64 bytes) {
  if (bytes <= chunk / 64) {
    if (mmap((void *)lo, bytes, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
      return false;
    memset((void *)lo, 0xFF, bytes);
    return true;
  }
  for (u64 done = 0; done < bytes; done += chunk)
    if (mmap((void *)(lo + done), std::min(chunk, bytes - done), PROT_READ | PROT_WRITE, MAP_FIXED | MAP_PRIVATE, nanFile(),
             0) == MAP_FAILED)
      return false;
  return true;
}

// Maps `bytes` between guard pages and gives the address at which they begin.
bool mapGuarded(u64 hint, u64 bytes, Allocation &allocation) {
  const u64 body = roundUp(bytes, page);
  allocation.mapBytes = body + 2 * page;
  void *at = mmap((void *)hint, allocation.mapBytes, PROT_NONE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (hint ? MAP_FIXED_NOREPLACE : 0), -1, 0);
  if (at == MAP_FAILED) return false;
  allocation.mapLo = (u64)at;
  if (!fillWithNan(allocation.mapLo + page, body)) {
    munmap(at, allocation.mapBytes);
    return false;
  }
  allocation.lo = allocation.mapLo + page + body - roundUp(bytes, alignment);
  allocation.bytes = bytes;
  memset((void *)(allocation.lo + bytes), slackByte, roundUp(bytes, alignment) - bytes);
  return true;
}
} // namespace

Allocation *find(u64 address, bool end) {
  auto next = machine.allocations.upper_bound(address);
  if (next == machine.allocations.begin()) return nullptr;
  Allocation &allocation = std::prev(next)->second;
  const u64 offset = address - allocation.lo;
  return offset < allocation.bytes || (end && offset == allocation.bytes) ? &allocation : nullptr;
}

std::string describe(u64 address) {
  char text[160];
  auto next = machine.allocations.upper_bound(address);
  if (next != machine.allocations.begin()) {
    const Allocation &below = std::prev(next)->second;
    const u64 offset = address - below.lo;
    if (offset < below.bytes + (1 << 20)) {
      const char *kinds[] = {"device", "pinned host", "registered host", "mapped device"};
      snprintf(text, sizeof text, "0x%llx, %s%lld bytes %s %s memory of %llu bytes", (unsigned long long)address,
               below.device >= 0 ? "" : "", (long long)(offset < below.bytes ? offset : offset - below.bytes),
               offset < below.bytes ? "into" : "past the end of", kinds[below.kind], (unsigned long long)below.bytes);
      return text;
    }
  }
  snprintf(text, sizeof text, "0x%llx, where no memory is allocated", (unsigned long long)address);
  return text;
}

bool reachable(Context *context, const Allocation &allocation, std::string &why) {
  if (allocation.isHost()) return true;
  const int own = context->device->ordinal;
  if (allocation.kind == Allocation::Mapped) {
    if (allocation.access.count(own)) return true;
    why = "mapped memory that device " + std::to_string(own) + " was not given access to";
    return false;
  }
  if (allocation.device == own) return true;
  for (const Context *peer : context->peers)
    if (peer->device->ordinal == allocation.device) return true;
  why = "memory of device " + std::to_string(allocation.device) + " whose peer access device " + std::to_string(own) +
        " has not enabled";
  return false;
}

u64 extentEnd(u64 address, const Allocation &allocation) {
  auto next = machine.declared.upper_bound(address);
  if (next != machine.declared.begin()) {
    const auto below = std::prev(next);
    if (address - below->first < below->second) return below->first + below->second;
  }
  return allocation.lo + allocation.bytes;
}

bool slackIntact(const Allocation &allocation) {
  if (allocation.kind != Allocation::DeviceMemory && allocation.kind != Allocation::Pinned) return true;
  const u64 end = allocation.mapLo + allocation.mapBytes - page;
  for (u64 at = allocation.lo + allocation.bytes; at < end; at++)
    if (*(const unsigned char *)at != slackByte) return false;
  return true;
}

size_t countAllocations(Allocation::Kind kind) {
  size_t count = 0;
  for (const auto &entry : machine.allocations) count += entry.second.kind == kind;
  return count;
}

int makeAllocation(Device &device, u64 bytes, u64 *address) {
  if (bytes == 0) return INVALID_VALUE;
  // The driver charges a whole number of its alignment units.
  const u64 charged = roundUp(bytes, alignment);
  if (device.usedBytes + charged > device.totalBytes) return OUT_OF_MEMORY;
  Allocation allocation;
  allocation.device = device.ordinal;
  allocation.owner = machine.contexts[device.ordinal].get();
  for (int attempt = 0; !mapGuarded(device.nextAddress, bytes, allocation); attempt++) {
    if (attempt == 8) return OUT_OF_MEMORY;
    device.nextAddress += 1u << 30;
  }
  device.nextAddress = roundUp(allocation.mapLo + allocation.mapBytes, 2u << 20);
  device.usedBytes += charged;
  device.peakBytes = std::max(device.peakBytes, device.usedBytes);
  *address = allocation.lo;
  machine.allocations[allocation.lo] = allocation;
  return SUCCESS;
}

// Pages that were taken away while they were pinned would stay with a real GPU, apart from what the process then has there.
bool hasItsPages(const Allocation &allocation) {
  const u64 lo = allocation.lo / page * page, bytes = roundUp(allocation.lo + allocation.bytes, page) - lo;
  std::vector<unsigned char> resident(bytes / page);
  if (mincore((void *)lo, bytes, resident.data()) != 0) return false;
  for (const unsigned char each : resident)
    if (!(each & 1)) return false;
  return true;
}

int removeAllocation(u64 address) {
  const auto found = machine.allocations.find(address);
  if (found == machine.allocations.end()) return INVALID_VALUE;
  const Allocation allocation = found->second;
  if (!slackIntact(allocation)) machine.faults.push_back("something was written past the end of the memory at " + describe(address));
  if (allocation.kind == Allocation::Registered && !hasItsPages(allocation))
    machine.faults.push_back("pages were given back while they were pinned, at " + describe(address));
  forgetAccesses(allocation.lo, allocation.lo + allocation.bytes);
  if (allocation.kind == Allocation::DeviceMemory)
    machine.devices[allocation.device]->usedBytes -= roundUp(allocation.bytes, alignment);
  for (auto declared = machine.declared.lower_bound(allocation.lo);
       declared != machine.declared.end() && declared->first < allocation.lo + allocation.bytes;)
    declared = machine.declared.erase(declared);
  if (allocation.kind != Allocation::Registered) munmap((void *)allocation.mapLo, allocation.mapBytes);
  machine.allocations.erase(found);
  return SUCCESS;
}

namespace {
// Freeing waits for the work that uses the memory. The real driver does so too, but does not promise it: so it is reported.
int release(u64 address) {
  const Allocation &allocation = machine.allocations.at(address);
  std::string user;
  if (inUse(allocation.lo, allocation.lo + allocation.bytes, user))
    machine.freesInUse.push_back("memory was freed that " + user + " may still be using");
  for (auto &context : machine.contexts) forceContext(context.get());
  return removeAllocation(address);
}
} // namespace

} // namespace emu

using namespace emu;

EMU_API cuMemAlloc_v2(u64 *address, size_t bytes) {
  ENTER(cuMemAlloc_v2, Entry::CurrentContext, true);
  return makeAllocation(*current->device, bytes, address);
}

EMU_API cuMemFree_v2(u64 address) {
  ENTER(cuMemFree_v2, Entry::CurrentContext, true);
  if (address == 0) return SUCCESS;
  const auto found = machine.allocations.find(address);
  if (found == machine.allocations.end() || found->second.kind != Allocation::DeviceMemory) return INVALID_VALUE;
  return release(address);
}

EMU_API cuMemGetInfo_v2(size_t *freeBytes, size_t *totalBytes) {
  ENTER(cuMemGetInfo_v2, Entry::CurrentContext);
  *totalBytes = current->device->totalBytes;
  *freeBytes = current->device->totalBytes - current->device->usedBytes;
  return SUCCESS;
}

EMU_API cuMemHostAlloc(void **address, size_t bytes, unsigned flags) {
  ENTER(cuMemHostAlloc, Entry::CurrentContext, true);
  if (bytes == 0 || flags > 7) return INVALID_VALUE;
  Allocation allocation;
  allocation.kind = Allocation::Pinned;
  allocation.owner = current;
  allocation.flags = flags;
  if (!mapGuarded(0, bytes, allocation)) return OUT_OF_MEMORY;
  *address = (void *)allocation.lo;
  machine.allocations[allocation.lo] = allocation;
  return SUCCESS;
}

EMU_API cuMemFreeHost(void *address) {
  ENTER(cuMemFreeHost, Entry::CurrentContext, true);
  const auto found = machine.allocations.find((u64)address);
  if (found == machine.allocations.end() || found->second.kind != Allocation::Pinned) return INVALID_VALUE;
  return release((u64)address);
}

EMU_API cuMemHostRegister_v2(void *address, size_t bytes, unsigned flags) {
  ENTER(cuMemHostRegister_v2, Entry::CurrentContext, true);
  if (bytes == 0 || flags > 15) return INVALID_VALUE;
  const u64 lo = (u64)address;
  auto next = machine.allocations.lower_bound(lo);
  if (find(lo) || (next != machine.allocations.end() && next->first < lo + bytes)) return HOST_MEMORY_ALREADY_REGISTERED;
  // Pages that cannot be read cannot be pinned either.
  u64 bad = 0;
  volatile unsigned char sum = 0;
  if (!guarded([&] { for (u64 at = lo; at < lo + bytes; at += page) sum += *(const unsigned char *)at; }, bad)) return INVALID_VALUE;
  Allocation allocation;
  allocation.kind = Allocation::Registered;
  allocation.owner = current;
  allocation.lo = lo;
  allocation.bytes = bytes;
  allocation.flags = flags;
  machine.allocations[lo] = allocation;
  return SUCCESS;
}

EMU_API cuMemHostUnregister(void *address) {
  ENTER(cuMemHostUnregister, Entry::CurrentContext, true);
  const auto found = machine.allocations.find((u64)address);
  if (found == machine.allocations.end() || found->second.kind != Allocation::Registered) return HOST_MEMORY_NOT_REGISTERED;
  return release((u64)address);
}

EMU_API cuMemHostGetDevicePointer_v2(u64 *devicePointer, void *address, unsigned flags) {
  ENTER(cuMemHostGetDevicePointer_v2, Entry::CurrentContext);
  const Allocation *allocation = find((u64)address);
  if (flags != 0 || !allocation || allocation->device >= 0) return INVALID_VALUE;
  // Unified addressing: the same address on every device, except for write-combined memory, where it may differ.
  *devicePointer = (u64)address;
  return SUCCESS;
}

EMU_API cuPointerGetAttribute(void *data, int attribute, u64 address) {
  ENTER(cuPointerGetAttribute, Entry::CurrentContext);
  const Allocation *allocation = find(address);
  if (!allocation) return INVALID_VALUE;
  const bool host = allocation->isHost();
  switch (attribute) {
  case 2: // MEMORY_TYPE: HOST 1, DEVICE 2
    *(unsigned *)data = host ? 1 : 2;
    return SUCCESS;
  case 3: // DEVICE_POINTER
    *(u64 *)data = address;
    return SUCCESS;
  case 4: // HOST_POINTER
    if (!host) return INVALID_VALUE;
    *(u64 *)data = address;
    return SUCCESS;
  case 9: // DEVICE_ORDINAL
    *(int *)data = host ? current->device->ordinal : allocation->device;
    return SUCCESS;
  case 11: // RANGE_START_ADDR
    *(u64 *)data = allocation->lo;
    return SUCCESS;
  case 12: // RANGE_SIZE
    *(size_t *)data = allocation->bytes;
    return SUCCESS;
  default:
    return NOT_SUPPORTED;
  }
}

EMU_API cuMemAllocAsync(u64 *address, size_t bytes, u64 streamHandle) {
  ENTER(cuMemAllocAsync, Entry::CurrentContext);
  int status;
  const auto stream = streamOf(streamHandle, status);
  if (!stream) return status;
  return makeAllocation(*stream->context->device, bytes, address);
}

EMU_API cuMemFreeAsync(u64 address, u64 streamHandle) {
  ENTER(cuMemFreeAsync, Entry::CurrentContext);
  int status;
  const auto stream = streamOf(streamHandle, status);
  if (!stream) return status;
  const auto found = machine.allocations.find(address);
  if (found == machine.allocations.end() || found->second.kind != Allocation::DeviceMemory) return INVALID_VALUE;
  Task task;
  task.name = "cuMemFreeAsync";
  task.kind = "free";
  // Like a write: a use of the bytes that does not wait for it is a race.
  task.accesses = {{address, address + found->second.bytes, true}};
  task.run = [address](Context *) { return removeAllocation(address); };
  return submit(*stream, task);
}
