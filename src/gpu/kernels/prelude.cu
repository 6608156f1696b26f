// The beginning of every kernel source. NVRTC compiles it without headers; for the emulated driver (EMU) g++ compiles
// the same text behind a header that supplies the CUDA language. A kernel is `KERNEL void name(const T* in, T* out, int
// n)`: a pointer to const is only read, any other pointer is written. The happens-before check of the tests relies on
// that.
#ifndef TURNTABLE_PRELUDE
#define TURNTABLE_PRELUDE

#define KERNEL extern "C" __global__

typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

static_assert(sizeof(i32) == 4 && sizeof(i64) == 8, "ONNX's integers have these widths");

// 16-bit floats are stored as bits, in types of their own, so that a forgotten conversion does not compile.
struct f16 {
  u16 bits;
};
struct bf16 {
  u16 bits;
};

#define F32_INFINITY (__int_as_float(0x7f800000))
#define F32_NAN (__int_as_float(0x7fc00000))
#define F32_MAX 3.402823466e+38f
#define F64_INFINITY (__longlong_as_double(0x7ff0000000000000LL))

__device__ __forceinline__ float f16ToF32(f16 value) {
#ifdef EMU
  return emuHalfToFloat(value.bits);
#else
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
  return result;
#endif
}

// Rounds to nearest, ties to even; too large values become infinite.
__device__ __forceinline__ f16 f32ToF16(float value) {
  f16 result;
#ifdef EMU
  result.bits = emuFloatToHalf(value);
#else
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
#endif
  return result;
}

__device__ __forceinline__ float bf16ToF32(bf16 value) { return __uint_as_float((u32)value.bits << 16); }

// Rounds to nearest, ties to even. In integers, since the instruction for it needs compute capability 8.0.
__device__ __forceinline__ bf16 f32ToBf16(float value) {
  const u32 bits = __float_as_uint(value);
  bf16 result;
  // Rounding would turn some NaNs into infinity.
  result.bits = (bits & 0x7fffffffu) > 0x7f800000u ? (u16)((bits >> 16) | 0x40u)
                                                  : (u16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
  return result;
}

// 16 bytes, aligned so that one instruction moves them.
struct alignas(16) Word {
  u32 a, b, c, d;
};

#endif
