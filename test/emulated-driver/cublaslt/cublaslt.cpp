// The emulated cuBLASLt: descriptors, the heuristic, and the checks of a product. It refuses what the real library refuses.
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "gemm.h"

#define EMU_API extern "C" __attribute__((visibility("default"))) int

extern "C" int emuInjected(const char *name);
extern "C" int emuHasDefect(const char *name);
extern "C" int emuEnqueue(uint64_t stream, const char *name, const uint64_t *accesses, uint32_t count, int (*run)(void *), void *data,
                          void (*drop)(void *));
extern "C" int emuCurrentArchitecture();

namespace {

enum Result { SUCCESS = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, ARCH_MISMATCH = 8, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };
enum Compute { COMPUTE_32F = 68, COMPUTE_32F_PEDANTIC = 69, FAST_16F = 74, FAST_16BF = 75, FAST_TF32 = 77 };

struct Handle {
  int architecture;
};
struct Description {
  int compute, scale, pointerMode = 0, transA = 0, transB = 0, epilogue = 1, biasType = -1;
  uint64_t bias = 0;
  int64_t biasStride = 0;
};
struct Layout {
  int type, order = 0, batch = 1;
  uint64_t rows, columns;
  int64_t ld, stride = 0;
};
struct Preference {
  uint64_t workspaceMax = 0;
  uint32_t alignment[4] = {256, 256, 256, 256};
};
// What the heuristic puts into the 64 bytes of an algorithm.
struct Algorithm {
  uint32_t magic;
  uint32_t alignment[4];
  uint32_t reserved;
  uint64_t problem, workspaceBytes;
};
static_assert(sizeof(Algorithm) <= 64, "the library's size");
const uint32_t algorithmMagic = 0x454d5541;

std::mutex lock;
std::map<const void *, char> live;

template <typename T>
T *keep(T *object, char kind) {
  std::lock_guard<std::mutex> hold(lock);
  live[object] = kind;
  return object;
}
template <typename T>
int drop(T *object, char kind) {
  std::lock_guard<std::mutex> hold(lock);
  const auto found = live.find(object);
  if (found == live.end() || found->second != kind) return INVALID_VALUE;
  live.erase(found);
  delete object;
  return SUCCESS;
}
bool is(const void *object, char kind) {
  std::lock_guard<std::mutex> hold(lock);
  const auto found = live.find(object);
  return found != live.end() && found->second == kind;
}

template <typename T>
int take(T &into, const void *from, size_t bytes) {
  if (!from || bytes != sizeof(T)) return INVALID_VALUE;
  memcpy(&into, from, bytes);
  return SUCCESS;
}

bool knownType(int type) { return type == R_32F || type == R_16F || type == R_16BF; }

struct Problem {
  int64_t m, n, k;
  uint64_t hash;
};

// Checks description and layouts before anything is chosen or run.
int examine(const Description *description, const Layout *a, const Layout *b, const Layout *c, const Layout *d, Problem &problem) {
  if (!is(description, 'd') || !is(a, 'l') || !is(b, 'l') || !is(c, 'l') || !is(d, 'l')) return INVALID_VALUE;
  problem.m = (int64_t)d->rows;
  problem.n = (int64_t)d->columns;
  problem.k = (int64_t)(description->transA ? a->rows : a->columns);
  const auto shaped = [](const Layout &layout, int transposed, int64_t rows, int64_t columns) {
    return transposed ? (int64_t)layout.rows == columns && (int64_t)layout.columns == rows
                      : (int64_t)layout.rows == rows && (int64_t)layout.columns == columns;
  };
  if (!shaped(*a, description->transA, problem.m, problem.k) || !shaped(*b, description->transB, problem.k, problem.n) ||
      !shaped(*c, 0, problem.m, problem.n))
    return INVALID_VALUE;
  if (a->batch != d->batch || b->batch != d->batch || c->batch != d->batch) return INVALID_VALUE;
  switch (description->compute) {
  case COMPUTE_32F:
  case COMPUTE_32F_PEDANTIC:
    break;
  case FAST_TF32:
  case FAST_16F:
  case FAST_16BF:
    if (a->type != R_32F) return NOT_SUPPORTED;
    break;
  default:
    return NOT_SUPPORTED;
  }
  if (description->scale != R_32F || description->pointerMode != 0) return NOT_SUPPORTED;
  if (!knownType(a->type) || a->type != b->type || c->type != d->type) return NOT_SUPPORTED;
  if (d->type != a->type && d->type != R_32F) return NOT_SUPPORTED;
  const int epilogue = description->epilogue;
  if (epilogue != 1 && epilogue != 2 && epilogue != 4 && epilogue != 6 && epilogue != 32 && epilogue != 36) return NOT_SUPPORTED;
  // A bias runs along the rows of D: the library supports that only for D by columns.
  if ((epilogue & 4) && d->order == 1) return NOT_SUPPORTED;
  if ((epilogue & 4) && description->biasType >= 0 && description->biasType != d->type) return NOT_SUPPORTED;
  if (c->order != d->order) return NOT_SUPPORTED;
  problem.hash = 1469598103934665603ull;
  for (const int64_t value :
       {problem.m, problem.n, problem.k, (int64_t)d->batch, (int64_t)a->type, (int64_t)d->type, (int64_t)description->compute,
        (int64_t)epilogue, (int64_t)description->transA, (int64_t)description->transB, a->ld, b->ld, c->ld, d->ld})
    problem.hash = (problem.hash ^ (uint64_t)value) * 1099511628211ull;
  return SUCCESS;
}

Operand operandOf(const Layout &layout, int transposed, uint64_t address) {
  Operand operand = {address, layout.type, layout.order == 1 ? layout.ld : 1, layout.order == 1 ? 1 : layout.ld, layout.stride};
  if (transposed) std::swap(operand.rowStep, operand.columnStep);
  return operand;
}

// The bytes that the elements of a matrix take: line by line where lines are apart and few, else from the first to the last.
void ranges(std::vector<uint64_t> &accesses, const Layout &layout, uint64_t address, bool writes) {
  const uint64_t size = bytesOf(layout.type);
  const uint64_t lines = layout.order == 1 ? layout.rows : layout.columns, along = layout.order == 1 ? layout.columns : layout.rows;
  const int items = layout.stride == 0 ? 1 : layout.batch;
  if (lines == 0 || along == 0) return;
  const bool apart = (uint64_t)layout.ld != along && lines * (uint64_t)items <= 1024;
  for (int item = 0; item < items; item++) {
    const uint64_t base = address + (uint64_t)(item * layout.stride) * size;
    for (uint64_t line = 0; line < (apart ? lines : 1); line++) {
      const uint64_t lo = base + line * (uint64_t)layout.ld * size;
      accesses.insert(accesses.end(), {lo, apart ? lo + along * size : base + ((lines - 1) * (uint64_t)layout.ld + along) * size, writes});
    }
  }
}

int runProduct(void *data) {
  multiply(*(const Product *)data);
  return 0;
}
void dropProduct(void *data) { delete (Product *)data; }

} // namespace

