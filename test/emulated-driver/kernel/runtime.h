// The interface between a compiled kernel module and the driver that runs it: plain C structures, so a module needs no symbols.
#pragma once
#include <stdint.h>

struct EmuIndex {
  unsigned int x, y, z;
};

enum EmuParameterMode { EMU_SCALAR = 0, EMU_READ = 1, EMU_WRITE = 2 };

// What a module calls back.
struct EmuRuntime {
  void (*blockBarrier)();
  // Waits until all lanes of the mask are here. Gives each lane's value in a table of 32, valid until the lane's next exchange.
  const uint64_t *(*warpExchange)(uint32_t mask, uint64_t value, const char *what);
  unsigned char *(*dynamicShared)();
  int (*lane)();
  void (*fail)(const char *message);
};

struct EmuKernel {
  const char *name;
  int parameterCount;
  const uint32_t *parameterBytes;
  const uint8_t *parameterModes;
  // One thread: `parameters[i]` points to the value of the i-th parameter.
  void (*run)(void **parameters);
  const EmuKernel *next;
};

struct EmuModule {
  const EmuKernel *kernels;
  const EmuRuntime **runtime;
  EmuIndex *threadIndex, *blockIndex, *blockExtent, *gridExtent;
  // Static shared memory of all kernels of the module.
  unsigned char *sharedBegin, *sharedEnd;
};

typedef const EmuModule *(*EmuModuleEntry)();
