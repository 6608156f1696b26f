/**
 * Matrix products by cuBLASLt. The library is column-major: the row-major D[m,n] = A[m,k] x B[k,n] is, byte for byte,
 * the column-major D'[n,m] = B'[n,k] x A'[k,m]. So its first operand is our B and its second our A. It adds a bias
 * along its rows only, which are our columns.
 */
import { LRUCache } from 'lru-cache';
import { getOrMake } from '../../tools/index.ts';
import type { matmulFunctions, Calls } from './declarations.ts';
import { readInteger64, writeInteger64, type NativeBlock } from './native-memory.ts';
import { Owned, type DeviceCore } from './session.ts';
import { checkMatmul, misuse } from './status.ts';
import { CudaError } from './types.ts';
import type { Matmul, MatmulDescription, MatmulEpilogue, MatmulOperands, MatmulType } from './types.ts';

/** cudaDataType_t */
const dataTypes: Readonly<Record<MatmulType, number>> = { f32: 0, f16: 2, bf16: 14 };
/** cublasComputeType_t */
const compute = { exact32: 68, tf32: 77 };
/** cublasLtEpilogue_t */
const epilogues: Readonly<Record<MatmulEpilogue, number>> = {
  none: 1,
  relu: 2,
  bias: 4,
  'relu-bias': 6,
  'gelu-tanh': 32,
  'gelu-tanh-bias': 36,
};
/** cublasLtMatmulDescAttributes_t */
const operation = { transposeA: 3, transposeB: 4, epilogue: 7, biasPointer: 8, biasStride: 10, biasType: 26 };
/** cublasLtMatrixLayoutAttribute_t */
const layout = { batchCount: 5, batchStride: 6 };
/** cublasLtMatmulPreferenceAttributes_t */
const preference = { workspaceBytesMax: 1, alignmentA: 5, alignmentB: 6, alignmentC: 7, alignmentD: 8 };
const transposed = 1;

/** Offsets in cublasLtMatmulHeuristicResult_t of cublasLt.h. */
const result = { algorithm: 0, algorithmBytes: 64, workspaceBytes: 64, state: 72, bytes: 96 };
const resultsWanted = 8;

/**
 * The most products of a batch that run one by one where the library has no algorithm for it. For larger batches one launch
 * of the engine's slower kernel is better.
 */
const itemsMax = 8;
const bytesOf: Readonly<Record<MatmulType, number>> = { f32: 4, f16: 2, bf16: 2 };

/**
 * The alignment of operands that algorithms may rely on, in bytes. The library's default is 256, which operands inside
 * sub-allocations rarely have.
 */
const alignmentUsual = 16;

/** cuBLASLt on one device. */
export class MatmulLibrary {
  readonly calls: Calls<typeof matmulFunctions>;
  readonly core: DeviceCore;
  readonly handle: number;
  /** The heuristic takes up to milliseconds of CPU time; equal products share its result. */
  readonly algorithms = new LRUCache<string, Algorithm>({ max: 4096 });

  constructor(calls: Calls<typeof matmulFunctions>, core: DeviceCore) {
    this.calls = calls;
    this.core = core;
    const { session } = core;
    session.use(core.context);
    this.handle = this.made('cublasLtCreate', calls.cublasLtCreate(session.outAddress()));
  }

  /** @throws CudaError unless the status is 0 */
  check(call: keyof typeof matmulFunctions, status: number, about?: string): void {
    if (status !== 0) checkMatmul(call, status, this.core.session.contextError, about);
  }

  /** The handle that a call has created. @throws CudaError unless the status is 0 */
  made(call: keyof typeof matmulFunctions, status: number, about?: string): number {
    this.check(call, status, about);
    return this.core.session.outInteger();
  }

  /** Sets an attribute to a non-negative integer of 4 or 8 bytes. @throws CudaError */
  set(call: AttributeCall, handle: number, attribute: number, value: number, bytes: 4 | 8): void {
    const { session } = this.core;
    // Little-endian, so an attribute of 4 bytes reads the low half.
    writeInteger64(session.out.data, 0, value);
    this.check(call, this.calls[call](handle, attribute, session.outAddress(), bytes));
  }