EMU_API cublasLtCreate(Handle **handle) {
  const int architecture = emuCurrentArchitecture();
  if (!architecture) return NOT_INITIALIZED;
  *handle = keep(new Handle{architecture}, 'h');
  return SUCCESS;
}
EMU_API cublasLtDestroy(Handle *handle) { return drop(handle, 'h'); }

extern "C" __attribute__((visibility("default"))) size_t cublasLtGetVersion() { return 130100; }

extern "C" __attribute__((visibility("default"))) const char *cublasLtGetStatusName(int status) {
  switch (status) {
  case SUCCESS:
    return "CUBLAS_STATUS_SUCCESS";
  case NOT_INITIALIZED:
    return "CUBLAS_STATUS_NOT_INITIALIZED";
  case 3:
    return "CUBLAS_STATUS_ALLOC_FAILED";
  case INVALID_VALUE:
    return "CUBLAS_STATUS_INVALID_VALUE";
  case ARCH_MISMATCH:
    return "CUBLAS_STATUS_ARCH_MISMATCH";
  case EXECUTION_FAILED:
    return "CUBLAS_STATUS_EXECUTION_FAILED";
  case 14:
    return "CUBLAS_STATUS_INTERNAL_ERROR";
  case NOT_SUPPORTED:
    return "CUBLAS_STATUS_NOT_SUPPORTED";
  default:
    return "CUBLAS_STATUS_UNKNOWN";
  }
}
extern "C" __attribute__((visibility("default"))) const char *cublasLtGetStatusString(int status) { return cublasLtGetStatusName(status); }

EMU_API cublasLtMatmulDescCreate(Description **description, int compute, int scale) {
  auto *made = new Description;
  made->compute = compute;
  made->scale = scale;
  *description = keep(made, 'd');
  return SUCCESS;
}
EMU_API cublasLtMatmulDescDestroy(Description *description) { return drop(description, 'd'); }

