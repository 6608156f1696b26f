/** Tests of single beliefs about GPUs, driver and libraries. */
import {
  CudaError,
  type Cuda,
  type CudaDevice,
  type CudaKernel,
  type Matmul,
  type MatmulDescription,
  type PinnedKind,
} from '../driver/types.ts';
import type { Capability } from '../types.ts';
import type { Belief } from './beliefs.ts';

/**
 * Returns a detail such as a bandwidth. @throws Error that says why the belief does not hold
 *
 * @param without capabilities that earlier tests found missing
 */
export type Check = (cuda: Cuda, without: ReadonlySet<Capability>) => Promise<string>;

const count = 4096;
const bytes = count * 4;
/** Timed copies: long enough for a stable result, short enough to take less than a second. */
const timedBytes = 16 * 2 ** 20;
const timedCopies = 8;

const floatsAt = (view: Uint8Array): Float32Array =>
  new Float32Array(view.buffer, view.byteOffset, view.byteLength / 4);

function expectFloats(actual: Float32Array, expected: (index: number) => number, what: string): void {
  for (const [index, value] of actual.entries()) {
    // All values are small integers, so they must be exact.
    const wanted = expected(index);
    if (value !== wanted) throw new Error(`${what}: value ${index} is ${value}, not ${wanted}`);
  }
}

/** GB/s of copies one after the other; '' on emulated GPUs, where times mean nothing. */
async function bandwidthOf(cuda: Cuda, device: CudaDevice, to: number, from: number): Promise<string> {
  if (cuda.isEmulated) return '';
  using stream = device.createStream();
  using start = device.createEvent({ timing: true });
  using end = device.createEvent({ timing: true });
  stream.copy(to, from, timedBytes);
  stream.record(start);
  for (let copy = 0; copy < timedCopies; copy++) stream.copy(to, from, timedBytes);
  stream.record(end);
  await stream.finished();
  return `${((timedBytes * timedCopies) / end.msSince(start) / 1e6).toFixed(1)} GB/s`;
}

async function copyBoth(cuda: Cuda, pinned: PinnedKind): Promise<string> {
  const found: string[] = [];
  using host = await cuda.allocateHostAside(timedBytes, pinned);
  for (const device of cuda.devices) {
    using memory = device.allocate(timedBytes);
    using stream = device.createStream();
    const there = floatsAt(host.view(0, bytes));
    const back = floatsAt(host.view(bytes, bytes));
    for (let index = 0; index < count; index++) there[index] = index * 3 + device.index;
    back.fill(-1);
    stream.copy(memory.address, host.address, bytes);
    stream.copy(host.address + bytes, memory.address, bytes);
    await stream.finished();
    expectFloats(back, (index) => index * 3 + device.index, `pinned memory to GPU ${device.index} and back`);
    found.push(await bandwidthOf(cuda, device, memory.address, host.address));
  }
  return found.filter((text) => text !== '').join(', ');
}

const source = `KERNEL void selftest_0(const float* in, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i] * 2.0f + 1.0f;
}`;
const doubled = (index: number): number => index * 2 + 1;

async function withKernel(cuda: Cuda, device: CudaDevice, test: (kernel: CudaKernel) => Promise<void>): Promise<void> {
  using module = device.loadModule(await cuda.compiler.compile(source, device));
  await test(module.kernel('selftest_0'));
}

interface KernelRun {
  /** The memory of its operands. */
  readonly place: 'device' | 'host';
  readonly times?: 'once' | 'captured';
  readonly pinned?: PinnedKind;
}

/** Launches the kernel with operands in device memory or in pinned memory, or replays it from a graph. */
async function runKernel(cuda: Cuda, { place, times = 'once', pinned = 'allocated' }: KernelRun): Promise<void> {
  for (const device of cuda.devices) {
    await withKernel(cuda, device, async (kernel) => {
      using host = await cuda.allocateHostAside(2 * bytes, pinned);
      using memory = device.allocate(2 * bytes);
      using stream = device.createStream();
      const shape = { grid: [count / 256, 1, 1], block: [256, 1, 1] } as const;
      using launch = kernel.prepare(shape, ['pointer', 'pointer', 'i32']);
      const base = place === 'host' ? host.address : memory.address;
      for (const [index, value] of [base, base + bytes, count].entries()) launch.set(index, value);
      const given = floatsAt(host.view(0, bytes));
      for (let index = 0; index < count; index++) given[index] = index;
      if (place === 'device') stream.copy(memory.address, host.address, bytes);
      if (times === 'once') stream.launch(launch);
      else {
        using graph = stream.capture(() => {
          stream.fill(base + bytes, 0, bytes);
          stream.launch(launch);
        });
        stream.launchGraph(graph);
        stream.launchGraph(graph);
        await stream.finished();
      }
      if (place === 'device') stream.copy(host.address + bytes, memory.address + bytes, bytes);
      await stream.finished();
      const what = `a kernel on GPU ${device.index} with operands in ${place === 'host' ? 'pinned' : 'its'} memory`;
      expectFloats(floatsAt(host.view(bytes, bytes)), doubled, what);
    });
  }
}

const product: MatmulDescription = {
  m: 16,
  n: 32,
  k: 64,
  batch: 1,
  transposeA: false,
  transposeB: false,
  lda: 64,
  ldb: 32,
  ldd: 32,
  strideA: 0,
  strideB: 0,
  strideD: 0,
  typeA: 'f32',
  typeB: 'f32',
  typeD: 'f32',
  tf32: false,
  alpha: 1,
  beta: 0,
  epilogue: 'none',
  workspaceBytesMax: 2 ** 22,
};

