/**
 * com.microsoft.GroupQueryAttention: queries of several heads share keys; the cache of keys and values is as long as its longest item, and
 * each item says how many of its rows are in use.
 */
import { elementBytes } from '../../../tensor/index.ts';
import { elementOf, floatLiteral, floats, requireDatatype } from '../common/element.ts';
import { broadcastStrides, coordinates, weightedSum } from '../common/indexing.ts';
import { knownNumbers, requiredOutput } from '../common/inputs.ts';
import { forEachElement, written } from '../common/elements.ts';
import type { Parameter } from '../common/launching.ts';
import { Unsupported, type Emitter, type Operator, type Value } from '../types.ts';
import { emitAttention, headsApart, headsTogether, softcapped, type Heads, type ScoreChange } from './core.ts';
import { emitRotation, type Rotation } from './rotary.ts';

interface Cache {
  readonly batch: number;
  readonly heads: number;
  readonly rows: number;
  readonly size: number;
  /** Rows of the whole cache. */
  readonly total: number;
  /** C expression over b: rows of the past that are in use. */
  readonly before: (b: string) => string;
  readonly lengths: Parameter;
}

/** The cache with the new rows behind the used part of the past, and zeros behind those. */
function emitPresent(emitter: Emitter, cache: Cache, past: Value | undefined, fresh: Heads, present: Heads): void {
  const { batch, heads, rows, size, total, before, lengths } = cache;
  const old = past === undefined || past.elements === 0 ? undefined : past;
  const [b = '0', h = '0', r = '0', c = '0'] = coordinates('i', [batch, heads, total, size]);
  const pastRows = old?.shape[2] ?? 0;
  const tensors = {
    past: old,
    fresh: { ...fresh, kept: fresh.type },
    output: written({ ...present, kept: present.type }),
  };
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

function emit(emitter: Emitter): void {
  const query = emitter.required(0);
  requireDatatype(query, floats);
  const heads = emitter.attribute('num_heads', 0);
  const keyHeads = emitter.attribute('kv_num_heads', 0);
  const y = requiredOutput(emitter);
  const key = emitter.input(1);
  const value = emitter.input(2);
  const lengths = emitter.required(5);
  requireDatatype(lengths, ['INT32']);
  const [longest] = knownNumbers(emitter, 6, 'total sequence length') ?? [];
  if (longest === undefined) throw new Unsupported('it does not say how long its longest sequence is');
  for (const [input, what] of [
    [11, 'head_sink'],
    [12, 'k_scale'],
    [13, 'v_scale'],
  ] as const) {
    if (emitter.input(input) !== undefined) throw new Unsupported(`its ${what} is used`);
  }
  if (emitter.attribute('smooth_softmax', 0) === 1) throw new Unsupported('its softmax is smoothed (smooth_softmax)');
  if (emitter.output(3) !== undefined) throw new Unsupported('its fourth output is used');
  const [batch, rows, width] = query.shape as [number, number, number];
  if (heads < 1 || keyHeads < 1 || heads % keyHeads !== 0) {
    throw new Unsupported(`${heads} heads of queries do not share ${keyHeads} heads of keys`);
  }
  const packed = key === undefined || value === undefined;
  const size = packed ? width / (heads + 2 * keyHeads) : width / heads;
  const bytes = elementBytes[query.kept];
  const inQuery = (offset: number): Heads => ({
    buffer: emitter.part(query.buffer, offset * bytes, (query.elements - offset) * bytes),
    type: query.kept,
    batch: rows * width,
    head: size,
    row: width,
  });
  const inputs = packed
    ? { q: inQuery(0), k: inQuery(heads * size), v: inQuery((heads + keyHeads) * size) }
    : {
        q: inQuery(0),
        k: headsTogether(key.buffer, key.kept, keyHeads, rows, size),
        v: headsTogether(value.buffer, value.kept, keyHeads, rows, size),
      };
  const prompt = rows === longest;
  const [pastKey, pastValue] = [emitter.input(3), emitter.input(4)];
  const total = Math.max(longest, pastKey?.shape[2] ?? 0);
  const parameter: Parameter = { name: 'lengths', type: 'i32', buffer: lengths.buffer };
  const before = (b: string): string => (prompt ? '0' : `((i64)lengths[${b}] + 1 - ${rows})`);
  const cache: Cache = { batch, heads: keyHeads, rows, size, total, before, lengths: parameter };

  let { q, k } = inputs;
  if (emitter.attribute('do_rotary', 0) === 1) {
    const [cos, sin, ids] = [emitter.required(7), emitter.required(8), emitter.input(9)];
    const rotation: Omit<Rotation, 'heads'> = {
      batch,
      rows,
      size,
      turning: 2 * cos.shape.at(-1)!,
      interleaved: emitter.attribute('rotary_interleaved', 0) === 1,
      cos,
      sin,
      // Rows behind an item's own have no place; ONNX Runtime gives them the second one.
      position:
        ids === undefined
          ? `(${before('b')} + r <= lengths[b] ? ${before('b')} + r : 1)`
          : `positions[b * ${rows} + r]`,
      parameters: ids === undefined ? [parameter] : [{ name: 'positions', type: 'i64', buffer: ids.buffer }],
    };
    const turned = (of: Heads, count: number): Heads => {
      const to = headsApart(
        emitter.scratch(batch * count * rows * size * elementBytes[of.type]),
        of.type,
        count,
        rows,
        size,
      );
      emitRotation(emitter, { ...rotation, heads: count }, of, to);
      return to;
    };
    q = turned(q, heads);
    k = turned(k, keyHeads);
  }
  const presentOf = (output: Value | undefined, past: Value | undefined, fresh: Heads): Heads => {
    const type = output?.datatype ?? fresh.type;
    const buffer = output?.buffer ?? emitter.scratch(batch * keyHeads * total * size * elementBytes[type]);
    const present = headsApart(buffer, type, keyHeads, total, size);
    emitPresent(emitter, cache, past, fresh, present);
    return present;
  };
  const present = { k: presentOf(emitter.output(1), pastKey, k), v: presentOf(emitter.output(2), pastValue, inputs.v) };
  const changes: ScoreChange[] = softcapped(emitter.attribute('softcap', 0), floatLiteral);
  const bias = emitter.input(10);
  if (bias !== undefined) {
    const strides = broadcastStrides(bias.shape, [batch, heads, rows, bias.shape.at(-1)!]);
    const element = elementOf(bias.kept);
    changes.push({
      parameters: [{ name: 'addend', type: element.stored, buffer: bias.buffer }],
      score: (x, { b, h, i, j }) =>
        `(${j} < ${bias.shape.at(-1)} ? ${x} + ${element.load(`addend[${weightedSum([b, h, i, j], strides)}]`)} : ${x})`,
    });
  }
  const window = emitter.attribute('local_window_size', -1);
  changes.push({
    parameters: [parameter],
    score: (x, { b, i, j, hidden }) => {
      const place = `${before(b)} + ${i}`;
      const tests = [`${j} > ${place}`, ...(window > 0 ? [`${j} <= ${place} - ${window}`] : [])];
      return `(${tests.join(' || ')} ? ${hidden} : ${x})`;
    },
  });
  emitAttention(emitter, {
    batch,
    heads,
    keyHeads,
    queries: rows,
    keys: total,
    size,
    valueSize: size,
    q,
    ...present,
    y: headsTogether(y.buffer, y.datatype, heads, rows, size),
    scale: emitter.attribute('scale', 0) || 1 / Math.sqrt(size),
    changes,
  });
}

export const groupQueryAttention: Operator = { type: 'com.microsoft.GroupQueryAttention', emit };
