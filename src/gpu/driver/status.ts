/** Status numbers of the libraries, and the errors that they become. */
import type { CudaErrorKind, GpuErrorCode } from '../types.ts';
import { CudaError } from './types.ts';

/** Driver statuses that callers handle themselves. */
export const notReady = 600;
export const peerAccessAlreadyEnabled = 704;
export const graphUpdateFailed = 910;

/** CUresult of cuda.h. Statuses that are not listed mean a misuse of the driver. */
const driverKinds: ReadonlyMap<number, CudaErrorKind> = new Map([
  [2, 'out-of-memory'], // OUT_OF_MEMORY
  [3, 'unavailable'], // NOT_INITIALIZED
  [4, 'unavailable'], // DEINITIALIZED
  [34, 'unavailable'], // STUB_LIBRARY
  [46, 'device-lost'], // DEVICE_UNAVAILABLE
  [100, 'unavailable'], // NO_DEVICE
  [209, 'unsupported'], // NO_BINARY_FOR_GPU
  [214, 'device-lost'], // ECC_UNCORRECTABLE
  [217, 'unsupported'], // PEER_ACCESS_UNSUPPORTED
  [218, 'compilation'], // INVALID_PTX
  [220, 'device-lost'], // NVLINK_UNCORRECTABLE
  [221, 'unavailable'], // JIT_COMPILER_NOT_FOUND
  [222, 'unsupported'], // UNSUPPORTED_PTX_VERSION
  [226, 'poisoned'], // CONTAINED
  [700, 'poisoned'], // ILLEGAL_ADDRESS
  [702, 'poisoned'], // LAUNCH_TIMEOUT
  [709, 'poisoned'], // CONTEXT_IS_DESTROYED
  [710, 'poisoned'], // ASSERT
  [714, 'poisoned'], // HARDWARE_STACK_ERROR
  [715, 'poisoned'], // ILLEGAL_INSTRUCTION
  [716, 'poisoned'], // MISALIGNED_ADDRESS
  [717, 'poisoned'], // INVALID_ADDRESS_SPACE
  [718, 'poisoned'], // INVALID_PC
  [719, 'poisoned'], // LAUNCH_FAILED
  [721, 'poisoned'], // TENSOR_MEMORY_LEAK
  [800, 'unavailable'], // NOT_PERMITTED
  [801, 'unsupported'], // NOT_SUPPORTED
  [802, 'unavailable'], // SYSTEM_NOT_READY
  [803, 'unavailable'], // SYSTEM_DRIVER_MISMATCH
  [804, 'unavailable'], // COMPAT_NOT_SUPPORTED_ON_DEVICE
  [805, 'unavailable'], // MPS_CONNECTION_FAILED
  [806, 'unavailable'], // MPS_RPC_FAILURE
  [807, 'unavailable'], // MPS_SERVER_NOT_READY
  [808, 'unavailable'], // MPS_MAX_CLIENTS_REACHED
  [809, 'unavailable'], // MPS_MAX_CONNECTIONS_REACHED
  [810, 'poisoned'], // MPS_CLIENT_TERMINATED
  [911, 'poisoned'], // EXTERNAL_DEVICE
  // The driver's status when a device fell off the bus.
  [999, 'device-lost'], // UNKNOWN
]);

/** nvrtcResult of nvrtc.h. */
const compilerStatuses: readonly (readonly [string, CudaErrorKind])[] = [
  ['NVRTC_SUCCESS', 'misuse'],
  ['NVRTC_ERROR_OUT_OF_MEMORY', 'out-of-memory'],
  ['NVRTC_ERROR_PROGRAM_CREATION_FAILURE', 'misuse'],
  ['NVRTC_ERROR_INVALID_INPUT', 'misuse'],
  ['NVRTC_ERROR_INVALID_PROGRAM', 'misuse'],
  ['NVRTC_ERROR_INVALID_OPTION', 'unsupported'],
  ['NVRTC_ERROR_COMPILATION', 'compilation'],
  ['NVRTC_ERROR_BUILTIN_OPERATION_FAILURE', 'unavailable'],
];

