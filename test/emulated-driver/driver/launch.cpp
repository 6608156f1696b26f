// Modules, kernels and launches.
#include <cstring>
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fibers.h"
#include "image.h"

namespace emu {

struct Module {
  Context *context = nullptr;
  void *library = nullptr;
  const EmuModule *content = nullptr;
  std::map<std::string, std::unique_ptr<Function>> functions;
};

struct Function {
  Module *module = nullptr;
  const EmuKernel *kernel = nullptr;
  u32 dynamicSharedMax = 48 << 10;
};

namespace {
std::set<Module *> modules;
std::set<Function *> functions;
thread_local std::vector<Access> nextRanges;
thread_local bool nextRangesKnown = false;
const u32 sharedOptIn = 232448;

int runLaunch(Context *context, const std::shared_ptr<Launch> &launch) {
  const EmuKernel &kernel = *launch->function->kernel;
  const std::string who = std::string("kernel ") + kernel.name;
  std::vector<void *> parameters;
  std::vector<Allocation *> touched;
  bool readsHost = false;
  for (int i = 0; i < kernel.parameterCount; i++) {
    parameters.push_back(launch->values[i].data());
    if (kernel.parameterModes[i] == EMU_SCALAR) continue;
    u64 address;
    memcpy(&address, launch->values[i].data(), 8);
    if (address == 0) continue;
    Allocation *allocation = find(address, true);
    std::string why;
    if (!allocation) {
      poison(context, ILLEGAL_ADDRESS, who + " was given as argument " + std::to_string(i) + " the address " + describe(address));
      return ILLEGAL_ADDRESS;
    }
    if (allocation->isHost() && machine.hasDefect("host-reads-by-kernels")) why = describe(address);
    if (!why.empty() || !reachable(context, *allocation, why)) {
      poison(context, ILLEGAL_ADDRESS, who + " was given as argument " + std::to_string(i) + " " + why);
      return ILLEGAL_ADDRESS;
    }
    touched.push_back(allocation);
    if (allocation->device < 0 && kernel.parameterModes[i] != EMU_WRITE) readsHost = true;
  }
  machine.kernelsReadingHost += readsHost;
  if (!machine.computes) return SUCCESS;
  // A kernel that does nothing leaves the old bytes: a wrong result without an error.
  const std::string name = kernel.name;
  if (machine.hasDefect("kernel " + name.substr(0, name.find_last_of('_')))) return SUCCESS;
  const std::string failure = runGrid({&kernel, launch->function->module->content, launch.get(), parameters.data()});
  if (!failure.empty()) {
    const int status = failure.find(" touched ") != std::string::npos ? ILLEGAL_ADDRESS : LAUNCH_FAILED;
    poison(context, status, who + ": " + failure);
    return status;
  }
  for (const Allocation *allocation : touched)
    if (!slackIntact(*allocation)) {
      poison(context, ILLEGAL_ADDRESS, who + " wrote past the end of the memory at " + describe(allocation->lo + allocation->bytes));
      return ILLEGAL_ADDRESS;
    }
  return SUCCESS;
}
} // namespace

size_t countModules() { return modules.size(); }

namespace {
void unload(Module *module) {
  modules.erase(module);
  for (const auto &function : module->functions) functions.erase(function.second.get());
  dlclose(module->library);
  delete module;
}
} // namespace

void dropModules(Context *context) {
  std::vector<Module *> own;
  for (Module *module : modules)
    if (module->context == context) own.push_back(module);
  for (Module *module : own) unload(module);
}

int prepareLaunch(Context *context, Launch &launch, void **kernelParams, void **extra) {
  if (!functions.count(launch.function) || launch.function->module->context != context) return INVALID_HANDLE;
  const EmuKernel &kernel = *launch.function->kernel;
  const u64 threads = (u64)launch.block[0] * launch.block[1] * launch.block[2];
  for (int i = 0; i < 3; i++)
    if (launch.grid[i] == 0 || launch.block[i] == 0 || (i > 0 && launch.grid[i] > 65535)) return INVALID_VALUE;
  if (launch.grid[0] > 0x7fffffffu || launch.block[2] > 64 || threads > 1024) return INVALID_VALUE;
  if (launch.sharedBytes > launch.function->dynamicSharedMax) return INVALID_VALUE;
  if (kernelParams && extra) return INVALID_VALUE;
  const unsigned char *packed = nullptr;
  size_t packedBytes = 0;
  if (extra) {
    // A list of key and value, ended by 0: 1 is the buffer, 2 points to its size.
    for (int i = 0; extra[i]; i += 2) {
      if ((u64)extra[i] == 1) packed = (const unsigned char *)extra[i + 1];
      else if ((u64)extra[i] == 2) packedBytes = *(const size_t *)extra[i + 1];
      else return INVALID_VALUE;
    }
  }
  if (kernel.parameterCount > 0 && !kernelParams && !packed) return INVALID_VALUE;
  size_t at = 0;
  for (int i = 0; i < kernel.parameterCount; i++) {
    const u32 bytes = kernel.parameterBytes[i];
    const unsigned char *source;
    if (kernelParams) {
      source = (const unsigned char *)kernelParams[i];
    } else {
      // Each value is aligned to its size.
      const size_t unit = bytes >= 8 ? 8 : bytes;
      at = (at + unit - 1) / unit * unit;
      if (at + bytes > packedBytes) return INVALID_VALUE;
      source = packed + at;
      at += bytes;
    }
    launch.values.emplace_back(source, source + bytes);
  }
  if (nextRangesKnown) {
    launch.rangesKnown = true;
    launch.ranges = std::move(nextRanges);
    nextRangesKnown = false;
    nextRanges.clear();
  }
  return SUCCESS;
}

Task launchTask(std::shared_ptr<Launch> launch) {
  Task task;
  const EmuKernel &kernel = *launch->function->kernel;
  task.name = std::string("kernel ") + kernel.name;
  task.kind = "kernel";
  task.launch = launch;
  if (launch->rangesKnown) {
    task.accesses = launch->ranges;
  } else {
    for (int i = 0; i < kernel.parameterCount; i++) {
      if (kernel.parameterModes[i] == EMU_SCALAR) continue;
      u64 address;
      memcpy(&address, launch->values[i].data(), 8);
      const Allocation *allocation = address ? find(address) : nullptr;
      if (allocation) task.accesses.push_back({address, extentEnd(address, *allocation), kernel.parameterModes[i] == EMU_WRITE});
    }
  }
  task.run = [launch](Context *context) {
    machine.launches++;
    return runLaunch(context, launch);
  };
  return task;
}

} // namespace emu

