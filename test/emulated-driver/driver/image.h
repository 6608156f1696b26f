// What the emulated NVRTC gives as a cubin, and the emulated driver takes: a header, then a shared library.
#pragma once
#include <cstdint>

static const char emuImageMagic[8] = {'E', 'M', 'U', 'M', 'O', 'D', '1', 0};

struct EmuImageHeader {
  char magic[8];
  uint32_t architecture;
  uint32_t ptx;
  uint64_t bytes;
};