EMU_API cublasLtMatmulDescSetAttribute(Description *description, int attribute, const void *buffer, size_t bytes) {
  if (!is(description, 'd')) return INVALID_VALUE;
  switch (attribute) {
  case 2:
    return take(description->pointerMode, buffer, bytes);
  case 3:
    return take(description->transA, buffer, bytes);
  case 4:
    return take(description->transB, buffer, bytes);
  case 7:
    return take(description->epilogue, buffer, bytes);
  case 8:
    return take(description->bias, buffer, bytes);
  case 10:
    return take(description->biasStride, buffer, bytes);
  case 26:
    return take(description->biasType, buffer, bytes);
  default:
    fprintf(stderr, "emulated cuBLASLt: attribute %d of a matmul description is not supported\n", attribute);
    return NOT_SUPPORTED;
  }
}

EMU_API cublasLtMatrixLayoutCreate(Layout **layout, int type, uint64_t rows, uint64_t columns, int64_t ld) {
  auto *made = new Layout;
  made->type = type;
  made->rows = rows;
  made->columns = columns;
  made->ld = ld;
  *layout = keep(made, 'l');
  return SUCCESS;
}
EMU_API cublasLtMatrixLayoutDestroy(Layout *layout) { return drop(layout, 'l'); }

EMU_API cublasLtMatrixLayoutSetAttribute(Layout *layout, int attribute, const void *buffer, size_t bytes) {
  if (!is(layout, 'l')) return INVALID_VALUE;
  switch (attribute) {
  case 0:
    return take(layout->type, buffer, bytes);
  case 1: {
    int order;
    const int status = take(order, buffer, bytes);
    if (status) return status;
    if (order != 0 && order != 1) return NOT_SUPPORTED;
    layout->order = order;
    return SUCCESS;
  }
  case 2:
    return take(layout->rows, buffer, bytes);
  case 3:
    return take(layout->columns, buffer, bytes);
  case 4:
    return take(layout->ld, buffer, bytes);
  case 5:
    return take(layout->batch, buffer, bytes);
  case 6:
    return take(layout->stride, buffer, bytes);
  default:
    fprintf(stderr, "emulated cuBLASLt: attribute %d of a matrix layout is not supported\n", attribute);
    return NOT_SUPPORTED;
  }
}

EMU_API cublasLtMatmulPreferenceCreate(Preference **preference) {
  *preference = keep(new Preference, 'p');
  return SUCCESS;
}
EMU_API cublasLtMatmulPreferenceDestroy(Preference *preference) { return drop(preference, 'p'); }

EMU_API cublasLtMatmulPreferenceSetAttribute(Preference *preference, int attribute, const void *buffer, size_t bytes) {
  if (!is(preference, 'p')) return INVALID_VALUE;
  if (attribute == 1) return take(preference->workspaceMax, buffer, bytes);
  if (attribute >= 5 && attribute <= 8) return take(preference->alignment[attribute - 5], buffer, bytes);
  fprintf(stderr, "emulated cuBLASLt: attribute %d of a preference is not supported\n", attribute);
  return NOT_SUPPORTED;
}

EMU_API cublasLtMatmulAlgoGetHeuristic(Handle *handle, Description *description, Layout *a, Layout *b, Layout *c, Layout *d,
                                       Preference *preference, int wanted, unsigned char *results, int *found) {
  *found = 0;
  if (const int injected = emuInjected("cublasLtMatmulAlgoGetHeuristic")) return injected;
  if (!is(handle, 'h') || !is(preference, 'p') || wanted < 1) return INVALID_VALUE;
  Problem problem;
  const int status = examine(description, a, b, c, d, problem);
  if (status) return status;
  // A leading dimension may not be shorter than its line.
  for (const Layout *layout : {a, b, c, d})
    if ((uint64_t)layout->ld < (layout->order == 1 ? layout->columns : layout->rows)) return INVALID_VALUE;
  if (problem.m == 0 || problem.n == 0 || problem.k == 0) return NOT_SUPPORTED;
  // Acts as a library without an algorithm for the problem. The library counts by columns: its m are our columns.
  char name[96];
  snprintf(name, sizeof name, "product %lldx%lldx%lld", (long long)problem.n, (long long)problem.m, (long long)problem.k);
  if (emuHasDefect("products") || emuHasDefect(name)) return NOT_SUPPORTED;
  if (d->batch > 1 && description->biasStride && emuHasDefect("bias-by-item")) return NOT_SUPPORTED;
  Algorithm algorithm = {algorithmMagic, {}, 0, problem.hash, 0};
  memcpy(algorithm.alignment, preference->alignment, sizeof algorithm.alignment);
  algorithm.workspaceBytes = preference->workspaceMax < 65536 ? 0 : 65536;
  memset(results, 0, 96);
  memcpy(results, &algorithm, sizeof algorithm);
  memcpy(results + 64, &algorithm.workspaceBytes, 8);
  const float waves = 1.0f;
  memcpy(results + 76, &waves, 4);
  *found = 1;
  return SUCCESS;
}

