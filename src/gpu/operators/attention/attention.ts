/** ONNX's Attention, opsets 23 to 25. */
import { floats, Unsupported } from '../../../operators/index.ts';
import { parametersOf } from '../common/elements.ts';
import { convert, requiredOutput } from '../common/inputs.ts';
import { moveStrided } from '../common/launching.ts';
import type { Emitter, Kernels, Value } from '../types.ts';
import { emitAttention, softcapped } from './core.ts';
import { headsApart, headsTogether, maskOf, scratchHeads, type Heads, type ScoreChange } from './heads.ts';

/** @param value [batch, heads, rows, size], or [batch, rows, heads x size] with `heads` from an attribute */
function splitHeads(value: Value, heads: number): Heads {
  const { name, shape } = value;
  if (shape.length === 4) {
    const [, own, rows, size] = shape as [number, number, number, number];
    return headsApart(value, { heads: own, rows, size });
  }
  if (shape.length !== 3 || heads < 1 || shape[2]! % heads !== 0) {
    throw new Unsupported(`'${name}' of shape [${shape.join(',')}] is not made of ${heads} heads`);
  }
  const [, rows, width] = shape as [number, number, number];
  return headsTogether(value, { heads, rows, size: width / heads });
}

/** The past with the new rows behind it, in the output `present` or in scratch memory. */
function joined(
  emitter: Emitter,
  past: Value | undefined,
  fresh: Heads,
  batch: number,
  present: Value | undefined,
): Heads {
  if (past === undefined && present === undefined) return fresh;
  const { heads, rows, size } = fresh;
  const before = past?.shape[2] ?? 0;
  const type = present?.datatype ?? past!.datatype;
  const sizes = { heads, rows: before + rows, size };
  const whole = present ? headsApart(present, sizes) : scratchHeads(emitter, type, batch, sizes);
  const move = (hint: string, from: Heads, start: number): void => {
    const buffer = from.storedType === type ? from.buffer : convert(emitter, from, type).buffer;
    const [source, target] = [from, whole].map((of) => [of.batch, of.head, of.row, 1]) as [number[], number[]];
    const to = { buffer: whole.buffer, start, strides: target };
    moveStrided(emitter, hint, [batch, heads, from.rows, size], type, { buffer, start: 0, strides: source }, to);
  };
  if (past !== undefined) move('past_heads', headsApart(past, { heads, rows: before, size }), 0);
  move('new_heads', fresh, before * size);
  return whole;
}

function emit(emitter: Emitter): void {
  const [query, key, value] = [emitter.required(0, floats), emitter.required(1, floats), emitter.required(2, floats)];
  const y = requiredOutput(emitter);
  const batch = query.shape[0] ?? 0;
  const q = splitHeads(query, emitter.attribute('q_num_heads', 0));
  const newK = splitHeads(key, emitter.attribute('kv_num_heads', 0));
  const newV = splitHeads(value, emitter.attribute('kv_num_heads', 0));
  if (q.heads % newK.heads !== 0 || newV.heads !== newK.heads) {
    throw new Unsupported(`${q.heads} heads of queries do not share ${newK.heads} heads of keys`);
  }
  const pastKey = emitter.input(4);
  const nonpad = emitter.input(6);
  const k = joined(emitter, pastKey, newK, batch, emitter.output(1));
  const v = joined(emitter, emitter.input(5), newV, batch, emitter.output(2));
  const scores = [batch, q.heads, q.rows, k.rows];
  const mask = emitter.input(3);
  const changes: ScoreChange[] = softcapped(emitter);
  const softcaps = changes.length;
  if (mask !== undefined) changes.push(maskOf(mask, scores, 'hidden'));

  const parameters = parametersOf({ nonpad });
  const past = pastKey?.shape[2] ?? 0;
  const offset = (b: string): string =>
    nonpad !== undefined && pastKey === undefined ? `(nonpad[${b}] - ${q.rows})` : String(past);
  const [left, right] = [emitter.attribute('left_window_size', -1), emitter.attribute('right_window_size', -1)];
  const tests: ((b: string, i: string, j: string) => string)[] = [];
  if (nonpad !== undefined) tests.push((b, _, j) => `${j} >= nonpad[${b}]`);
  // In ONNX Runtime, a single row behind a past is the newest and sees all keys.
  const isCausal = emitter.attribute('is_causal', 0) === 1 && (past === 0 || q.rows > 1);
  if (isCausal) tests.push((b, i, j) => `${j} > ${i} + ${offset(b)}`);
  if (left >= 0) tests.push((b, i, j) => `${j} < ${i} + ${offset(b)} - ${left}`);
  if (right >= 0) tests.push((b, i, j) => `${j} > ${i} + ${offset(b)} + ${right}`);
  if (tests.length > 0) {
    changes.push({
      parameters,
      score: (x, { b, i, j, hidden }) => `(${tests.map((test) => test(b, i, j)).join(' || ')} ? ${hidden} : ${x})`,
    });
  }
  const captured = emitter.output(3);
  const mode = emitter.attribute('qk_matmul_output_mode', 0);
  const after = ([0, softcaps, changes.length, 'softmax'] as const)[mode];
  if (after === undefined) throw new Unsupported(`its qk_matmul_output_mode is ${mode}`);
  const lie = y.shape.length === 4 ? headsApart : headsTogether;
  emitAttention(emitter, {
    batch,
    q,
    k,
    v,
    y: lie(y, { ...q, size: v.size }),
    scale: emitter.attribute('scale', 0) || 1 / Math.sqrt(q.size),
    changes,
    scores: captured && { value: captured, after },
  });
}

export const attention = { type: 'Attention', emit } satisfies Kernels;
