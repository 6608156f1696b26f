// Matrix products of the emulated cuBLASLt.
#pragma once
#include <cstdint>

enum DataType { R_32F = 0, R_16F = 2, R_16BF = 14 };
enum Rounding { EXACT, TO_TF32, TO_F16, TO_BF16 };

// An operand as it is stored: element (row, column) of item b is at b * stride + row * rowStep + column * columnStep.
struct Operand {
  uint64_t address;
  int type;
  int64_t rowStep, columnStep, stride;
};

struct Product {
  int64_t m, n, k;
  int batch;
  Operand a, b, c, d;
  float alpha, beta;
  Rounding rounding;
  bool relu, gelu;
  uint64_t bias;
  int biasType;
  int64_t biasStride;
  uint64_t workspace, workspaceBytes;
};

uint32_t bytesOf(int type);
// D = activation(alpha * A x B + beta * C + bias), item by item; the sums are of 32-bit numbers.
void multiply(const Product &product);
