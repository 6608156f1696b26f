// Copies and fills.
#include <cstring>

#include "core.h"

using namespace emu;

namespace {
// Why [address, address + bytes) is not within one allocation; empty where it is, or where no allocation begins it (pageable memory).
std::string refused(u64 address, u64 bytes, const Allocation *&allocation) {
  allocation = find(address);
  if (!allocation) return "";
  if (address + bytes > allocation->lo + allocation->bytes) return "goes past the end of its memory: " + describe(address + bytes - 1);
  return "";
}

bool known(u64 address) { return find(address) != nullptr; }

bool onDeviceOf(u64 address) {
  const Allocation *allocation = find(address);
  return allocation && allocation->device >= 0;
}

void countCopied(u64 to, u64 from, u64 bytes) {
  const Allocation *target = find(to), *source = find(from);
  const int into = target ? target->device : -1, outOf = source ? source->device : -1;
  if (into >= 0 && outOf >= 0) (into == outOf ? machine.copied.onDevice : machine.copied.acrossDevices) += bytes;
  else if (into >= 0) machine.copied.toDevice += bytes;
  else if (outOf >= 0) machine.copied.toHost += bytes;
}

// The state at the time when the copy happens is what counts.
int move(Context *context, u64 to, u64 from, u64 bytes, const std::string &name) {
  u64 bad = 0;
  countCopied(to, from, bytes);
  if (guarded([&] { memmove((void *)to, (const void *)from, bytes); }, bad)) return SUCCESS;
  poison(context, ILLEGAL_ADDRESS, name + " touched " + describe(bad));
  return ILLEGAL_ADDRESS;
}

int copy(Stream &stream, u64 to, u64 from, u64 bytes, const char *what) {
  if (bytes == 0) return SUCCESS;
  const Allocation *target, *source;
  std::string why = refused(to, bytes, target);
  if (why.empty()) why = refused(from, bytes, source);
  if (!why.empty()) {
    fprintf(stderr, "emulated driver: %s %s\n", what, why.c_str());
    return INVALID_VALUE;
  }
  Task task;
  task.kind = "copy";
  task.name = std::string(what) + " of " + std::to_string(bytes) + " bytes";
  if (target) task.accesses.push_back({to, to + bytes, true});
  if (source) task.accesses.push_back({from, from + bytes, false});
  const std::string name = task.name;
  if (!source && onDeviceOf(to)) {
    // Pageable memory is staged before the call returns: later changes to it are not seen.
    machine.pageableCopies++;
    auto staged = std::make_shared<std::vector<unsigned char>>(bytes);
    u64 bad = 0;
    if (!guarded([&] { memcpy(staged->data(), (const void *)from, bytes); }, bad)) return INVALID_VALUE;
    task.run = [=](Context *context) { return move(context, to, (u64)staged->data(), bytes, name); };
    return submit(stream, task);
  }
  // A machine whose copies between devices go wrong (an IOMMU in the way) changes bytes and reports nothing.
  const bool isAcross = target && source && target->device >= 0 && source->device >= 0 && target->device != source->device;
  const bool isWrong = (isAcross && machine.hasDefect("peer-copies")) || (source && source->device < 0 && machine.hasDefect("host-copies")) ||
                       (source && source->kind == Allocation::Registered && machine.hasDefect("registered-memory"));
  task.run = [=](Context *context) {
    const int moved = move(context, to, from, bytes, name);
    if (isWrong && moved == SUCCESS) *(unsigned char *)to ^= 1;
    return moved;
  };
  const int status = submit(stream, task);
  if (status || target || stream.capture) return status;
  // To pageable memory: the call returns when the bytes are there.
  machine.pageableCopies++;
  return force(stream, stream.submitted, stream.clock);
}

int copyNow(u64 to, u64 from, u64 bytes, const char *what) {
  int status;
  const auto stream = streamOf(0, status);
  if (!stream) return status;
  status = copy(*stream, to, from, bytes, what);
  return status ? status : force(*stream, stream->submitted, stream->clock);
}

int copyIn(u64 handle, u64 to, u64 from, u64 bytes, const char *what) {
  int status;
  const auto stream = streamOf(handle, status);
  return stream ? copy(*stream, to, from, bytes, what) : status;
}

int fill(u64 handle, u64 address, u64 count, const unsigned char *pattern, u32 width, bool wait) {
  int status;
  const auto stream = streamOf(handle, status);
  if (!stream) return status;
  const u64 bytes = count * width;
  if (bytes == 0) return SUCCESS;
  const Allocation *allocation = find(address);
  if (!allocation || address % width || address + bytes > allocation->lo + allocation->bytes) return INVALID_VALUE;
  Task task;
  task.kind = "fill";
  task.name = "a fill of " + std::to_string(bytes) + " bytes";
  task.accesses = {{address, address + bytes, true}};
  u32 value = 0;
  memcpy(&value, pattern, width);
  const std::string name = task.name;
  task.run = [=](Context *context) {
    u64 bad = 0;
    if (guarded([&] { for (u64 i = 0; i < count; i++) memcpy((void *)(address + i * width), &value, width); }, bad))
      return (int)SUCCESS;
    poison(context, ILLEGAL_ADDRESS, name + " touched " + describe(bad));
    return (int)ILLEGAL_ADDRESS;
  };
  status = submit(*stream, task);
  return status || !wait ? status : force(*stream, stream->submitted, stream->clock);
}
} // namespace

