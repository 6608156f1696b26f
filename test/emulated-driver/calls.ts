/** Calls the emulated CUDA driver through koffi alone, so its tests test the driver and nothing of src/gpu. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import koffi from 'koffi';
import type { EmulatedDriver } from './build.ts';

/** What the driver has seen since its configuration. */
export interface Report {
  readonly races: readonly string[];
  readonly racesFound: number;
  readonly unrecordedWaits: readonly string[];
  readonly faults: readonly string[];
  readonly freesInUse: readonly string[];
  readonly leaks: readonly string[];
  readonly live: Readonly<Record<string, number>>;
  readonly devices: readonly { readonly usedBytes: number; readonly peakBytes: number }[];
  readonly calls: Readonly<Record<string, number>>;
  readonly operations: number;
  readonly launches: number;
  readonly pageableCopies: number;
  readonly seed: number;
}

/**
 * Parameters of the driver's functions: `u` has 32 bits, `l` 64 (handles, addresses, sizes), `s` is a string. All
 * return a status.
 */
const signatures = {
  cuInit: 'u',
  cuDriverGetVersion: 'l',
  cuDeviceGetCount: 'l',
  cuDeviceGetName: 'luu',
  cuDeviceGetAttribute: 'luu',
  cuDeviceGetPCIBusId: 'luu',
  cuDeviceGetP2PAttribute: 'luuu',
  cuDeviceCanAccessPeer: 'luu',
  cuDevicePrimaryCtxRetain: 'lu',
  cuDevicePrimaryCtxRelease_v2: 'u',
  cuDevicePrimaryCtxReset_v2: 'u',
  cuCtxSetCurrent: 'l',
  cuCtxSynchronize: '',
  cuCtxEnablePeerAccess: 'lu',
  cuCtxDisablePeerAccess: 'l',
  cuMemAlloc_v2: 'll',
  cuMemFree_v2: 'l',
  cuMemGetInfo_v2: 'll',
  cuMemHostAlloc: 'llu',
  cuMemFreeHost: 'l',
  cuMemHostRegister_v2: 'llu',
  cuMemHostUnregister: 'l',
  cuMemHostGetDevicePointer_v2: 'llu',
  cuPointerGetAttribute: 'lul',
  cuMemAllocAsync: 'lll',
  cuMemFreeAsync: 'll',
  cuMemcpyAsync: 'llll',
  cuMemcpyHtoD_v2: 'lll',
  cuMemcpyDtoH_v2: 'lll',
  cuMemcpyPeerAsync: 'llllll',
  cuMemsetD8Async: 'lull',
  cuMemsetD32_v2: 'lul',
  cuStreamCreate: 'lu',
  cuStreamDestroy_v2: 'l',
  cuStreamSynchronize: 'l',
  cuStreamQuery: 'l',
  cuStreamWaitEvent: 'llu',
  cuEventCreate: 'lu',
  cuEventDestroy_v2: 'l',
  cuEventRecord: 'll',
  cuEventQuery: 'l',
  cuEventSynchronize: 'l',
  cuEventElapsedTime: 'lll',
  cuLaunchHostFunc: 'lll',
  cuModuleLoadData: 'll',
  cuModuleUnload: 'l',
  cuModuleGetFunction: 'lls',
  cuFuncSetAttribute: 'luu',
  cuLaunchKernel: 'luuuuuuulll',
  cuLaunchKernelEx: 'llll',
  cuStreamBeginCapture_v2: 'lu',
  cuStreamEndCapture: 'll',
  cuGraphInstantiateWithFlags: 'lll',
  cuGraphLaunch: 'll',
  cuGraphDestroy: 'l',
  cuGraphExecDestroy: 'l',
  cuGraphExecUpdate_v2: 'lll',
  cuGraphGetNodes: 'lll',
  cuGraphExecKernelNodeSetParams_v2: 'lll',
  cuMemCreate: 'llll',
  cuMemRelease: 'l',
  cuMemAddressReserve: 'lllll',
  cuMemAddressFree: 'll',
  cuMemMap: 'lllll',
  cuMemUnmap: 'll',
  cuMemSetAccess: 'llll',
  cuMemcpyBatchAsync_v2: '',
  emuConfigure: 's',
} as const;
const compilerSignatures = {
  nvrtcCreateProgram: 'lssull',
  nvrtcCompileProgram: 'lul',
  nvrtcGetProgramLogSize: 'll',
  nvrtcGetProgramLog: 'll',
  nvrtcGetCUBINSize: 'll',
  nvrtcGetCUBIN: 'll',
  nvrtcDestroyProgram: 'l',
} as const;
const productSignatures = {
  cublasLtCreate: 'l',
  cublasLtDestroy: 'l',
  cublasLtMatmulDescCreate: 'luu',
  cublasLtMatmulDescDestroy: 'l',
  cublasLtMatmulDescSetAttribute: 'lull',
  cublasLtMatrixLayoutCreate: 'lulll',
  cublasLtMatrixLayoutDestroy: 'l',
  cublasLtMatrixLayoutSetAttribute: 'lull',
  cublasLtMatmulPreferenceCreate: 'l',
  cublasLtMatmulPreferenceDestroy: 'l',
  cublasLtMatmulPreferenceSetAttribute: 'lull',
  cublasLtMatmulAlgoGetHeuristic: 'lllllllull',
  cublasLtMatmul: 'llllllllllllllll',
  emuLtLive: '',
} as const;

