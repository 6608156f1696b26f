#pragma once
#include "../kernel/runtime.h"
#include "core.h"

namespace emu {

struct KernelRun {
  const EmuKernel *kernel;
  const EmuModule *module;
  const Launch *launch;
  void **parameters;
};

// Runs a kernel's whole grid. Gives what went wrong, or an empty text.
std::string runGrid(const KernelRun &run);
const EmuRuntime *kernelRuntime();

} // namespace emu
