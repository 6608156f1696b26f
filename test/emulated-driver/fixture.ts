/** The start of most tests of the emulated driver: a machine, contexts, two kernels. */
import { afterEach } from 'vitest';
import { buildEmulatedDriver } from './build.ts';
import { openDriver, type Driver } from './calls.ts';

const paths = await buildEmulatedDriver();
/** Undefined without g++: the tests are then skipped, and the build has said why. */
export const driver: Driver | undefined = paths === undefined ? undefined : openDriver(paths);

export const kernels = `
KERNEL void addOne(const float* in, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i] + 1.0f;
}
KERNEL void reverseInBlock(const float* in, float* out) {
  __shared__ float tile[64];
  tile[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = tile[63 - threadIdx.x];
}
KERNEL void reverseWithoutBarrier(const float* in, float* out) {
  __shared__ float tile[64];
  tile[threadIdx.x] = in[threadIdx.x];
  out[threadIdx.x] = tile[63 - threadIdx.x];
}
KERNEL void outOfBounds(float* out, int at) { out[at + threadIdx.x] = 1.0f; }
KERNEL void divergent(float* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1.0f, 1);
  else __syncthreads();
}
KERNEL void warpSum(const float* in, float* out, int n) {
  float* partial = (float*)emuDynamicShared();
  float sum = 0.0f;
  for (int i = threadIdx.x; i < n; i += blockDim.x) sum += in[i];
  for (int distance = 16; distance > 0; distance >>= 1) sum += __shfl_down_sync(0xffffffffu, sum, distance);
  if ((threadIdx.x & 31) == 0) partial[threadIdx.x >> 5] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    float total = 0.0f;
    for (int i = 0; i < (int)blockDim.x / 32; i++) total += partial[i];
    atomicAdd(out, total);
  }
}
KERNEL void votes(int* out) {
  const int lane = threadIdx.x & 31;
  const unsigned ballot = __ballot_sync(0xffffffffu, lane % 3 == 0);
  const int up = __shfl_up_sync(0xffffffffu, lane, 1), broadcast = __shfl_sync(0xffffffffu, lane, 5, 8);
  __syncwarp();
  out[threadIdx.x] = (__any_sync(0xffffffffu, lane == 7) ? 1 : 0) + (__all_sync(0xffffffffu, lane < 31) ? 2 : 0) +
                     up * 4 + broadcast * 1024 + __popc(ballot) * 65536;
}
KERNEL void roundTrip16(const float* in, float* halves, float* bfloats) {
  halves[threadIdx.x] = f16ToF32(f32ToF16(in[threadIdx.x]));
  bfloats[threadIdx.x] = bf16ToF32(f32ToBf16(in[threadIdx.x]));
}
`;

export interface Machine {
  readonly contexts: readonly number[];
  readonly kernel: (name: string, device?: number) => number;
  readonly alloc: (bytes: number) => number;
  readonly pinned: (values: ArrayLike<number>) => { readonly address: number; readonly values: Float32Array };
  readonly stream: () => number;
  readonly event: () => number;
  /** addOne over n floats. */
  readonly addOne: (from: number, to: number, n: number, stream: number) => number;
  readonly use: (device: number) => void;
}

let close: (() => void) | undefined;

/** Sets up the machine, with the first device current. It ends with the test, or with the test's next machine. */
export function machine(d: Driver, configuration: object): Machine {
  const { cu, out } = d;
  close?.();
  d.rewind();
  d.configure({ hostility: 'late', seed: 1, failOnRace: false, ...configuration });
  d.forget();
  cu.cuInit(0);
  const count = out((slot) => cu.cuDeviceGetCount(slot));
  const contexts = Array.from({ length: count }, (_, device) =>
    out((slot) => cu.cuDevicePrimaryCtxRetain(slot, device)),
  );
  const modules = new Map<number, number>();
  const use = (device: number): void => {
    if (cu.cuCtxSetCurrent(contexts[device] ?? 0) !== 0) throw new Error(`There is no device ${device}.`);
  };
  use(0);
  close = () => {
    close = undefined;
    for (let device = 0; device < count; device++) {
      d.loseDevice(device, 0);
      cu.cuDevicePrimaryCtxReset_v2(device);
    }
  };
  const kernel = (name: string, device = 0): number => {
    let module = modules.get(device);
    if (module === undefined) {
      module = out((slot) => cu.cuModuleLoadData(slot, d.compile(kernels)));
      modules.set(device, module);
    }
    const loaded = module;
    return out((slot) => cu.cuModuleGetFunction(slot, loaded, name));
  };
  return {
    contexts,
    kernel,
    use,
    alloc: (bytes) => out((slot) => cu.cuMemAlloc_v2(slot, bytes)),
    pinned: (values) => {
      const address = out((slot) => cu.cuMemHostAlloc(slot, values.length * 4, 3));
      const view = new Float32Array(d.view(address, values.length * 4));
      view.set(values);
      return { address, values: view };
    },
    stream: () => out((slot) => cu.cuStreamCreate(slot, 1)),
    event: () => out((slot) => cu.cuEventCreate(slot, 2)),
    addOne: (from, to, n, stream) =>
      cu.cuLaunchKernel(
        kernel('addOne'),
        Math.ceil(n / 64),
        1,
        1,
        64,
        1,
        1,
        0,
        stream,
        d.parameters(from, to, { i32: n }),
        0,
      ),
  };
}

afterEach(() => {
  close?.();
});
