#include "gemm.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "../kernel/half.h"

namespace {

float read(uint64_t address, int type, int64_t index) {
  switch (type) {
  case R_16F:
    return emuHalfToFloat(((const uint16_t *)address)[index]);
  case R_16BF:
    return emuBfloatToFloat(((const uint16_t *)address)[index]);
  default:
    return ((const float *)address)[index];
  }
}

void write(uint64_t address, int type, int64_t index, float value) {
  switch (type) {
  case R_16F:
    ((uint16_t *)address)[index] = emuFloatToHalf(value);
    break;
  case R_16BF:
    ((uint16_t *)address)[index] = emuFloatToBfloat(value);
    break;
  default:
    ((float *)address)[index] = value;
  }
}

// Tensor cores read 19 bits of a 32-bit number: sign, exponent, and 10 bits of mantissa.
float toTf32(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  if ((bits & 0x7f800000u) == 0x7f800000u) return value;
  bits = (bits + 0xfffu + (bits >> 13 & 1u)) & ~0x1fffu;
  memcpy(&value, &bits, 4);
  return value;
}

float rounded(float value, Rounding rounding) {
  switch (rounding) {
  case TO_TF32:
    return toTf32(value);
  case TO_F16:
    return emuHalfToFloat(emuFloatToHalf(value));
  case TO_BF16:
    return emuBfloatToFloat(emuFloatToBfloat(value));
  default:
    return value;
  }
}

// Row-major and dense, as the inner loop needs it.
void pack(const Operand &operand, int64_t item, int64_t rows, int64_t columns, Rounding rounding, std::vector<float> &packed) {
  packed.resize((size_t)(rows * columns));
  const uint64_t base = operand.address + (uint64_t)(item * operand.stride) * bytesOf(operand.type);
  // In the order of the memory.
  if (operand.rowStep == 1) {
    for (int64_t column = 0; column < columns; column++)
      for (int64_t row = 0; row < rows; row++)
        packed[(size_t)(row * columns + column)] = rounded(read(base, operand.type, row + column * operand.columnStep), rounding);
  } else {
    for (int64_t row = 0; row < rows; row++)
      for (int64_t column = 0; column < columns; column++)
        packed[(size_t)(row * columns + column)] =
            rounded(read(base, operand.type, row * operand.rowStep + column * operand.columnStep), rounding);
  }
}

// sum[m][n] += a[m][k] * b[k][n], in blocks of k and n whose part of b stays in the nearest cache.
__attribute__((target_clones("arch=haswell", "default"))) void accumulate(const float *__restrict a, const float *__restrict b,
                                                                           float *__restrict sum, int64_t m, int64_t n, int64_t k) {
  const int64_t blockK = 64, blockN = 128;
  for (int64_t k0 = 0; k0 < k; k0 += blockK) {
    const int64_t k1 = std::min(k, k0 + blockK);
    for (int64_t n0 = 0; n0 < n; n0 += blockN) {
      const int64_t n1 = std::min(n, n0 + blockN);
      for (int64_t row = 0; row < m; row++) {
        float *__restrict out = sum + row * n;
        for (int64_t inner = k0; inner < k1; inner++) {
          const float factor = a[row * k + inner];
          const float *__restrict line = b + inner * n;
          for (int64_t column = n0; column < n1; column++) out[column] += factor * line[column];
        }
      }
    }
  }
}

float geluTanh(float x) { return 0.5f * x * (1.0f + std::tanh(0.7978845608028654f * (x + 0.044715f * x * x * x))); }

} // namespace

uint32_t bytesOf(int type) { return type == R_32F ? 4 : 2; }

void multiply(const Product &product) {
  // The real library's kernels use their scratch memory: this shows if others use it at the same time.
  if (product.workspaceBytes) memset((void *)product.workspace, 0xFF, product.workspaceBytes);
  std::vector<float> a, b, sum;
  for (int64_t item = 0; item < product.batch; item++) {
    if (item == 0 || product.a.stride) pack(product.a, item, product.m, product.k, product.rounding, a);
    if (item == 0 || product.b.stride) pack(product.b, item, product.k, product.n, product.rounding, b);
    sum.assign((size_t)(product.m * product.n), 0.0f);
    accumulate(a.data(), b.data(), sum.data(), product.m, product.n, product.k);
    const uint64_t c = product.c.address + (uint64_t)(item * product.c.stride) * bytesOf(product.c.type);
    const uint64_t d = product.d.address + (uint64_t)(item * product.d.stride) * bytesOf(product.d.type);
    for (int64_t column = 0; column < product.n; column++)
      for (int64_t row = 0; row < product.m; row++) {
        float value = product.alpha * sum[(size_t)(row * product.n + column)];
        if (product.beta != 0) value += product.beta * read(c, product.c.type, row * product.c.rowStep + column * product.c.columnStep);
        if (product.bias) value += read(product.bias, product.biasType, item * product.biasStride + row);
        if (product.relu) value = value > 0 || std::isnan(value) ? value : 0.0f;
        if (product.gelu) value = geluTanh(value);
        write(d, product.d.type, row * product.d.rowStep + column * product.d.columnStep, value);
      }
  }
}