using namespace emu;

static int load(Module **result, const void *image) {
  EmuImageHeader header;
  memcpy(&header, image, sizeof header);
  if (memcmp(header.magic, emuImageMagic, sizeof header.magic) != 0) return INVALID_IMAGE;
  const Device &device = *current->device;
  const int own = device.major * 10 + device.minor;
  // A cubin runs on its own architecture and later minor versions of it; PTX on everything later.
  const bool fits = header.ptx ? (int)header.architecture <= own : (int)header.architecture / 10 == device.major && (int)header.architecture <= own;
  if (!fits) return 209;
  // The name must be new: for a path that is already loaded, such as a reused descriptor number, dlopen returns the old module.
  char path[] = "/tmp/emulated-module-XXXXXX";
  const int file = mkstemp(path);
  const unsigned char *bytes = (const unsigned char *)image + sizeof header;
  for (u64 done = 0; done < header.bytes;) {
    const ssize_t wrote = write(file, bytes + done, header.bytes - done);
    if (wrote <= 0) {
      close(file);
      unlink(path);
      return OUT_OF_MEMORY;
    }
    done += wrote;
  }
  close(file);
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  unlink(path);
  const auto entryPoint = library ? (EmuModuleEntry)dlsym(library, "emuModuleEntry") : nullptr;
  if (!entryPoint) {
    fprintf(stderr, "emulated driver: a module cannot be loaded: %s\n", dlerror());
    return INVALID_IMAGE;
  }
  auto *module = new Module;
  module->context = current;
  module->library = library;
  module->content = entryPoint();
  modules.insert(module);
  *result = module;
  return SUCCESS;
}

EMU_API cuModuleLoadData(Module **module, const void *image) {
  ENTER(cuModuleLoadData, Entry::CurrentContext, true);
  return load(module, image);
}

EMU_API cuModuleLoadDataEx(Module **module, const void *image, unsigned, int *, void **) {
  ENTER(cuModuleLoadDataEx, Entry::CurrentContext, true);
  return load(module, image);
}

