// Virtual memory management: address ranges and physical memory are separate. Physical memory is a file without a name,
// so that it keeps its content while it is mapped here, there or nowhere.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core.h"

using namespace emu;

namespace {
const u64 granularity = 2u << 20;

struct Physical {
  int file = -1, device = 0;
  u64 bytes = 0;
  // The creator's handle counts, and every mapping.
  int references = 1;
};

std::map<u64, Physical> physicals;
std::map<u64, u64> reservations;
u64 nextHandle = 1, nextReservation = 0x300000000000ull;

struct Location {
  int type, id;
};
struct AllocationProp {
  int type, handleTypes;
  Location location;
  void *windows;
  unsigned char compression, rdma;
  unsigned short usage;
  unsigned char reserved[4];
};
static_assert(sizeof(AllocationProp) == 32, "as in cuda.h");
struct AccessDesc {
  Location location;
  int flags;
};

void drop(u64 handle) {
  Physical &physical = physicals.at(handle);
  if (--physical.references > 0) return;
  machine.devices[physical.device]->usedBytes -= physical.bytes;
  close(physical.file);
  physicals.erase(handle);
}

bool valid(const Location &location) {
  return location.type == 1 && location.id >= 0 && location.id < (int)machine.devices.size();
}
} // namespace

namespace emu {
size_t countPhysical() { return physicals.size(); }
} // namespace emu

EMU_API cuMemGetAllocationGranularity(size_t *bytes, const AllocationProp *prop, int) {
  ENTER(cuMemGetAllocationGranularity, Entry::Driver);
  if (!valid(prop->location)) return INVALID_DEVICE;
  *bytes = granularity;
  return SUCCESS;
}

EMU_API cuMemCreate(u64 *handle, size_t bytes, const AllocationProp *prop, unsigned long long flags) {
  ENTER(cuMemCreate, Entry::Driver, true);
  if (bytes == 0 || bytes % granularity || flags || prop->type != 1) return INVALID_VALUE;
  if (!valid(prop->location)) return INVALID_DEVICE;
  Device &device = *machine.devices[prop->location.id];
  if (device.usedBytes + bytes > device.totalBytes) return OUT_OF_MEMORY;
  Physical physical;
  physical.bytes = bytes;
  physical.device = device.ordinal;
  physical.file = (int)syscall(SYS_memfd_create, "emulated-memory", 0);
  if (physical.file < 0 || ftruncate(physical.file, (off_t)bytes)) return OUT_OF_MEMORY;
  const std::vector<unsigned char> nan(granularity, 0xFF);
  for (u64 done = 0; done < bytes; done += granularity)
    if (pwrite(physical.file, nan.data(), granularity, (off_t)done) != (ssize_t)granularity) return OUT_OF_MEMORY;
  device.usedBytes += bytes;
  device.peakBytes = std::max(device.peakBytes, device.usedBytes);
  *handle = nextHandle++;
  physicals[*handle] = physical;
  return SUCCESS;
}

EMU_API cuMemRelease(u64 handle) {
  ENTER(cuMemRelease, Entry::Driver, true);
  if (!physicals.count(handle)) return INVALID_VALUE;
  drop(handle);
  return SUCCESS;
}