  release(): void {
    this.core.session.use(this.core.context);
    this.calls.cublasLtDestroy(this.handle);
    this.algorithms.clear();
  }
}

type AttributeCall = Extract<keyof typeof matmulFunctions, `${string}SetAttribute`>;

interface Algorithm {
  readonly bytes: Uint8Array;
  readonly workspaceBytes: number;
}

/** @throws CudaError 'unsupported' if the library has an algorithm for neither the batch nor its items */
export function createMatmul(library: MatmulLibrary, description: MatmulDescription): NativeMatmul {
  try {
    return new NativeMatmul(library, description, description.batch);
  } catch (error) {
    const isRefused = error instanceof CudaError && error.code === 'unsupported';
    if (!isRefused || description.batch === 1 || description.batch > itemsMax) throw error;
    return new NativeMatmul(library, description, 1);
  }
}

export class NativeMatmul extends Owned implements Matmul {
  readonly description: MatmulDescription;
  readonly workspaceBytes: number;
  readonly #library: MatmulLibrary;
  /** Items of one library call. */
  readonly #batch: number;
  /** alpha at 0, beta at 4, the address of the bias at 8, algorithms from 64 on. */
  readonly #block: NativeBlock;
  readonly #hasBias: boolean;
  readonly #operation: number;
  readonly #layouts: readonly [number, number, number];
  readonly #destroyers: (() => void)[] = [];
  /** Offsets in the block, by the operands' alignment. */
  readonly #algorithms = new Map<number, number>();
  #biasAddress = 0;

  /** @param batch of one library call: that of the description, or 1 */
  constructor(library: MatmulLibrary, description: MatmulDescription, batch: number) {
    super();
    checkDescription(description);
    const { core } = library;
    this.#library = library;
    this.#batch = batch;
    this.description = description;
    this.#hasBias = description.epilogue.endsWith('bias');
    this.#block = core.session.arena.allocate(64 + alignments.length * result.algorithmBytes);
    core.session.use(core.context);
    try {
      this.#block.data.setFloat32(0, description.alpha, true);
      this.#block.data.setFloat32(4, description.beta, true);
      this.#operation = this.#createOperation();
      const { m, n, k, transposeA, transposeB, lda, ldb, ldd, strideA, strideB, strideD } = description;
      // Column-major rows and columns as stored, before the operation transposes them.
      const b = this.#createLayout(description.typeB, transposeB ? [k, n] : [n, k], ldb, strideB);
      const a = this.#createLayout(description.typeA, transposeA ? [m, k] : [k, m], lda, strideA);
      const d = this.#createLayout(description.typeD, [n, m], ldd, strideD);
      this.#layouts = [b, a, d];
      this.workspaceBytes = this.#algorithm(alignmentUsual, description.workspaceBytesMax).workspaceBytes;
    } catch (error) {
      this.#destroy();
      throw error;
    }
    core.session.counts.matmuls++;
  }

  /** The device's context must be current. */
  run({ a, b, d, bias, workspace }: MatmulOperands, stream: number): void {
    if (this.released) throw misuse('cublasLtMatmul', 'a product was run after its release');
    const { batch, strideA, strideB, strideD, strideBias = 0, typeA, typeB, typeD } = this.description;
    for (let item = 0; item < batch; item += this.#batch) {
      const at = {
        a: a + item * strideA * bytesOf[typeA],
        b: b + item * strideB * bytesOf[typeB],
        d: d + item * strideD * bytesOf[typeD],
        bias: bias + item * strideBias * bytesOf[typeD],
        workspace,
      };
      this.#call(at, stream);
    }
  }

