import { SpillFile } from '../../src/replay/traces/spill.ts';
import type { FunctionId, Given } from '../../src/schedule/index.ts';

/**
 * How often each function was invoked in each minute, read minute by minute. Functions have positions, 0 and up; cells
 * of count 0 are left out.
 */
export interface MinuteTable {
  readonly functionNames: readonly string[];
  /** Invocations of each function over all minutes. */
  readonly totals: Float64Array;
  readonly minutes: number;
  /** Calls `onCell` for each function invoked in this minute (0 and up), in the order of the functions. */
  readMinute(minute: number, onCell: (functionIndex: Given<FunctionId>, count: number) => void): void;
}

/** Buffer for the cells of one minute before they go to the file. */
const blockBytes = 2048;
/** Two numbers of 7 bits a byte: 5 bytes of function, 8 of count (below 2^53). */
const cellBytesMax = 13;

/**
 * Transposes a table that arrives function by function. Memory: 2 KiB for each minute, the names and totals of the
 * functions, and 12 bytes for each 2 KiB in the temporary file. A cell takes about three bytes, since each minute is a
 * list of (steps to the next function, count) in numbers of variable length.
 */
export class MinuteTableBuilder {
  readonly #minutes: number;
  readonly #names: string[] = [];
  readonly #totals: number[] = [];
  readonly #buffer: Uint8Array;
  readonly #filled: Uint32Array;
  /** The function of the last cell, for each minute. */
  readonly #last: Int32Array;
  readonly #blocks: { readonly offset: number; readonly bytes: number }[][];
  #spill: SpillFile | undefined;

  constructor(minutes: number) {
    this.#minutes = minutes;
    this.#buffer = new Uint8Array(minutes * blockBytes);
    this.#filled = new Uint32Array(minutes);
    this.#last = new Int32Array(minutes);
    this.#blocks = Array.from({ length: minutes }, () => []);
  }

  /** Begins the next function. */
  beginFunction(name: string): void {
    this.#names.push(name);
    this.#totals.push(0);
  }

  /** Adds a cell of the latest function: an integer above 0, once for each minute. */
  add(minute: number, count: number): void {
    const functionIndex = this.#names.length - 1;
    this.#totals[functionIndex]! += count;
    const start = minute * blockBytes;
    let filled = this.#filled[minute]!;
    if (filled > blockBytes - cellBytesMax) {
      this.#spillBlock(minute, start, filled);
      filled = 0;
    }
    let at = this.#put(start + filled, functionIndex - this.#last[minute]!);
    at = this.#put(at, count);
    this.#last[minute] = functionIndex;
    this.#filled[minute] = at - start;
  }

  #put(at: number, value: number): number {
    const buffer = this.#buffer;
    let rest = value;
    let next = at;
    while (rest >= 0x80) {
      buffer[next++] = (rest % 0x80) | 0x80;
      rest = Math.floor(rest / 0x80);
    }
    buffer[next++] = rest;
    return next;
  }

  #spillBlock(minute: number, start: number, filled: number): void {
    this.#spill ??= new SpillFile();
    const offset = this.#spill.append(this.#buffer.subarray(start, start + filled));
    this.#blocks[minute]!.push({ offset, bytes: filled });
  }

  /** Returns the table; the builder must not be used any more. */
  finish(): MinuteTable {
    const scratch = new Uint8Array(blockBytes);
    return {
      functionNames: this.#names,
      totals: Float64Array.from(this.#totals),
      minutes: this.#minutes,
      readMinute: (minute, onCell) => {
        let functionIndex = 0;
        for (const { offset, bytes } of this.#blocks[minute] ?? []) {
          const block = scratch.subarray(0, bytes);
          this.#spill?.read(offset, block);
          functionIndex = readCells(block, functionIndex, onCell);
        }
        const start = minute * blockBytes;
        readCells(this.#buffer.subarray(start, start + (this.#filled[minute] ?? 0)), functionIndex, onCell);
      },
    };
  }
}

/** Reads (step, count) pairs; returns the last function, from which the next block continues. */
function readCells(
  bytes: Uint8Array,
  firstFunction: number,
  onCell: (functionIndex: Given<FunctionId>, count: number) => void,
): number {
  let functionIndex = firstFunction;
  let at = 0;
  const next = (): number => {
    let value = 0;
    let scale = 1;
    for (;;) {
      const byte = bytes[at++]!;
      value += (byte & 0x7f) * scale;
      if (byte < 0x80) return value;
      scale *= 0x80;
    }
  };
  while (at < bytes.byteLength) {
    functionIndex += next();
    onCell(functionIndex, next());
  }
  return functionIndex;
}
