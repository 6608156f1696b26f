// The CUDA language for clang without CUDA's headers: enough to compile kernels to PTX. Functions of the device library
// are only declared, since nothing is linked.
#pragma once
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(n) __attribute__((aligned(n)))
#include <__clang_cuda_builtin_vars.h>

#define DEVICE extern "C" __device__
DEVICE float __int_as_float(int);
DEVICE float __uint_as_float(unsigned);
DEVICE unsigned __float_as_uint(float);
DEVICE int __float_as_int(float);
DEVICE double __longlong_as_double(long long);
DEVICE long long __double_as_longlong(double);
DEVICE float __fadd_rn(float, float);
DEVICE float __fsub_rn(float, float);
DEVICE float __fmul_rn(float, float);
DEVICE double __dadd_rn(double, double);
DEVICE double __dmul_rn(double, double);
static __device__ __forceinline__ int __shfl_xor_sync(unsigned mask, int value, int lane, int width = 32) {
  return __nvvm_shfl_sync_bfly_i32(mask, value, lane, ((32 - width) << 8) | 31);
}
static __device__ __forceinline__ int __shfl_up_sync(unsigned mask, int value, unsigned by, int width = 32) {
  return __nvvm_shfl_sync_up_i32(mask, value, by, (32 - width) << 8);
}
static __device__ __forceinline__ int __shfl_sync(unsigned mask, int value, int lane, int width = 32) {
  return __nvvm_shfl_sync_idx_i32(mask, value, lane, ((32 - width) << 8) | 31);
}
static __device__ __forceinline__ unsigned __ballot_sync(unsigned mask, int predicate) {
  return __nvvm_vote_ballot_sync(mask, predicate);
}
static __device__ __forceinline__ void __syncwarp(unsigned mask = 0xffffffffu) { __nvvm_bar_warp_sync(mask); }
// All other types are shuffled as 32-bit words, as in CUDA's headers.
template <typename T, typename Shuffle> static __device__ __forceinline__ T byWords(T value, Shuffle shuffle) {
  static_assert(sizeof(T) % 4 == 0, "only whole words are shuffled");
  int words[sizeof(T) / 4];
  __builtin_memcpy(words, &value, sizeof(T));
  for (int &word : words) word = shuffle(word);
  __builtin_memcpy(&value, words, sizeof(T));
  return value;
}
#define SHUFFLE(name)                                                                                       \
  template <typename T> static __device__ __forceinline__ T name(unsigned mask, T value, int by, int width = 32) { \
    return byWords(value, [=](int word) { return name(mask, word, by, width); });                                  \
  }
SHUFFLE(__shfl_xor_sync)
SHUFFLE(__shfl_up_sync)
SHUFFLE(__shfl_sync)

#define UNARY(name) DEVICE float name##f(float); DEVICE double name(double); static __device__ __forceinline__ float name(float x) { return name##f(x); }
#define BINARY(name) DEVICE float name##f(float, float); DEVICE double name(double, double); static __device__ __forceinline__ float name(float x, float y) { return name##f(x, y); }
UNARY(exp) UNARY(exp2) UNARY(expm1) UNARY(log) UNARY(log2) UNARY(log10) UNARY(log1p) UNARY(sqrt) UNARY(cbrt) UNARY(erf) UNARY(erfc)
UNARY(sin) UNARY(cos) UNARY(tan) UNARY(asin) UNARY(acos) UNARY(atan) UNARY(sinh) UNARY(cosh) UNARY(tanh) UNARY(asinh) UNARY(acosh)
UNARY(atanh) UNARY(floor) UNARY(ceil) UNARY(round) UNARY(rint) UNARY(nearbyint) UNARY(trunc) UNARY(fabs) UNARY(rsqrt)
BINARY(pow) BINARY(fmin) BINARY(fmax) BINARY(fmod) BINARY(atan2) BINARY(copysign)
#undef UNARY
#undef BINARY
#undef SHUFFLE
#undef DEVICE
