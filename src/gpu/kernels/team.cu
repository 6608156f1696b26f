// Reductions by a team: 1 thread, one warp, or a block of whole warps. All threads of a team call, and all get the
// result. This file precedes each kernel that reduces; a program's kernels are one translation unit, hence the guard.
#ifndef TURNTABLE_TEAM
#define TURNTABLE_TEAM

struct Sum {
  template <typename T>
  static __device__ __forceinline__ T of(T a, T b) {
    return a + b;
  }
};
struct Product {
  template <typename T>
  static __device__ __forceinline__ T of(T a, T b) {
    return a * b;
  }
};
// With a NaN in either operand the result is NaN.
struct Maximum {
  template <typename T>
  static __device__ __forceinline__ T of(T a, T b) {
    return a > b || a != a ? a : b;
  }
};
struct Minimum {
  template <typename T>
  static __device__ __forceinline__ T of(T a, T b) {
    return a < b || a != a ? a : b;
  }
};

template <typename Operation, typename T>
__device__ __forceinline__ T warpReduce(T value) {
  for (int step = 16; step > 0; step >>= 1) {
    value = Operation::of(value, __shfl_xor_sync(0xffffffffu, value, step));
  }
  return value;
}

// `partial`: shared memory for one value of each warp of the team.
template <int team, typename Operation, typename T>
__device__ __forceinline__ T teamReduce(T value, T *partial) {
  if (team == 1) return value;
  value = warpReduce<Operation>(value);
  if (team == 32) return value;
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  T total = partial[0];
  for (int warp = 1; warp < team / 32; warp++) total = Operation::of(total, partial[warp]);
  // The next reduction overwrites `partial`.
  __syncthreads();
  return total;
}

#endif
