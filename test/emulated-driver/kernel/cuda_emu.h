// The CUDA language for g++: included before a kernel source, which is then an ordinary translation unit of C++17.
#pragma once
// Headers of C alone: those of C++ made the precompiled header twice as large, and each kernel took 105 ms of a core, not 60.
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "runtime.h"

#define EMU 1
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __constant__ static
#define __align__(n) alignas(n)
// A separate section: the driver fills it with NaN before every block.
#define __shared__ static __attribute__((section("emu_shared")))
#ifndef __restrict__
#define __restrict__ __restrict
#endif

extern const EmuRuntime *emuRuntime;
extern EmuIndex emuThreadIndex, emuBlockIndex, emuBlockExtent, emuGridExtent;
#define threadIdx emuThreadIndex
#define blockIdx emuBlockIndex
#define blockDim emuBlockExtent
#define gridDim emuGridExtent
#define warpSize 32

inline unsigned char *emuDynamicShared() { return emuRuntime->dynamicShared(); }

#define EMU_VECTOR(T, name)              \
  struct alignas(2 * sizeof(T)) name##2 { \
    T x, y;                              \
  };                                     \
  struct name##3 {                       \
    T x, y, z;                           \
  };                                     \
  struct alignas(4 * sizeof(T) > 16 ? 16 : 4 * sizeof(T)) name##4 { \
    T x, y, z, w;                        \
  };                                     \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; } \
  inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; } \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
EMU_VECTOR(float, float)
EMU_VECTOR(double, double)
EMU_VECTOR(int, int)
EMU_VECTOR(unsigned int, uint)
EMU_VECTOR(short, short)
EMU_VECTOR(unsigned short, ushort)
EMU_VECTOR(signed char, char)
EMU_VECTOR(unsigned char, uchar)
EMU_VECTOR(long long, longlong)
EMU_VECTOR(unsigned long long, ulonglong)

// ---- Barriers and warps. A thread is suspended here until the threads it waits for have arrived too.
inline void __syncthreads() { emuRuntime->blockBarrier(); }
inline void __syncwarp(uint32_t mask = 0xffffffffu) { emuRuntime->warpExchange(mask, 0, "__syncwarp"); }
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}

template <typename T>
inline uint64_t emuToSlot(T value) {
  static_assert(sizeof(T) <= 8, "a shuffle moves 8 bytes at most");
  uint64_t slot = 0;
  memcpy(&slot, &value, sizeof(T));
  return slot;
}
template <typename T>
inline T emuFromSlot(uint64_t slot) {
  T value;
  memcpy(&value, &slot, sizeof(T));
  return value;
}
// `lane` outside the segment of `width` lanes that this thread is in gives the thread's own value, as CUDA does.
template <typename T>
inline T emuShuffle(uint32_t mask, T value, int lane, int width, bool inside, const char *what) {
  const uint64_t *slots = emuRuntime->warpExchange(mask, emuToSlot(value), what);
  (void)width;
  return inside ? emuFromSlot<T>(slots[lane & 31]) : value;
}
template <typename T>
inline T __shfl_sync(uint32_t mask, T value, int source, int width = 32) {
  const int lane = emuRuntime->lane();
  return emuShuffle(mask, value, (lane & ~(width - 1)) + (source & (width - 1)), width, true, "__shfl_sync");
}
template <typename T>
inline T __shfl_up_sync(uint32_t mask, T value, unsigned delta, int width = 32) {
  const int lane = emuRuntime->lane();
  const int source = lane - (int)delta;
  return emuShuffle(mask, value, source, width, source >= (lane & ~(width - 1)), "__shfl_up_sync");
}
template <typename T>
inline T __shfl_down_sync(uint32_t mask, T value, unsigned delta, int width = 32) {
  const int lane = emuRuntime->lane();
  const int source = lane + (int)delta;
  return emuShuffle(mask, value, source, width, source <= (lane | (width - 1)), "__shfl_down_sync");
}
template <typename T>
inline T __shfl_xor_sync(uint32_t mask, T value, int bits, int width = 32) {
  const int lane = emuRuntime->lane();
  const int source = lane ^ bits;
  return emuShuffle(mask, value, source, width, source <= (lane | (width - 1)), "__shfl_xor_sync");
}
inline uint32_t emuVote(uint32_t mask, bool predicate, const char *what) {
  const uint64_t *slots = emuRuntime->warpExchange(mask, predicate ? 1 : 0, what);
  uint32_t votes = 0;
  for (int lane = 0; lane < 32; lane++)
    if ((mask >> lane & 1) && slots[lane] == 1) votes |= 1u << lane;
  return votes;
}
inline uint32_t __ballot_sync(uint32_t mask, int predicate) { return emuVote(mask, predicate != 0, "__ballot_sync"); }
inline int __any_sync(uint32_t mask, int predicate) { return emuVote(mask, predicate != 0, "__any_sync") != 0; }
inline int __all_sync(uint32_t mask, int predicate) { return emuVote(mask, predicate == 0, "__all_sync") == 0; }
inline uint32_t __activemask() { return 1u << emuRuntime->lane(); }

