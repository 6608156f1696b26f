// What happens at the start of every call, and the driver's names for its statuses.
#include <csignal>

#include "core.h"

namespace emu {

Machine &machine = *new Machine;
thread_local Context *current = nullptr;

namespace {
struct Injection {
  int status, after;
};
std::map<std::string, std::deque<Injection>> injections;

const std::map<int, const char *> statusNames = {
    {0, "CUDA_SUCCESS"},
    {1, "CUDA_ERROR_INVALID_VALUE"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY"},
    {3, "CUDA_ERROR_NOT_INITIALIZED"},
    {4, "CUDA_ERROR_DEINITIALIZED"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE"},
    {100, "CUDA_ERROR_NO_DEVICE"},
    {101, "CUDA_ERROR_INVALID_DEVICE"},
    {200, "CUDA_ERROR_INVALID_IMAGE"},
    {201, "CUDA_ERROR_INVALID_CONTEXT"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
    {214, "CUDA_ERROR_ECC_UNCORRECTABLE"},
    {217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"},
    {218, "CUDA_ERROR_INVALID_PTX"},
    {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"},
    {226, "CUDA_ERROR_CONTAINED"},
    {301, "CUDA_ERROR_FILE_NOT_FOUND"},
    {400, "CUDA_ERROR_INVALID_HANDLE"},
    {401, "CUDA_ERROR_ILLEGAL_STATE"},
    {500, "CUDA_ERROR_NOT_FOUND"},
    {600, "CUDA_ERROR_NOT_READY"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
    {702, "CUDA_ERROR_LAUNCH_TIMEOUT"},
    {704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED"},
    {705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED"},
    {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED"},
    {710, "CUDA_ERROR_ASSERT"},
    {711, "CUDA_ERROR_TOO_MANY_PEERS"},
    {712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"},
    {713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED"},
    {714, "CUDA_ERROR_HARDWARE_STACK_ERROR"},
    {716, "CUDA_ERROR_MISALIGNED_ADDRESS"},
    {719, "CUDA_ERROR_LAUNCH_FAILED"},
    {721, "CUDA_ERROR_TENSOR_MEMORY_LEAK"},
    {800, "CUDA_ERROR_NOT_PERMITTED"},
    {801, "CUDA_ERROR_NOT_SUPPORTED"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
    {903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED"},
    {904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"},
    {905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION"},
    {906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"},
    {908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD"},
    {910, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE"},
    {911, "CUDA_ERROR_EXTERNAL_DEVICE"},
    {999, "CUDA_ERROR_UNKNOWN"},
};
} // namespace

const char *statusName(int status) {
  const auto found = statusNames.find(status);
  return found == statusNames.end() ? nullptr : found->second;
}

void failNext(const char *name, int status, int after) { injections[name].push_back({status, after}); }

Entry::Entry(const char *name, Needs needs, bool unsafeInCapture) : hold(machine.lock) {
  ensureConfigured();
  if (machine.calls[name]++ >= machine.endAt.second && machine.endAt.first == name) raise(SIGKILL);
  if (machine.verbose) fprintf(stderr, "emulated driver: %s\n", name);
  const auto found = injections.find(name);
  if (found != injections.end() && !found->second.empty()) {
    Injection &next = found->second.front();
    if (next.after-- <= 0) {
      status = next.status;
      found->second.pop_front();
      return;
    }
  }
  if (needs == Nothing) return;
  if (!machine.initialized) {
    status = NOT_INITIALIZED;
    return;
  }
  if (needs == CurrentContext && (!current || !current->retained)) {
    status = INVALID_CONTEXT;
    return;
  }
  // Every call that uses a lost device or a poisoned context gets the same status.
  if (needs == CurrentContext && current->device->lost) status = current->device->lost;
  else if (needs == CurrentContext && current->poison) status = current->poison;
  // A GLOBAL capture forbids calls that might synchronize, on any thread, and makes the capture invalid.
  else if (unsafeInCapture && machine.globalCaptures > 0) {
    invalidateCaptures();
    status = CAPTURE_UNSUPPORTED;
  }
}

} // namespace emu

EMU_API cuGetErrorName(int status, const char **name) {
  *name = emu::statusName(status);
  return *name ? emu::SUCCESS : emu::INVALID_VALUE;
}
