/**
 * com.microsoft.GroupQueryAttention: several query heads share one head of keys and values. The cache is as long as its
 * longest item needs, and each item has its own number of rows in use.
 */
import { floats, knownNumbers, Unsupported } from '../../../operators/index.ts';
import { elementBytes } from '../../../tensor/index.ts';
import { coordinates } from '../common/indexing.ts';
import { requiredOutput } from '../common/inputs.ts';
import { forEachElement, parametersOf, written } from '../common/elements.ts';
import type { Parameter } from '../common/launching.ts';
import type { Emitter, Kernels, Value } from '../types.ts';
import { emitAttention, softcapped } from './core.ts';
import { headsApart, headsTogether, maskOf, scratchHeads, type Heads, type ScoreChange } from './heads.ts';
import { emitRotation, type Rotation } from './rotary.ts';

interface Cache {
  readonly batch: number;
  /** Rows of the whole cache. */
  readonly total: number;
  /** C expression over b: how many rows of the past are in use. */
  readonly before: (b: string) => string;
  readonly lengths: Parameter;
}

/** Writes the new cache: the used part of the past, the new rows, then zeros. */
function emitPresent(emitter: Emitter, cache: Cache, past: Value | undefined, fresh: Heads, present: Heads): void {
  const { batch, total, before, lengths } = cache;
  const { heads, rows, size } = fresh;
  const old = past === undefined || past.elements === 0 ? undefined : past;
  const [b = '0', h = '0', r = '0', c = '0'] = coordinates('i', [batch, heads, total, size]);
  const pastRows = old?.shape[2] ?? 0;
  const tensors = { past: old, fresh, output: written(present) };
  const count = batch * heads * total * size;
  forEachElement(
    emitter,
    'present_heads',
    count,
    tensors,
    (of) => [
      `const i64 b = ${b}, h = ${h}, r = ${r}, c = ${c};`,
      `const i64 used = ${before('b')};`,
      `${of.output.computed} y = 0;`,
      of.past === undefined
        ? ''
        : `if (r < used && r < ${pastRows}) y = ${of.past.at(`((b * ${heads} + h) * ${pastRows} + r) * ${size} + c`)};`,
      `if (r >= used && r < used + ${rows}) y = ${of.fresh.at(`b * ${fresh.batch} + h * ${fresh.head} + (r - used) * ${fresh.row} + c`)};`,
      of.output.set('i', 'y'),
    ],
    { others: [lengths] },
  );
}

/** Heads and rows, from the inputs and attributes. @throws Unsupported for inputs or forms that are not covered */
function readQuery(emitter: Emitter) {
  const query = emitter.required(0, floats);
  const heads = emitter.attribute('num_heads', 0);
  const keyHeads = emitter.attribute('kv_num_heads', 0);
  const [key, value] = [emitter.input(1), emitter.input(2)];
  for (const [place, what] of [[11, 'head_sink'] as const, [12, 'k_scale'] as const, [13, 'v_scale'] as const])
    if (emitter.input(place) !== undefined) throw new Unsupported(`its ${what} is used`);
  if (emitter.attribute('smooth_softmax', 0) === 1) throw new Unsupported('its softmax is smoothed (smooth_softmax)');
  if (emitter.output(3) !== undefined) throw new Unsupported('its fourth output is used');
  if (heads < 1 || keyHeads < 1 || heads % keyHeads !== 0) {
    throw new Unsupported(`${heads} heads of queries do not share ${keyHeads} heads of keys`);
  }
  const [batch, rows, width] = query.shape as [number, number, number];
  const packed = key === undefined || value === undefined;
  const size = packed ? width / (heads + 2 * keyHeads) : width / heads;
  const bytes = elementBytes[query.storedType];
  const inQuery = (offset: number, count: number): Heads => ({
    buffer: emitter.part(query.buffer, offset * bytes, (query.elements - offset) * bytes),
    storedType: query.storedType,
    heads: count,
    rows,
    size,
    batch: rows * width,
    head: size,
    row: width,
  });
  const sizes = { heads: keyHeads, rows, size };
  return {
    batch,
    q: inQuery(0, heads),
    k: packed ? inQuery(heads * size, keyHeads) : headsTogether(key, sizes),
    v: packed ? inQuery((heads + keyHeads) * size, keyHeads) : headsTogether(value, sizes),
  };
}