EMU_API cublasLtMatmul(Handle *handle, Description *description, const float *alpha, uint64_t a, Layout *aLayout, uint64_t b,
                       Layout *bLayout, const float *beta, uint64_t c, Layout *cLayout, uint64_t d, Layout *dLayout,
                       const Algorithm *algorithm, uint64_t workspace, size_t workspaceBytes, uint64_t stream) {
  if (const int injected = emuInjected("cublasLtMatmul")) return injected;
  if (!is(handle, 'h')) return NOT_INITIALIZED;
  Problem problem;
  const int status = examine(description, aLayout, bLayout, cLayout, dLayout, problem);
  if (status) return status;
  if (!alpha || !beta || !a || !b || !d || (*beta != 0 && !c)) return INVALID_VALUE;
  uint64_t scratch = 0;
  if (algorithm) {
    if (algorithm->magic != algorithmMagic) return INVALID_VALUE;
    // An algorithm works only for the problem that it was found for.
    if (algorithm->problem != problem.hash) return NOT_SUPPORTED;
    const uint64_t addresses[4] = {a, b, *beta != 0 ? c : d, d};
    for (int i = 0; i < 4; i++)
      if (algorithm->alignment[i] && addresses[i] % algorithm->alignment[i]) {
        fprintf(stderr, "emulated cuBLASLt: operand %c is not aligned to the %u bytes that the heuristic was promised\n", "ABCD"[i],
                algorithm->alignment[i]);
        return INVALID_VALUE;
      }
    scratch = algorithm->workspaceBytes;
    if (workspaceBytes < scratch || (scratch && !workspace)) return INVALID_VALUE;
  }
  const int epilogue = description->epilogue;
  if ((epilogue & 4) && !description->bias) return INVALID_VALUE;
  Product product = {};
  product.m = problem.m;
  product.n = problem.n;
  product.k = problem.k;
  product.batch = dLayout->batch;
  product.a = operandOf(*aLayout, description->transA, a);
  product.b = operandOf(*bLayout, description->transB, b);
  product.c = operandOf(*cLayout, 0, c);
  product.d = operandOf(*dLayout, 0, d);
  product.alpha = *alpha;
  product.beta = *beta;
  product.rounding = description->compute == FAST_TF32   ? TO_TF32
                     : description->compute == FAST_16F  ? TO_F16
                     : description->compute == FAST_16BF ? TO_BF16
                                                         : EXACT;
  product.relu = epilogue == 2 || epilogue == 6;
  product.gelu = epilogue == 32 || epilogue == 36;
  product.bias = (epilogue & 4) ? description->bias : 0;
  product.biasType = dLayout->type;
  product.biasStride = emuHasDefect("bias-strides") ? 0 : description->biasStride;
  product.workspace = workspace;
  product.workspaceBytes = scratch;
  std::vector<uint64_t> accesses;
  ranges(accesses, *aLayout, a, false);
  ranges(accesses, *bLayout, b, false);
  if (*beta != 0) ranges(accesses, *cLayout, c, false);
  ranges(accesses, *dLayout, d, true);
  for (int item = 0; product.bias && item < (product.biasStride ? product.batch : 1); item++) {
    const uint64_t start = product.bias + (uint64_t)(item * product.biasStride) * bytesOf(product.biasType);
    accesses.insert(accesses.end(), {start, start + (uint64_t)problem.m * bytesOf(product.biasType), 0});
  }
  if (scratch) accesses.insert(accesses.end(), {workspace, workspace + scratch, 1});
  char name[96];
  snprintf(name, sizeof name, "a product of %lldx%lldx%lld", (long long)problem.m, (long long)problem.n, (long long)problem.k);
  const int enqueued = emuEnqueue(stream, name, accesses.data(), (uint32_t)(accesses.size() / 3), runProduct, new Product(product), dropProduct);
  return enqueued ? EXECUTION_FAILED : SUCCESS;
}

// How many handles, descriptions, layouts and preferences are live.
EMU_API emuLtLive() {
  std::lock_guard<std::mutex> hold(lock);
  return (int)live.size();
}
