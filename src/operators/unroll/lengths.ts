/** How many steps of each chunk each item of a batch has. */
import { ElementType } from '../../onnx/index.ts';
import type { OutputGraph } from './output-graph.ts';
import type { Lengths } from './recurrent-node.ts';
import type { Chunk } from '../chunks/time-axis.ts';
import { chunkName } from '../chunks/time-axis.ts';

export interface ChunkLengths {
  /** Value of a cell's sequence_lens, INT32 [batch]; '' if every item has all of the chunk's steps. */
  readonly steps: string;
  /** BOOL [1, batch, 1]: which items have a step in the chunk; undefined if all have. */
  readonly running: string | undefined;
}

export interface LengthParts {
  readonly chunks: readonly ChunkLengths[];
  /** BOOL [1, batch, 1]: which items have any step; undefined if all have. */
  readonly started: string | undefined;
}

const whole: ChunkLengths = { steps: '', running: undefined };

export function lengthParts(out: OutputGraph, lengths: Lengths, chunks: readonly Chunk[]): LengthParts {
  switch (lengths.kind) {
    case 'full':
      return { chunks: chunks.map(() => whole), started: undefined };
    case 'constant':
      return constantParts(out, lengths.steps, chunks);
    case 'value':
      return computedParts(out, lengths.value, chunks);
  }
}

function constantParts(out: OutputGraph, lengths: readonly number[], chunks: readonly Chunk[]): LengthParts {
  const mask = (running: readonly boolean[]): string | undefined =>
    running.every(Boolean)
      ? undefined
      : out.constant(ElementType.BOOL, [1, running.length, 1], Uint8Array.from(running, Number));
  return {
    chunks: chunks.map(({ first, steps }) => {
      const own = lengths.map((length) => Math.min(Math.max(length - first, 0), steps));
      if (own.every((count) => count === steps)) return whole;
      return { steps: out.int32s(own), running: mask(own.map((count) => count > 0)) };
    }),
    started: mask(lengths.map((length) => length > 0)),
  };
}

/**
 * One computation for all chunks, [chunks, batch], which is then cut: a few small kernels instead of a few for each
 * chunk.
 */
function computedParts(out: OutputGraph, lengths: string, chunks: readonly Chunk[]): LengthParts {
  const counts = out.once(`lengths ${chunks.length} ${chunks[0]?.steps} ${lengths}`, () => {
    const column = (values: readonly number[]): string => out.int32s(values, [values.length, 1]);
    const none = out.int32s([0]);
    const left = out.derived('Sub', `${lengths}/left`, [lengths, column(chunks.map(({ first }) => first))]);
    const atLeastNone = out.derived('Max', `${lengths}/within/Max`, [left, none]);
    const within = out.derived('Min', `${lengths}/within`, [atLeastNone, column(chunks.map(({ steps }) => steps))]);
    const running = out.derived('Greater', `${lengths}/running/Greater`, [left, none]);
    const masks = out.derived('Reshape', `${lengths}/running`, [running, out.int64s([chunks.length, -1, 1])]);
    const ones = chunks.map(() => 1);
    const rows = out.split(
      within,
      0,
      ones,
      chunks.map((chunk) => `${within}/${chunkName(chunk)}/row`),
    );
    const flat = out.int64s([-1]);
    const parts = rows.map((row, index) =>
      out.derived('Reshape', `${within}/${chunkName(chunks[index]!)}`, [row, flat]),
    );
    return [
      ...parts,
      ...out.split(
        masks,
        0,
        ones,
        chunks.map((chunk) => `${masks}/${chunkName(chunk)}`),
      ),
    ];
  });
  const masks = counts.slice(chunks.length);
  return {
    chunks: chunks.map((_, index) => ({ steps: counts[index]!, running: masks[index] })),
    // The first chunk begins with the first step.
    started: masks[0],
  };
}
