/** Records what operators emit: launches over buffers, and one translation unit. */
import { Unsupported } from '../../operators/index.ts';
import type { MatmulDescription } from '../driver/types.ts';
import type { Buffer, Emitter } from '../operators/types.ts';
import type { Work } from '../work.ts';

export type DraftLaunch = Work<Buffer> & {
  readonly layer: number;
  readonly label: string;
  /**
   * The first written buffer may use the bytes of one of these if it is their last use: each element is read before it
   * is written, by the same thread.
   */
  readonly inPlaceOf: readonly Buffer[];
};

/** Limits of every CUDA device: a larger launch is refused when it is compiled, and not only when it runs. */
const threadsPerBlockMax = 1024;
const gridMax = [2 ** 31 - 1, 65_535, 65_535] as const;

const triple = ([x, y = 1, z = 1]: readonly [number, number?, number?]): [number, number, number] => [x, y, z];

/** Helpers of generated kernels: vectors of elements for one load or store, and minima and maxima that keep NaN. */
const shared = `template <typename T, int N> struct alignas(sizeof(T) * N) Vector { T at[N]; };
template <typename T> __device__ __forceinline__ T pick_smaller(T a, T b) { return a != a || a < b ? a : b; }
template <typename T> __device__ __forceinline__ T pick_larger(T a, T b) { return a != a || a > b ? a : b; }`;

export class Recorder {
  readonly launches: DraftLaunch[] = [];
  readonly #names = new Map<string, string>();
  readonly #sources = new Map<string, string>();
  #layer = 0;
  #label = '';

  /** Sets the layer and the label of the launches that follow. */
  at(layer: number, label: string): void {
    this.#layer = layer;
    this.#label = label;
  }

  add(work: Work<Buffer>, inPlaceOf: readonly Buffer[] = []): void {
    this.launches.push({ ...work, layer: this.#layer, label: this.#label, inPlaceOf });
  }

  copy(from: Buffer, to: Buffer, bytes: number): void {
    if (bytes > 0) this.add({ kind: 'copy', from, to, bytes });
  }

  fill(to: Buffer, byteValue: number, bytes: number): void {
    if (bytes > 0) this.add({ kind: 'fill', to, byteValue, bytes });
  }

  matmul(description: MatmulDescription, { a, b, d, bias }: Parameters<Emitter['matmul']>[1]): void {
    if (description.m === 0 || description.n === 0 || description.batch === 0) return;
    this.add({ kind: 'matmul', description, a, b, d, bias: bias ?? null });
  }

  kernel(hint: string, source: string): string {
    const known = this.#names.get(source);
    if (known !== undefined) return known;
    const name = `${hint.replaceAll(/\W/g, '_')}_${this.#names.size}`;
    this.#names.set(source, name);
    this.#sources.set(name, source.replaceAll(/\bNAME/g, name));
    return name;
  }

  launch(launch: Parameters<Emitter['launch']>[0], inPlaceOf: readonly Buffer[] = []): void {
    const grid = triple(launch.grid);
    const block = triple(launch.block);
    const whole = [...grid, ...block].every((size) => Number.isSafeInteger(size) && size >= 0);
    if (!whole)
      throw new RangeError(
        `kernel '${launch.kernel}' has the grid [${grid.join(',')}] and the blocks [${block.join(',')}]`,
      );
    if (grid.some((size) => size === 0)) return;
    if (grid.some((size, axis) => size > gridMax[axis]!) || block[0] * block[1] * block[2] > threadsPerBlockMax) {
      throw new Unsupported(
        `its grid [${grid.join(',')}] of blocks [${block.join(',')}] is larger than a device takes`,
      );
    }
    if (!this.#sources.has(launch.kernel)) throw new RangeError(`no kernel '${launch.kernel}' was added`);
    this.add(
      {
        kind: 'kernel',
        kernel: launch.kernel,
        grid,
        block,
        arguments: launch.arguments.map((argument) =>
          'buffer' in argument
            ? { type: 'pointer', operand: argument.buffer, access: argument.type, bytes: argument.buffer.bytes }
            : argument,
        ),
      },
      inPlaceOf,
    );
  }

  /** The translation unit with the kernels of `launched`, in the order in which they were added. */
  source(launched: ReadonlySet<string>): string {
    const kernels = [...this.#sources].filter(([name]) => launched.has(name)).map(([, source]) => source.trim());
    return kernels.length === 0 ? '' : [shared, ...kernels].join('\n\n');
  }
}