type Value = number | bigint | string;
type Calls<S> = { readonly [Name in keyof S]: (...values: readonly Value[]) => number };

function bind<S extends Readonly<Record<string, string>>>(path: string, table: S): Calls<S> {
  const library = koffi.load(path);
  const types = { u: 'uint32_t', l: 'uint64_t', s: 'const char *' } as Readonly<Record<string, string>>;
  const calls: Record<string, (...values: readonly Value[]) => number> = {};
  for (const [name, signature] of Object.entries(table)) {
    const parameters = Array.from(signature, (letter) => types[letter] ?? 'int');
    const call = library.func(name, 'int', parameters) as (...values: readonly Value[]) => number;
    calls[name] = (...values) => {
      if (values.length !== parameters.length)
        throw new TypeError(`${name} takes ${parameters.length} values, not ${values.length}`);
      return call(...values);
    };
  }
  libraries.push(library);
  return calls as Calls<S>;
}
/** Keeps the libraries referenced: koffi unloads one that is collected as garbage. */
const libraries: unknown[] = [];

export const OK = 0;
export const prelude = readFileSync(
  join(import.meta.dirname, '..', '..', 'src', 'gpu', 'kernels', 'prelude.cu'),
  'utf8',
);

function expectOk(status: number, call: string): void {
  if (status !== OK) throw new Error(`${call} gave ${status}`);
}

export type Driver = ReturnType<typeof openDriver>;

