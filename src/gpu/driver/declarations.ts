/**
 * The native functions that the engine calls, one table for each library: exported names, and the C types of their
 * parameters. Pointers and handles are `uint64_t`, since koffi passes plain numbers fastest and all structures are in
 * native memory. Unless noted, they return a status as `int`.
 */

export type NativeType = 'int' | 'uint32_t' | 'uint64_t' | 'size_t' | 'float';

export type DeclarationTable = Readonly<Record<string, readonly NativeType[]>>;

/** The CUDA driver API, libcuda.so.1. Suffixes are part of the exported names; they select the 64-bit forms. */
export const driverFunctions = {
  cuInit: ['uint32_t'],
  cuDriverGetVersion: ['uint64_t'],
  cuGetErrorName: ['int', 'uint64_t'],
  cuDeviceGet: ['uint64_t', 'int'],
  cuDeviceGetCount: ['uint64_t'],
  cuDeviceGetName: ['uint64_t', 'int', 'int'],
  cuDeviceGetAttribute: ['uint64_t', 'int', 'int'],
  cuDeviceGetPCIBusId: ['uint64_t', 'int', 'int'],
  cuDeviceGetUuid_v2: ['uint64_t', 'int'],
  cuDeviceTotalMem_v2: ['uint64_t', 'int'],
  cuDeviceCanAccessPeer: ['uint64_t', 'int', 'int'],
  cuDevicePrimaryCtxRetain: ['uint64_t', 'int'],
  cuDevicePrimaryCtxRelease_v2: ['int'],
  cuCtxSetCurrent: ['uint64_t'],
  cuCtxGetStreamPriorityRange: ['uint64_t', 'uint64_t'],
  cuCtxEnablePeerAccess: ['uint64_t', 'uint32_t'],
  cuMemGetInfo_v2: ['uint64_t', 'uint64_t'],
  cuMemAlloc_v2: ['uint64_t', 'size_t'],
  cuMemFree_v2: ['uint64_t'],
  cuMemHostAlloc: ['uint64_t', 'size_t', 'uint32_t'],
  cuMemFreeHost: ['uint64_t'],
  cuMemHostRegister_v2: ['uint64_t', 'size_t', 'uint32_t'],
  cuMemHostUnregister: ['uint64_t'],
  cuMemcpyAsync: ['uint64_t', 'uint64_t', 'size_t', 'uint64_t'],
  cuMemcpyPeerAsync: ['uint64_t', 'uint64_t', 'uint64_t', 'uint64_t', 'size_t', 'uint64_t'],
  // The value is an unsigned char, which is passed in a 32-bit register.
  cuMemsetD8Async: ['uint64_t', 'uint32_t', 'size_t', 'uint64_t'],
  cuStreamCreateWithPriority: ['uint64_t', 'uint32_t', 'int'],
  cuStreamDestroy_v2: ['uint64_t'],
  cuStreamWaitEvent: ['uint64_t', 'uint64_t', 'uint32_t'],
  cuStreamSynchronize: ['uint64_t'],
  cuEventCreate: ['uint64_t', 'uint32_t'],
  cuEventDestroy_v2: ['uint64_t'],
  cuEventRecord: ['uint64_t', 'uint64_t'],
  cuEventQuery: ['uint64_t'],
  cuEventElapsedTime: ['uint64_t', 'uint64_t', 'uint64_t'],
  cuModuleLoadData: ['uint64_t', 'uint64_t'],
  cuModuleGetFunction: ['uint64_t', 'uint64_t', 'uint64_t'],
  cuModuleUnload: ['uint64_t'],
  cuLaunchKernelEx: ['uint64_t', 'uint64_t', 'uint64_t', 'uint64_t'],
  cuStreamBeginCapture_v2: ['uint64_t', 'uint32_t'],
  cuStreamEndCapture: ['uint64_t', 'uint64_t'],
  cuGraphInstantiateWithFlags: ['uint64_t', 'uint64_t', 'uint64_t'],
  cuGraphExecUpdate_v2: ['uint64_t', 'uint64_t', 'uint64_t'],
  cuGraphLaunch: ['uint64_t', 'uint64_t'],
  cuGraphDestroy: ['uint64_t'],
  cuGraphExecDestroy: ['uint64_t'],
} as const satisfies DeclarationTable;