  #call({ a, b, d, bias, workspace }: MatmulOperands, stream: number): void {
    const { calls, handle } = this.#library;
    const { data, address } = this.#block;
    if (this.#hasBias && bias !== this.#biasAddress) {
      if (bias === 0) throw misuse('cublasLtMatmul', `epilogue '${this.description.epilogue}' needs a bias`);
      writeInteger64(data, 8, bias);
      const status = calls.cublasLtMatmulDescSetAttribute(this.#operation, operation.biasPointer, address + 8, 8);
      this.#library.check('cublasLtMatmulDescSetAttribute', status);
      this.#biasAddress = bias;
    }
    const alignment = alignmentOf(a, b, d);
    let place = this.#algorithms.get(alignment);
    if (place === undefined) {
      // Rare: an operand with a smaller alignment. The caller has already allocated `workspaceBytes`, so no more is
      // used.
      this.#algorithm(alignment, this.workspaceBytes);
      place = this.#algorithms.get(alignment)!;
    }
    const [layoutB, layoutA, layoutD] = this.#layouts;
    const status = calls.cublasLtMatmul(
      handle,
      this.#operation,
      address,
      b,
      layoutB,
      a,
      layoutA,
      address + 4,
      d,
      layoutD,
      d,
      layoutD,
      address + place,
      this.workspaceBytes === 0 ? 0 : workspace,
      this.workspaceBytes,
      stream,
    );
    this.#library.check('cublasLtMatmul', status, describe(this.description));
  }

  protected giveBack(): void {
    this.#destroy();
    this.#library.core.session.counts.matmuls--;
  }

  #destroy(): void {
    for (const destroy of this.#destroyers.splice(0)) destroy();
    this.#block.release();
  }

  #createOperation(): number {
    const { calls, core } = this.#library;
    const { description } = this;
    const computeType = usesTf32(description) ? compute.tf32 : compute.exact32;
    const created = calls.cublasLtMatmulDescCreate(core.session.outAddress(), computeType, dataTypes.f32);
    const handle = this.#library.made('cublasLtMatmulDescCreate', created);
    this.#destroyers.push(() => calls.cublasLtMatmulDescDestroy(handle));
    const set = (attribute: number, value: number, bytes: 4 | 8 = 4): void =>
      this.#library.set('cublasLtMatmulDescSetAttribute', handle, attribute, value, bytes);
    if (description.transposeB) set(operation.transposeA, transposed);
    if (description.transposeA) set(operation.transposeB, transposed);
    set(operation.epilogue, epilogues[description.epilogue]);
    if (this.#hasBias) set(operation.biasType, dataTypes[description.typeD]);
    const { strideBias = 0 } = description;
    if (strideBias !== 0 && this.#batch > 1) set(operation.biasStride, strideBias, 8);
    return handle;
  }

  #createLayout(type: MatmulType, [rows, columns]: readonly [number, number], leading: number, stride: number): number {
    const { calls, core } = this.#library;
    const out = core.session.outAddress();
    const created = calls.cublasLtMatrixLayoutCreate(out, dataTypes[type], rows, columns, leading);
    const handle = this.#library.made('cublasLtMatrixLayoutCreate', created, describe(this.description));
    this.#destroyers.push(() => calls.cublasLtMatrixLayoutDestroy(handle));
    if (this.#batch > 1) {
      this.#library.set('cublasLtMatrixLayoutSetAttribute', handle, layout.batchCount, this.#batch, 4);
      this.#library.set('cublasLtMatrixLayoutSetAttribute', handle, layout.batchStride, stride, 8);
    }
    return handle;
  }

  /** Chooses an algorithm for operands of an alignment, and copies it into the block. */
  #algorithm(alignment: number, workspaceBytesMax: number): Algorithm {
    const key = `${alignment} ${workspaceBytesMax} ${this.#batch} ${Object.values(this.description).join(' ')}`;
    const chosen = getOrMake(this.#library.algorithms, key, () => this.#choose(alignment, workspaceBytesMax));
    const place = 64 + alignments.indexOf(alignment) * result.algorithmBytes;
    new Uint8Array(this.#block.data.buffer, this.#block.data.byteOffset + place, result.algorithmBytes).set(
      chosen.bytes,
    );
    this.#algorithms.set(alignment, place);
    return chosen;
  }