/** cublasStatus_t of cublas_api.h. It does not tell whether the context is poisoned; only the driver knows. */
const matmulStatuses: ReadonlyMap<number, readonly [string, CudaErrorKind]> = new Map([
  [1, ['CUBLAS_STATUS_NOT_INITIALIZED', 'unavailable']],
  [3, ['CUBLAS_STATUS_ALLOC_FAILED', 'out-of-memory']],
  [7, ['CUBLAS_STATUS_INVALID_VALUE', 'misuse']],
  [8, ['CUBLAS_STATUS_ARCH_MISMATCH', 'unsupported']],
  [11, ['CUBLAS_STATUS_MAPPING_ERROR', 'misuse']],
  [13, ['CUBLAS_STATUS_EXECUTION_FAILED', 'unsupported']],
  [14, ['CUBLAS_STATUS_INTERNAL_ERROR', 'unsupported']],
  [15, ['CUBLAS_STATUS_NOT_SUPPORTED', 'unsupported']],
  [16, ['CUBLAS_STATUS_LICENSE_ERROR', 'unsupported']],
]);

const meanings: Readonly<Record<CudaErrorKind, string>> = {
  unavailable: 'the GPU cannot be used here',
  'out-of-memory': 'memory is used up',
  'device-lost': 'the device was lost',
  poisoned: 'an earlier kernel or copy went wrong, and nothing on this device works until the process is started again',
  compilation: 'the kernels do not compile',
  unsupported: 'not supported by this device or library',
  misuse: 'the driver refused',
};

export function kindOfDriverStatus(status: number, call: string): CudaErrorKind {
  const kind = driverKinds.get(status) ?? 'misuse';
  // Before there is a context, nothing was lost: the device is unavailable.
  if (kind === 'device-lost' && (call === 'cuInit' || call === 'cuDevicePrimaryCtxRetain')) return 'unavailable';
  return kind;
}

/** The error of a driver call. `statusName`: the driver's name for the status, 'CUDA_ERROR_OUT_OF_MEMORY'. */
export function driverError(call: string, status: number, statusName: string, about = ''): CudaError {
  const kind = kindOfDriverStatus(status, call);
  const context = about === '' ? '' : ` (${about})`;
  return new CudaError(
    kind,
    call,
    status,
    statusName,
    `${call} failed with ${statusName} (${status})${context}: ${meanings[kind]}`,
  );
}

/** The engine's own mistake, found before the driver was called. */
export function misuse(call: string, message: string): CudaError {
  return new CudaError('misuse', call, 0, 'MISUSE', message);
}

/** Checks an NVRTC call. @throws CudaError unless the status is 0 */
export function checkCompiler(call: string, status: number, log = ''): void {
  if (status === 0) return;
  const [name, kind] = compilerStatuses[status] ?? [`NVRTC_ERROR_${status}`, 'misuse'];
  const detail = log === '' ? '' : `: ${log}`;
  throw new CudaError(kind, call, status, name, `${call} failed with ${name} (${status}): ${meanings[kind]}${detail}`);
}

/**
 * Checks a cuBLASLt call.
 *
 * @param contextError asks the driver whether an earlier fault caused the failure
 * @throws CudaError unless the status is 0
 */
export function checkMatmul(call: string, status: number, contextError: () => CudaError | undefined, about = ''): void {
  if (status === 0) return;
  const deeper = contextError();
  if (deeper !== undefined && isBeyondRelease(deeper.code)) throw deeper;
  const [name, kind] = matmulStatuses.get(status) ?? [`CUBLAS_STATUS_${status}`, 'misuse'];
  const context = about === '' ? '' : ` (${about})`;
  throw new CudaError(kind, call, status, name, `${call} failed with ${name} (${status})${context}: ${meanings[kind]}`);
}

/** Whether nothing on the device can be freed any more, because its context is gone. */
export const isBeyondRelease = (kind: GpuErrorCode): boolean =>
  kind === 'poisoned' || kind === 'device-lost' || kind === 'unavailable';