/** Exported only by the emulated driver, to check accesses to parts of an allocation. They return nothing. */
export const emulationFunctions = {
  emuDeclareRange: ['uint64_t', 'uint64_t'],
  emuForgetRange: ['uint64_t'],
} as const satisfies DeclarationTable;

/** The driver functions of the thread that waits for events. */
export const waitFunctions = {
  cuCtxSetCurrent: driverFunctions.cuCtxSetCurrent,
  cuEventQuery: driverFunctions.cuEventQuery,
} as const satisfies DeclarationTable;

/** The run-time compiler, libnvrtc. */
export const compilerFunctions = {
  nvrtcVersion: ['uint64_t', 'uint64_t'],
  nvrtcGetNumSupportedArchs: ['uint64_t'],
  nvrtcGetSupportedArchs: ['uint64_t'],
  nvrtcCreateProgram: ['uint64_t', 'uint64_t', 'uint64_t', 'int', 'uint64_t', 'uint64_t'],
  nvrtcCompileProgram: ['uint64_t', 'int', 'uint64_t'],
  nvrtcGetProgramLogSize: ['uint64_t', 'uint64_t'],
  nvrtcGetProgramLog: ['uint64_t', 'uint64_t'],
  nvrtcGetPTXSize: ['uint64_t', 'uint64_t'],
  nvrtcGetPTX: ['uint64_t', 'uint64_t'],
  nvrtcGetCUBINSize: ['uint64_t', 'uint64_t'],
  nvrtcGetCUBIN: ['uint64_t', 'uint64_t'],
  nvrtcDestroyProgram: ['uint64_t'],
} as const satisfies DeclarationTable;

const u64 = 'uint64_t';

/** Matrix products, libcublasLt. */
export const matmulFunctions = {
  // Returns the version instead of a status.
  cublasLtGetVersion: [],
  cublasLtCreate: ['uint64_t'],
  cublasLtDestroy: ['uint64_t'],
  cublasLtMatmulDescCreate: ['uint64_t', 'int', 'int'],
  cublasLtMatmulDescDestroy: ['uint64_t'],
  cublasLtMatmulDescSetAttribute: ['uint64_t', 'int', 'uint64_t', 'size_t'],
  // The leading dimension is an int64_t, never negative here.
  cublasLtMatrixLayoutCreate: ['uint64_t', 'int', 'uint64_t', 'uint64_t', 'uint64_t'],
  cublasLtMatrixLayoutDestroy: ['uint64_t'],
  cublasLtMatrixLayoutSetAttribute: ['uint64_t', 'int', 'uint64_t', 'size_t'],
  cublasLtMatmulPreferenceCreate: ['uint64_t'],
  cublasLtMatmulPreferenceDestroy: ['uint64_t'],
  cublasLtMatmulPreferenceSetAttribute: ['uint64_t', 'int', 'uint64_t', 'size_t'],
  // handle, operation, A, B, C, D, preference, requested, results, found
  cublasLtMatmulAlgoGetHeuristic: [u64, u64, u64, u64, u64, u64, u64, 'int', u64, u64],
  // handle, operation, alpha, A, its layout, B, its layout, beta, C, its layout, D, its layout, algorithm, workspace,
  // its bytes, stream
  cublasLtMatmul: [u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, 'size_t', u64],
} as const satisfies DeclarationTable;

type Numbers<Types extends readonly NativeType[]> = { readonly [Index in keyof Types]: number };

/** A call blocks; `async` runs it on a thread of koffi's pool, which has no current context. */
export interface NativeCall<Types extends readonly NativeType[]> {
  (...parameters: Numbers<Types>): number;
  async(...parameters: [...Numbers<Types>, (error: Error | null, status: number) => void]): void;
}

export type Calls<Table extends DeclarationTable> = { readonly [Name in keyof Table]: NativeCall<Table[Name]> };