EMU_API cuModuleUnload(Module *module) {
  ENTER(cuModuleUnload, Entry::CurrentContext, true);
  if (!modules.count(module)) return INVALID_HANDLE;
  forceContext(module->context);
  unload(module);
  return SUCCESS;
}

EMU_API cuModuleGetFunction(Function **result, Module *module, const char *name) {
  ENTER(cuModuleGetFunction, Entry::CurrentContext);
  if (!modules.count(module)) return INVALID_HANDLE;
  for (const EmuKernel *kernel = module->content->kernels; kernel; kernel = kernel->next) {
    if (strcmp(kernel->name, name) != 0) continue;
    std::unique_ptr<Function> &function = module->functions[name];
    if (!function) {
      function.reset(new Function);
      function->module = module;
      function->kernel = kernel;
      functions.insert(function.get());
    }
    *result = function.get();
    return SUCCESS;
  }
  return NOT_FOUND;
}

EMU_API cuFuncGetAttribute(int *value, int attribute, Function *function) {
  ENTER(cuFuncGetAttribute, Entry::CurrentContext);
  if (!functions.count(function)) return INVALID_HANDLE;
  switch (attribute) {
  case 0: // MAX_THREADS_PER_BLOCK
    *value = 1024;
    return SUCCESS;
  case 1: // SHARED_SIZE_BYTES, of all kernels of the module: an upper bound
    *value = (int)(function->module->content->sharedEnd - function->module->content->sharedBegin);
    return SUCCESS;
  case 4: // NUM_REGS
    *value = 32;
    return SUCCESS;
  case 8: // MAX_DYNAMIC_SHARED_SIZE_BYTES
    *value = (int)function->dynamicSharedMax;
    return SUCCESS;
  default:
    *value = 0;
    return SUCCESS;
  }
}

EMU_API cuFuncSetAttribute(Function *function, int attribute, int value) {
  ENTER(cuFuncSetAttribute, Entry::CurrentContext);
  if (!functions.count(function)) return INVALID_HANDLE;
  if (attribute == 8) {
    if (value < 0 || (u32)value > sharedOptIn) return INVALID_VALUE;
    function->dynamicSharedMax = std::max((u32)value, 48u << 10);
  }
  return SUCCESS;
}

static int launchKernel(Function *function, const u32 *grid, const u32 *blockExtent, u32 sharedBytes, u64 handle, void **params, void **extra) {
  int status;
  const auto stream = streamOf(handle, status);
  if (!stream) return status;
  auto launch = std::make_shared<Launch>();
  launch->function = function;
  memcpy(launch->grid, grid, sizeof launch->grid);
  memcpy(launch->block, blockExtent, sizeof launch->block);
  launch->sharedBytes = sharedBytes;
  // The kernel and the stream belong to one context.
  status = prepareLaunch(stream->context, *launch, params, extra);
  return status ? status : submit(*stream, launchTask(launch));
}

EMU_API cuLaunchKernel(Function *function, u32 gx, u32 gy, u32 gz, u32 bx, u32 by, u32 bz, u32 sharedBytes, u64 stream, void **params,
                       void **extra) {
  ENTER(cuLaunchKernel, Entry::CurrentContext);
  const u32 grid[3] = {gx, gy, gz}, blockExtent[3] = {bx, by, bz};
  return launchKernel(function, grid, blockExtent, sharedBytes, stream, params, extra);
}

struct LaunchConfig {
  u32 grid[3], block[3], sharedBytes;
  u64 stream;
  void *attributes;
  u32 attributeCount;
};
static_assert(sizeof(LaunchConfig) == 56, "as in cuda.h");

EMU_API cuLaunchKernelEx(const LaunchConfig *config, Function *function, void **params, void **extra) {
  ENTER(cuLaunchKernelEx, Entry::CurrentContext);
  return launchKernel(function, config->grid, config->block, config->sharedBytes, config->stream, params, extra);
}

// The bytes that the next launch of this thread touches: {address, bytes, mode} for each, mode 1 read, 2 write, 3 both.
EMU_EXPORT void emuLaunchRanges(const u64 *triples, u32 count) {
  std::unique_lock<std::recursive_mutex> hold(machine.lock);
  nextRanges.clear();
  for (u32 i = 0; i < count; i++) nextRanges.push_back({triples[3 * i], triples[3 * i] + triples[3 * i + 1], (triples[3 * i + 2] & 2) != 0});
  nextRangesKnown = true;
}