/** Rotary embedding of queries and keys, by the positions of their rows in the cache. */
function rotated(emitter: Emitter, { batch, before, lengths }: Cache, heads: readonly Heads[]): Heads[] {
  const [cos, sin, ids] = [emitter.required(7), emitter.required(8), emitter.input(9)];
  const rotation: Rotation = {
    batch,
    turning: 2 * cos.shape.at(-1)!,
    interleaved: emitter.attribute('rotary_interleaved', 0) === 1,
    cos,
    sin,
    // Padding rows behind an item's own have no position; ONNX Runtime gives them position 1.
    position:
      ids === undefined
        ? `(${before('b')} + r <= lengths[b] ? ${before('b')} + r : 1)`
        : `positions[b * ${heads[0]!.rows} + r]`,
    parameters: ids === undefined ? [lengths] : parametersOf({ positions: ids }),
  };
  return heads.map((of) => {
    const to = scratchHeads(emitter, of.storedType, batch, of);
    emitRotation(emitter, rotation, of, to);
    return to;
  });
}

/** Hides keys behind a query's row, and those before its window. */
function windowOf(emitter: Emitter, { before, lengths }: Cache): ScoreChange {
  const window = emitter.attribute('local_window_size', -1);
  return {
    parameters: [lengths],
    score: (x, { b, i, j, hidden }) => {
      const place = `${before(b)} + ${i}`;
      const tests = [`${j} > ${place}`, ...(window > 0 ? [`${j} <= ${place} - ${window}`] : [])];
      return `(${tests.join(' || ')} ? ${hidden} : ${x})`;
    },
  };
}

function emit(emitter: Emitter): void {
  const { batch, q, k, v } = readQuery(emitter);
  const { heads, rows, size } = q;
  const y = requiredOutput(emitter);
  const lengths = emitter.required(5, ['INT32']);
  const [longest] = knownNumbers(emitter, 6, 'total sequence length') ?? [];
  if (longest === undefined) throw new Unsupported('it does not say how long its longest sequence is');
  const [pastKey, pastValue] = [emitter.input(3), emitter.input(4)];
  const total = Math.max(longest, pastKey?.shape[2] ?? 0);
  const cache: Cache = {
    batch,
    total,
    before: (b) => (rows === longest ? '0' : `((i64)lengths[${b}] + 1 - ${rows})`),
    lengths: { name: 'lengths', type: 'i32', buffer: lengths.buffer },
  };
  const bias = emitter.input(10);
  const isTurned = emitter.attribute('do_rotary', 0) === 1;
  const [turnedQ = q, turnedK = k] = isTurned ? rotated(emitter, cache, [q, k]) : [];
  const presentOf = (output: Value | undefined, past: Value | undefined, fresh: Heads): Heads => {
    const sizes = { ...fresh, rows: total };
    const present = output ? headsApart(output, sizes) : scratchHeads(emitter, fresh.storedType, batch, sizes);
    emitPresent(emitter, cache, past, fresh, present);
    return present;
  };
  emitAttention(emitter, {
    batch,
    q: turnedQ,
    k: presentOf(emitter.output(1), pastKey, turnedK),
    v: presentOf(emitter.output(2), pastValue, v),
    y: headsTogether(y, q),
    scale: emitter.attribute('scale', 0) || 1 / Math.sqrt(size),
    changes: [
      ...softcapped(emitter),
      ...(bias === undefined ? [] : [maskOf(bias, [batch, heads, rows, total], 'kept')]),
      windowOf(emitter, cache),
    ],
  });
}

export const groupQueryAttention = { type: 'com.microsoft.GroupQueryAttention', emit } satisfies Kernels;