EMU_API cuMemcpyAsync(u64 to, u64 from, size_t bytes, u64 stream) {
  ENTER(cuMemcpyAsync, Entry::CurrentContext);
  return copyIn(stream, to, from, bytes, "a copy");
}

EMU_API cuMemcpyHtoDAsync_v2(u64 to, const void *from, size_t bytes, u64 stream) {
  ENTER(cuMemcpyHtoDAsync_v2, Entry::CurrentContext);
  return known(to) ? copyIn(stream, to, (u64)from, bytes, "a copy to the device") : INVALID_VALUE;
}

EMU_API cuMemcpyDtoHAsync_v2(void *to, u64 from, size_t bytes, u64 stream) {
  ENTER(cuMemcpyDtoHAsync_v2, Entry::CurrentContext);
  return known(from) ? copyIn(stream, (u64)to, from, bytes, "a copy to the host") : INVALID_VALUE;
}

EMU_API cuMemcpyDtoDAsync_v2(u64 to, u64 from, size_t bytes, u64 stream) {
  ENTER(cuMemcpyDtoDAsync_v2, Entry::CurrentContext);
  return known(to) && known(from) ? copyIn(stream, to, from, bytes, "a copy on the device") : INVALID_VALUE;
}

// Works with and without peer access: without it the bytes go through the host.
EMU_API cuMemcpyPeerAsync(u64 to, Context *, u64 from, Context *, size_t bytes, u64 stream) {
  ENTER(cuMemcpyPeerAsync, Entry::CurrentContext);
  return onDeviceOf(to) && onDeviceOf(from) ? copyIn(stream, to, from, bytes, "a copy between devices") : INVALID_VALUE;
}

EMU_API cuMemcpyHtoD_v2(u64 to, const void *from, size_t bytes) {
  ENTER(cuMemcpyHtoD_v2, Entry::CurrentContext, true);
  return known(to) ? copyNow(to, (u64)from, bytes, "a synchronous copy to the device") : INVALID_VALUE;
}

EMU_API cuMemcpyDtoH_v2(void *to, u64 from, size_t bytes) {
  ENTER(cuMemcpyDtoH_v2, Entry::CurrentContext, true);
  return known(from) ? copyNow((u64)to, from, bytes, "a synchronous copy to the host") : INVALID_VALUE;
}

// Not synchronous, in spite of its name.
EMU_API cuMemcpyDtoD_v2(u64 to, u64 from, size_t bytes) {
  ENTER(cuMemcpyDtoD_v2, Entry::CurrentContext, true);
  return known(to) && known(from) ? copyIn(0, to, from, bytes, "a copy on the device") : INVALID_VALUE;
}

EMU_API cuMemcpy(u64 to, u64 from, size_t bytes) {
  ENTER(cuMemcpy, Entry::CurrentContext, true);
  return copyNow(to, from, bytes, "a synchronous copy");
}

EMU_API cuMemsetD8Async(u64 address, unsigned char value, size_t count, u64 stream) {
  ENTER(cuMemsetD8Async, Entry::CurrentContext);
  return fill(stream, address, count, &value, 1, false);
}

EMU_API cuMemsetD32Async(u64 address, u32 value, size_t count, u64 stream) {
  ENTER(cuMemsetD32Async, Entry::CurrentContext);
  return fill(stream, address, count, (const unsigned char *)&value, 4, false);
}

EMU_API cuMemsetD8_v2(u64 address, unsigned char value, size_t count) {
  ENTER(cuMemsetD8_v2, Entry::CurrentContext, true);
  return fill(0, address, count, &value, 1, true);
}

EMU_API cuMemsetD32_v2(u64 address, u32 value, size_t count) {
  ENTER(cuMemsetD32_v2, Entry::CurrentContext, true);
  return fill(0, address, count, (const unsigned char *)&value, 4, true);
}