  #choose(alignment: number, workspaceBytesMax: number): Algorithm {
    const { calls, core, handle } = this.#library;
    const { session } = core;
    const created = calls.cublasLtMatmulPreferenceCreate(session.outAddress());
    const wanted = this.#library.made('cublasLtMatmulPreferenceCreate', created);
    const results = session.arena.allocate(resultsWanted * result.bytes);
    try {
      const set = (attribute: number, value: number, bytes: 4 | 8): void =>
        this.#library.set('cublasLtMatmulPreferenceSetAttribute', wanted, attribute, value, bytes);
      set(preference.workspaceBytesMax, workspaceBytesMax, 8);
      const { alignmentA, alignmentB, alignmentC, alignmentD } = preference;
      for (const attribute of [alignmentA, alignmentB, alignmentC, alignmentD]) set(attribute, alignment, 4);
      const [b, a, d] = this.#layouts;
      const status = calls.cublasLtMatmulAlgoGetHeuristic(
        handle,
        this.#operation,
        b,
        a,
        d,
        d,
        wanted,
        resultsWanted,
        results.address,
        session.outAddress(),
      );
      this.#library.check('cublasLtMatmulAlgoGetHeuristic', status, describe(this.description));
      const found = session.outInt();
      for (let index = 0; index < found; index++) {
        const at = index * result.bytes;
        if (results.data.getInt32(at + result.state, true) !== 0) continue;
        const start = results.data.byteOffset + at + result.algorithm;
        return {
          bytes: new Uint8Array(results.data.buffer, start, result.algorithmBytes).slice(),
          workspaceBytes: readInteger64(results.data, at + result.workspaceBytes),
        };
      }
      const message = `cuBLASLt has no algorithm for the product ${describe(this.description)}`;
      throw new CudaError('unsupported', 'cublasLtMatmulAlgoGetHeuristic', 15, 'CUBLAS_STATUS_NOT_SUPPORTED', message);
    } finally {
      results.release();
      calls.cublasLtMatmulPreferenceDestroy(wanted);
    }
  }
}

/** Alignments to choose algorithms for, in bytes, the largest first. */
const alignments = [alignmentUsual, 8, 4, 2];

function alignmentOf(...addresses: readonly number[]): number {
  for (const alignment of alignments) {
    if (addresses.every((address) => address % alignment === 0)) return alignment;
  }
  throw misuse('cublasLtMatmul', 'the address of an operand is odd');
}

const usesTf32 = ({ tf32, typeA, typeB }: MatmulDescription): boolean => tf32 && typeA === 'f32' && typeB === 'f32';

function checkDescription(description: MatmulDescription): void {
  const { m, n, k, batch, lda, ldb, ldd, transposeA, transposeB, beta, typeA, typeB } = description;
  const wrong = [m, n, k, batch].some((size) => !Number.isInteger(size) || size < 1)
    ? 'its sizes must be positive'
    : lda < (transposeA ? m : k) || ldb < (transposeB ? k : n) || ldd < n
      ? 'a leading dimension is shorter than a row'
      : beta !== 0 && beta !== 1
        ? 'beta must be 0 or 1'
        : typeA !== typeB
          ? 'its operands must have the same type'
          : undefined;
  if (wrong !== undefined) throw misuse('cublasLtMatmul', `the product ${describe(description)} is refused: ${wrong}`);
}

/** 'f16[12,384,64] x f16[12,64,384] -> f32, epilogue bias' */
function describe({
  m,
  n,
  k,
  batch,
  typeA,
  typeB,
  typeD,
  transposeA,
  transposeB,
  epilogue,
}: MatmulDescription): string {
  const a = `${typeA}[${batch},${m},${k}]${transposeA ? ' (transposed)' : ''}`;
  const b = `${typeB}[${batch},${k},${n}]${transposeB ? ' (transposed)' : ''}`;
  return `${a} x ${b} -> ${typeD}, epilogue ${epilogue}`;
}
