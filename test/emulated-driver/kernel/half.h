// Conversions between 32-bit and 16-bit numbers, bit by bit as IEEE 754 says: round to nearest, ties to even.
#pragma once
#include <stdint.h>
#include <string.h>

inline float emuHalfToFloat(uint16_t half) {
  const uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
  const uint32_t exponent = half >> 10 & 0x1f;
  uint32_t mantissa = half & 0x3ff;
  uint32_t bits;
  if (exponent == 31) {
    bits = sign | 0x7f800000u | mantissa << 13;
  } else if (exponent != 0) {
    bits = sign | (exponent + 112) << 23 | mantissa << 13;
  } else {
    // Subnormal: mantissa * 2^-24 is exact in 32 bits.
    const float value = (float)mantissa * 5.9604644775390625e-8f;
    memcpy(&bits, &value, 4);
    bits |= sign;
  }
  float result;
  memcpy(&result, &bits, 4);
  return result;
}

inline uint16_t emuFloatToHalf(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u) return sign | 0x7e00u;
  if (bits >= 0x47800000u) return sign | 0x7c00u;
  if (bits < 0x38800000u) {
    // Below the smallest normal number the unit is 2^-24; adding 0.5 makes the processor round at exactly that bit.
    float magnitude;
    memcpy(&magnitude, &bits, 4);
    magnitude += 0.5f;
    memcpy(&bits, &magnitude, 4);
    return sign | (uint16_t)(bits - 0x3f000000u);
  }
  bits += 0xfffu + (bits >> 13 & 1u);
  return sign | (uint16_t)((bits - 0x38000000u) >> 13);
}

inline float emuBfloatToFloat(uint16_t value) {
  const uint32_t bits = (uint32_t)value << 16;
  float result;
  memcpy(&result, &bits, 4);
  return result;
}

inline uint16_t emuFloatToBfloat(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40u);
  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