export function openDriver(paths: EmulatedDriver) {
  koffi.config({ sync_stack_size: 16 << 20, async_stack_size: 8 << 20 });
  const cu = bind(paths.libcuda, signatures);
  const nvrtc = bind(paths.libnvrtc, compilerSignatures);
  const lt = bind(paths.libcublasLt, productSignatures);
  const library = koffi.load(paths.libcuda);
  libraries.push(library);
  const failNext = library.func('emuFailNext', 'void', ['const char *', 'int', 'int']) as (
    name: string,
    status: number,
    after: number,
  ) => void;
  const loseDevice = library.func('emuLoseDevice', 'void', ['int', 'int']) as (device: number, status: number) => void;
  const declareRange = library.func('emuDeclareRange', 'void', ['uint64_t', 'uint64_t']) as (
    address: number,
    bytes: number,
  ) => void;
  const forgetRange = library.func('emuForgetRange', 'void', ['uint64_t']) as (address: number) => void;
  const launchRanges = library.func('emuLaunchRanges', 'void', ['uint64_t', 'uint32_t']) as (
    triples: number,
    count: number,
  ) => void;
  const forget = library.func('emuForget', 'void', []) as () => void;
  const lastError = library.func('emuLastError', 'const char *', []) as () => string;
  const reportText = library.func('emuReport', 'const char *', []) as () => string;

  // Calls read and write this one arena, and get no other memory of JavaScript.
  const arenaBytes = 1 << 20;
  const arenaPointer: unknown = koffi.alloc('uint8_t', arenaBytes);
  const arenaBuffer = koffi.view(arenaPointer, arenaBytes);
  const arena = new DataView(arenaBuffer);
  const arenaAddress = Number(koffi.address(arenaBuffer));
  let arenaUsed = 64;

  const memory = (bytes: number): { readonly at: number; readonly address: number } => {
    const at = Math.ceil(arenaUsed / 16) * 16;
    arenaUsed = at + bytes;
    if (arenaUsed > arenaBytes) throw new RangeError('the arena of the tests is used up');
    new Uint8Array(arenaBuffer, at, bytes).fill(0);
    return { at, address: arenaAddress + at };
  };
  /** Makes a call that writes its result to a slot, and returns the slot's content. */
  const out = (call: (slot: number) => number): number => {
    arena.setBigUint64(0, 0n, true);
    expectOk(call(arenaAddress), 'a call');
    return Number(arena.getBigUint64(0, true));
  };
  const pointers = (values: readonly number[]): number => {
    const list = memory(8 * values.length + 8);
    for (const [index, value] of [...values, 0].entries()) arena.setBigUint64(list.at + 8 * index, BigInt(value), true);
    return list.address;
  };

  return {
    cu,
    nvrtc,
    lt,
    failNext,
    loseDevice,
    declareRange,
    forgetRange,
    forget,
    lastError,
    arena,
    arenaAddress,
    memory,
    out,
    pointers,
    /** Empties the arena, before the next test. */
    rewind: (): void => {
      arenaUsed = 64;
    },
    report: (): Report => JSON.parse(reportText()) as Report,
    launchRanges: (ranges: readonly (readonly [address: number, bytes: number, mode: number])[]): void => {
      launchRanges(pointers(ranges.flat()), ranges.length);
    },
    view: (address: number, bytes: number): ArrayBuffer => koffi.view(BigInt(address), bytes),
    configure: (configuration: object): void => {
      if (cu.emuConfigure(JSON.stringify(configuration)) !== OK) throw new Error(lastError());
    },
    /** Compiles with NVRTC, for compute capability 9.0; returns the address of the image. @throws Error with the log */
    compile: (source: string, options: readonly string[] = ['--gpu-architecture=sm_90']): number => {
      const program = out((slot) => nvrtc.nvrtcCreateProgram(slot, prelude + source, 'kernels.cu', 0, 0, 0));
      const texts = options.map((option) => {
        const text = memory(option.length + 1);
        new Uint8Array(arenaBuffer, text.at, option.length + 1).set(Buffer.from(`${option}\0`));
        return text.address;
      });
      const status = nvrtc.nvrtcCompileProgram(program, texts.length, pointers(texts));
      const logBytes = out((slot) => nvrtc.nvrtcGetProgramLogSize(program, slot));
      const log: unknown = koffi.alloc('uint8_t', logBytes);
      const logView = koffi.view(log, logBytes);
      nvrtc.nvrtcGetProgramLog(program, Number(koffi.address(logView)));
      if (status !== OK) throw new Error(`NVRTC ${status}: ${Buffer.from(logView).toString('utf8')}`);
      const bytes = out((slot) => nvrtc.nvrtcGetCUBINSize(program, slot));
      const image: unknown = koffi.alloc('uint8_t', bytes);
      images.push(image);
      const address = Number(koffi.address(koffi.view(image, bytes)));
      expectOk(nvrtc.nvrtcGetCUBIN(program, address), 'nvrtcGetCUBIN');
      const slot = pointers([program]);
      expectOk(nvrtc.nvrtcDestroyProgram(slot), 'nvrtcDestroyProgram');
      return address;
    },
    /** A parameter table for cuLaunchKernel: plain numbers are addresses, the rest has a type. */
    parameters: (...values: readonly (number | { readonly i32: number } | { readonly f32: number })[]): number =>
      pointers(
        values.map((value) => {
          const slot = memory(8);
          if (typeof value === 'number') arena.setBigUint64(slot.at, BigInt(value), true);
          else if ('i32' in value) arena.setInt32(slot.at, value.i32, true);
          else arena.setFloat32(slot.at, value.f32, true);
          return slot.address;
        }),
      ),
  };
}
/** Keeps compiled images referenced: the driver has only their addresses. */
const images: unknown[] = [];