const a = (row: number, depth: number): number => ((row + depth) % 7) - 3;
const b = (depth: number, column: number): number => ((depth * 3 + column) % 5) - 2;

const bias = (part: number, column: number): number => 100 * (part + 1) + column;

/** Undefined if the library has no algorithm: the engine then uses its own kernel. */
function createdOrNot(device: CudaDevice, description: MatmulDescription): Matmul | undefined {
  try {
    return device.createMatmul(description);
  } catch (error) {
    if (error instanceof CudaError && error.code === 'unsupported') return undefined;
    throw error;
  }
}

/** One product, or three as for Q, K and V: a batch with adjacent matrices and a bias for each. */
async function runProduct(cuda: Cuda, parts: 1 | 3): Promise<void> {
  const { m, n, k } = product;
  const [strideB, strideD] = [k * n, m * n];
  const isJoint = parts > 1;
  const joint = { ...product, batch: parts, strideB, strideD, strideBias: n, epilogue: 'bias' } as const;
  for (const device of cuda.devices) {
    using matmul = isJoint ? createdOrNot(device, joint) : device.createMatmul(product);
    if (matmul === undefined) continue;
    using host = cuda.allocateHost(2 ** 17);
    using memory = device.allocate(2 ** 17);
    using workspace = device.allocate(Math.max(256, matmul.workspaceBytes));
    using stream = device.createStream();
    const [atB, atBias, atD] = [2 ** 14, 2 ** 16 - 2 ** 12, 2 ** 16];
    const given = floatsAt(host.view(0, 2 ** 17));
    for (let index = 0; index < m * k; index++) given[index] = a(Math.floor(index / k), index % k);
    for (let index = 0; index < parts * strideB; index++)
      given[atB / 4 + index] = b(Math.floor(index / n) % k, index % n);
    for (let index = 0; index < parts * n; index++) given[atBias / 4 + index] = bias(Math.floor(index / n), index % n);
    stream.copy(memory.address, host.address, atD);
    const { address } = memory;
    stream.matmul(matmul, {
      a: address,
      b: address + atB,
      d: address + atD,
      bias: isJoint ? address + atBias : 0,
      workspace: workspace.address,
    });
    stream.copy(host.address + atD, address + atD, parts * strideD * 4);
    await stream.finished();
    const expected = (index: number): number => {
      const [part, row, column] = [Math.floor(index / strideD), Math.floor(index / n) % m, index % n];
      const sum = Array.from({ length: k }, (_, depth) => a(row, depth) * b(depth, column)).reduce((x, y) => x + y);
      return isJoint ? sum + bias(part, column) : sum;
    };
    const what = isJoint
      ? `three products at once on GPU ${device.index}, each with a bias of its own`
      : `a product on GPU ${device.index}`;
    expectFloats(floatsAt(host.view(atD, parts * strideD * 4)), expected, what);
  }
}

/** Copies from pinned memory to one GPU and on to another, which waits for an event if `byEvent`. */
async function handOn(cuda: Cuda, byEvent: boolean): Promise<string> {
  const found: string[] = [];
  for (const from of cuda.devices) {
    for (const to of cuda.devices) {
      if (from === to || !from.canAccessPeer(to)) continue;
      from.enablePeerAccess(to);
      using host = cuda.allocateHost(2 * bytes);
      using first = from.allocate(timedBytes);
      using second = to.allocate(timedBytes);
      using load = from.createStream();
      using next = (byEvent ? to : from).createStream();
      using loaded = from.createEvent();
      const given = floatsAt(host.view(0, bytes));
      for (let index = 0; index < count; index++) given[index] = index + from.index;
      load.copy(first.address, host.address, bytes);
      load.record(loaded);
      if (byEvent) next.wait(loaded);
      else await load.finished();
      next.copy(second.address, first.address, bytes);
      await next.finished();
      using back = to.createStream();
      back.copy(host.address + bytes, second.address, bytes);
      await back.finished();
      const what = `bytes from GPU ${from.index} to GPU ${to.index}`;
      expectFloats(floatsAt(host.view(bytes, bytes)), (index) => index + from.index, what);
      if (!byEvent) found.push(await bandwidthOf(cuda, from, second.address, first.address));
    }
  }
  if (cuda.devices.length < 2) return 'there is one GPU';
  return found.filter((text) => text !== '').join(', ');
}

const silent =
  (test: (cuda: Cuda, without: ReadonlySet<Capability>) => Promise<void>): Check =>
  async (cuda, without) => {
    await test(cuda, without);
    return '';
  };

export const checks = {
  copies: (cuda: Cuda) => copyBoth(cuda, 'allocated'),
  kernels: silent((cuda) => runKernel(cuda, { place: 'device' })),
  'registered-memory': (cuda: Cuda) => copyBoth(cuda, 'registered'),
  'host-reads-by-kernels': silent((cuda, without) =>
    runKernel(cuda, { place: 'host', pinned: without.has('registered-memory') ? 'allocated' : 'registered' }),
  ),
  products: silent(async (cuda) => {
    await runProduct(cuda, 1);
    await runProduct(cuda, 3);
  }),
  graphs: silent((cuda) => runKernel(cuda, { place: 'device', times: 'captured' })),
  'peer-copies': (cuda: Cuda) => handOn(cuda, false),
  'events-across-devices': (cuda: Cuda) => handOn(cuda, true),
} as const satisfies Record<Belief, Check>;