EMU_API cuMemAddressReserve(u64 *address, size_t bytes, size_t alignment, u64 hint, unsigned long long flags) {
  ENTER(cuMemAddressReserve, Entry::Driver);
  (void)hint;
  if (bytes == 0 || bytes % granularity || flags || (alignment & (alignment - 1))) return INVALID_VALUE;
  const u64 unit = std::max<u64>(alignment, granularity);
  nextReservation = (nextReservation + unit - 1) / unit * unit;
  void *at = mmap((void *)nextReservation, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (at == MAP_FAILED) return OUT_OF_MEMORY;
  // A gap, so that no range borders on the next.
  nextReservation += bytes + granularity;
  *address = (u64)at;
  reservations[*address] = bytes;
  return SUCCESS;
}

EMU_API cuMemAddressFree(u64 address, size_t bytes) {
  ENTER(cuMemAddressFree, Entry::Driver);
  const auto found = reservations.find(address);
  if (found == reservations.end() || found->second != bytes) return INVALID_VALUE;
  const auto next = machine.allocations.lower_bound(address);
  if (next != machine.allocations.end() && next->first < address + bytes) return INVALID_VALUE;
  munmap((void *)address, bytes);
  reservations.erase(found);
  return SUCCESS;
}

// Maps whole physical allocations, and gives no device access.
EMU_API cuMemMap(u64 address, size_t bytes, size_t offset, u64 handle, unsigned long long flags) {
  ENTER(cuMemMap, Entry::Driver);
  const auto physical = physicals.find(handle);
  if (physical == physicals.end() || flags || offset || bytes != physical->second.bytes || address % granularity) return INVALID_VALUE;
  auto reservation = reservations.upper_bound(address);
  if (reservation == reservations.begin()) return INVALID_VALUE;
  reservation--;
  if (address + bytes > reservation->first + reservation->second) return INVALID_VALUE;
  const auto next = machine.allocations.lower_bound(address);
  if (find(address) || (next != machine.allocations.end() && next->first < address + bytes)) return INVALID_VALUE;
  if (mmap((void *)address, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, physical->second.file, 0) == MAP_FAILED) return OUT_OF_MEMORY;
  Allocation allocation;
  allocation.kind = Allocation::Mapped;
  allocation.lo = address;
  allocation.bytes = bytes;
  allocation.device = physical->second.device;
  allocation.handle = handle;
  physical->second.references++;
  machine.allocations[address] = allocation;
  return SUCCESS;
}

EMU_API cuMemSetAccess(u64 address, size_t bytes, const AccessDesc *access, size_t count) {
  ENTER(cuMemSetAccess, Entry::Driver);
  std::vector<Allocation *> mapped;
  for (u64 at = address; at < address + bytes;) {
    const auto found = machine.allocations.find(at);
    if (found == machine.allocations.end() || found->second.kind != Allocation::Mapped) return INVALID_VALUE;
    mapped.push_back(&found->second);
    at += found->second.bytes;
    if (at > address + bytes) return INVALID_VALUE;
  }
  for (size_t i = 0; i < count; i++) {
    if (!valid(access[i].location)) return INVALID_DEVICE;
    for (Allocation *allocation : mapped) {
      if (access[i].flags == 0) allocation->access.erase(access[i].location.id);
      else allocation->access.insert(access[i].location.id);
      mprotect((void *)allocation->lo, allocation->bytes, allocation->access.empty() ? PROT_NONE : PROT_READ | PROT_WRITE);
    }
  }
  return SUCCESS;
}

// Takes exactly what was mapped: one mapping, or several that follow each other.
EMU_API cuMemUnmap(u64 address, size_t bytes) {
  ENTER(cuMemUnmap, Entry::Driver, true);
  std::vector<u64> mapped;
  for (u64 at = address; at < address + bytes;) {
    const auto found = machine.allocations.find(at);
    if (found == machine.allocations.end() || found->second.kind != Allocation::Mapped) return INVALID_VALUE;
    mapped.push_back(at);
    at += found->second.bytes;
    if (at > address + bytes) return INVALID_VALUE;
  }
  std::string user;
  if (inUse(address, address + bytes, user)) machine.freesInUse.push_back("memory was unmapped that " + user + " may still be using");
  for (auto &context : machine.contexts) forceContext(context.get());
  for (const u64 at : mapped) {
    const Allocation allocation = machine.allocations.at(at);
    mmap((void *)at, allocation.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    forgetAccesses(at, at + allocation.bytes);
    machine.allocations.erase(at);
    drop(allocation.handle);
  }
  return SUCCESS;
}
