import type { Given, FunctionId } from '../../schedule/index.ts';
import type { TraceInvocation } from '../types.ts';
import { columnCount, columnsIn, InvocationBuffer, invocationAt } from './invocation-buffer.ts';
import { SpillFile } from './spill.ts';

/** Invocations per run: 17 MB. */
const runLengthDefault = 2 ** 19;
/** Read ahead per run while runs are merged, 32 KiB each. */
const readLength = 1024;
const recordBytes = columnCount * 8;

/**
 * Sorts any number of invocations by arrival: runs are sorted in memory, written to a temporary file and merged.
 * Memory: one run, and 32 KiB for each 17 MB on disk. Among equal arrivals the one added first comes first.
 */
export class InvocationSorter {
  readonly #runLength: number;
  readonly #run: InvocationBuffer;
  readonly #spilled: { readonly offset: number; readonly length: number }[] = [];
  #spill: SpillFile | undefined;

  constructor(runLength = runLengthDefault) {
    this.#runLength = runLength;
    this.#run = new InvocationBuffer(Math.min(runLength, 1024));
  }

  /** `durationMs` and `sloMs` are NaN if unknown. */
  add(arrivalMs: number, functionIndex: Given<FunctionId>, durationMs: number, sloMs = NaN): void {
    if (this.#run.length === this.#runLength) this.#spillRun();
    this.#run.push(arrivalMs, functionIndex, durationMs, sloMs);
  }

  #spillRun(): void {
    const run = this.#run;
    run.sort();
    this.#spill ??= new SpillFile();
    const { length } = run;
    // Column after column within each piece that is read at once, so that reading makes four views.
    let offset: number | undefined;
    for (let start = 0; start < length; start += readLength) {
      const end = Math.min(length, start + readLength);
      for (const column of run.columns) {
        const part = column.subarray(start, end);
        const at = this.#spill.append(new Uint8Array(part.buffer, part.byteOffset, part.byteLength));
        offset ??= at;
      }
    }
    this.#spilled.push({ offset: offset ?? 0, length });
    run.clear();
  }

  /** The sorted invocations, readable repeatedly; the sorter accepts no more of them. */
  finish(): () => Iterable<TraceInvocation> {
    const run = this.#run;
    const spill = this.#spill;
    if (spill === undefined) {
      run.sort();
      return function* inMemory() {
        for (let index = 0; index < run.length; index++) yield run.at(index);
      };
    }
    if (run.length > 0) this.#spillRun();
    const spilled = this.#spilled;
    return () => merge(spilled.map(({ offset, length }) => new RunReader(spill, offset, length)));
  }
}

/** One run, a piece of it in memory. */
class RunReader {
  readonly #spill: SpillFile;
  readonly #buffer = new ArrayBuffer(readLength * recordBytes);
  #offset: number;
  #left: number;
  #columns: ReturnType<typeof columnsIn> = [];
  #at = 0;

  constructor(spill: SpillFile, offset: number, length: number) {
    this.#spill = spill;
    this.#offset = offset;
    this.#left = length;
    this.#fill();
  }

  #fill(): void {
    const length = Math.min(readLength, this.#left);
    const bytes = new Uint8Array(this.#buffer, 0, length * recordBytes);
    this.#spill.read(this.#offset, bytes);
    this.#offset += bytes.byteLength;
    this.#left -= length;
    this.#columns = columnsIn(this.#buffer, length);
    this.#at = 0;
  }

  /** Infinity behind the last. */
  get arrivalMs(): number {
    return this.#columns[0]![this.#at] ?? Infinity;
  }

  take(): TraceInvocation {
    const taken = invocationAt(this.#columns, this.#at++);
    if (this.#at === this.#columns[0]!.length && this.#left > 0) this.#fill();
    return taken;
  }
}

/**
 * A binary heap over the runs. Among equal arrivals the earlier run comes first, whose invocations were added first.
 */
function* merge(runs: readonly RunReader[]): Generator<TraceInvocation> {
  const heap = [...runs.keys()];
  const before = (a: number, b: number): boolean => {
    const [left, right] = [runs[a]!.arrivalMs, runs[b]!.arrivalMs];
    return left < right || (left === right && a < b);
  };
  const sink = (from: number): void => {
    let at = from;
    for (;;) {
      let least = at;
      for (const child of [2 * at + 1, 2 * at + 2]) {
        if (child < heap.length && before(heap[child]!, heap[least]!)) least = child;
      }
      if (least === at) return;
      const moved = heap[at]!;
      heap[at] = heap[least]!;
      heap[least] = moved;
      at = least;
    }
  };
  for (let at = heap.length >> 1; at >= 0; at--) sink(at);
  for (;;) {
    const reader = runs[heap[0] ?? -1];
    if (reader === undefined || reader.arrivalMs === Infinity) return;
    yield reader.take();
    sink(0);
  }
}