// ---- Atomics. One thread runs at a time, so that plain operations are atomic.
template <typename T>
struct EmuSame {
  using type = T;
};
#define EMU_ATOMIC(name, expression)                                  \
  template <typename T>                                               \
  inline T name(T *address, typename EmuSame<T>::type value) {        \
    const T old = *address;                                           \
    *address = (expression);                                          \
    return old;                                                       \
  }
EMU_ATOMIC(atomicAdd, old + value)
EMU_ATOMIC(atomicSub, old - value)
EMU_ATOMIC(atomicExch, value)
EMU_ATOMIC(atomicMin, value < old ? value : old)
EMU_ATOMIC(atomicMax, old < value ? value : old)
EMU_ATOMIC(atomicAnd, old & value)
EMU_ATOMIC(atomicOr, old | value)
EMU_ATOMIC(atomicXor, old ^ value)
template <typename T>
inline T atomicCAS(T *address, typename EmuSame<T>::type compare, typename EmuSame<T>::type value) {
  const T old = *address;
  if (old == compare) *address = value;
  return old;
}

// ---- Loads, bits and arithmetic.
template <typename T>
inline T __ldg(const T *address) {
  return *address;
}
template <typename T>
inline T __ldcs(const T *address) {
  return *address;
}
template <typename T>
inline T __ldcg(const T *address) {
  return *address;
}
template <typename T>
inline void __stcs(T *address, T value) {
  *address = value;
}
inline int __float_as_int(float value) { return emuFromSlot<int>(emuToSlot(value)); }
inline unsigned __float_as_uint(float value) { return emuFromSlot<unsigned>(emuToSlot(value)); }
inline float __int_as_float(int value) { return emuFromSlot<float>(emuToSlot(value)); }
inline float __uint_as_float(unsigned value) { return emuFromSlot<float>(emuToSlot(value)); }
inline double __longlong_as_double(long long value) { return emuFromSlot<double>(emuToSlot(value)); }
inline long long __double_as_longlong(double value) { return emuFromSlot<long long>(emuToSlot(value)); }
inline int __popc(unsigned value) { return __builtin_popcount(value); }
inline int __popcll(unsigned long long value) { return __builtin_popcountll(value); }
inline int __clz(int value) { return value == 0 ? 32 : __builtin_clz((unsigned)value); }
inline int __ffs(int value) { return __builtin_ffs(value); }
inline float rsqrtf(float value) { return 1.0f / sqrtf(value); }
inline double rsqrt(double value) { return 1.0 / sqrt(value); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __frcp_rn(float value) { return 1.0f / value; }
inline float __fsqrt_rn(float value) { return sqrtf(value); }
inline float __frsqrt_rn(float value) { return 1.0f / sqrtf(value); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __saturatef(float value) { return value > 0.0f ? (value < 1.0f ? value : 1.0f) : 0.0f; }
inline int __float2int_rn(float value) { return (int)lrintf(value); }
inline int __float2int_rz(float value) { return (int)value; }
inline float normcdff(float value) { return 0.5f * erfcf(-value * 0.70710678118654752f); }
// glibc declares some of these names itself, so they cannot be functions.
#define __expf(x) expf(x)
#define __exp10f(x) exp10f(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __powf(x, y) powf(x, y)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanf(x) tanf(x)
#define EMU_MIN_MAX(T)                                  \
  inline T min(T a, T b) { return b < a ? b : a; }      \
  inline T max(T a, T b) { return a < b ? b : a; }
EMU_MIN_MAX(int)
EMU_MIN_MAX(unsigned)
EMU_MIN_MAX(long)
EMU_MIN_MAX(unsigned long)
EMU_MIN_MAX(long long)
EMU_MIN_MAX(unsigned long long)
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }

#include "half.h"

// ---- Registration: what the parameters are, from the kernel's own type. `const T*` is read, `T*` written, the rest are values.
template <int...>
struct EmuCounts {};
template <typename T>
struct EmuPointer {
  static constexpr bool value = false, isConst = false;
};
template <typename T>
struct EmuPointer<T *> {
  static constexpr bool value = true, isConst = false;
};
template <typename T>
struct EmuPointer<const T *> {
  static constexpr bool value = true, isConst = true;
};
template <typename T>
constexpr uint8_t emuMode() {
  if constexpr (!EmuPointer<T>::value) return EMU_SCALAR;
  else if constexpr (EmuPointer<T>::isConst) return EMU_READ;
  else return EMU_WRITE;
}
template <auto F>
struct EmuCall;
template <typename... A, void (*F)(A...)>
struct EmuCall<F> {
  static constexpr int count = sizeof...(A);
  static constexpr uint32_t bytes[sizeof...(A) + 1] = {(uint32_t)sizeof(A)..., 0};
  static constexpr uint8_t modes[sizeof...(A) + 1] = {emuMode<A>()..., 0};
  static void run(void **parameters) { call(parameters, EmuCounts<__integer_pack(sizeof...(A))...>{}); }

private:
  template <int... I>
  static void call(void **parameters, EmuCounts<I...>) {
    (void)parameters;
    F(*(A *)parameters[I]...);
  }
};
extern const EmuKernel *emuKernels;
struct EmuRegistration {
  EmuKernel kernel;
  EmuRegistration(const char *name, int count, const uint32_t *bytes, const uint8_t *modes, void (*run)(void **))
      : kernel{name, count, bytes, modes, run, emuKernels} {
    emuKernels = &kernel;
  }
};
#define EMU_KERNEL(name)                                                                                             \
  static EmuRegistration emuRegistration_##name(#name, EmuCall<&name>::count, EmuCall<&name>::bytes,                 \
                                                EmuCall<&name>::modes, EmuCall<&name>::run);
// Once for each module, at its end.
#define EMU_MODULE_END                                                                                               \
  const EmuRuntime *emuRuntime;                                                                                      \
  EmuIndex emuThreadIndex, emuBlockIndex, emuBlockExtent, emuGridExtent;                                             \
  extern "C" unsigned char __start_emu_shared[] __attribute__((weak, visibility("hidden")));                         \
  extern "C" unsigned char __stop_emu_shared[] __attribute__((weak, visibility("hidden")));                          \
  extern "C" __attribute__((visibility("default"))) const EmuModule *emuModuleEntry() {                              \
    static const EmuModule module = {emuKernels,      &emuRuntime,     &emuThreadIndex,     &emuBlockIndex,          \
                                     &emuBlockExtent, &emuGridExtent,  __start_emu_shared,  __stop_emu_shared};      \
    return &module;                                                                                                  \
  }
#define EMU_MODULE_BEGIN const EmuKernel *emuKernels = nullptr;
