/** Rotary position embeddings: RotaryEmbedding of ONNX (opset 23) and of ONNX Runtime. */
import { floats, requireDatatype, Unsupported } from '../../../operators/index.ts';
import { coordinates } from '../common/indexing.ts';
import { requiredOutput } from '../common/inputs.ts';
import { forEachElement, parametersOf, written, type Elements } from '../common/elements.ts';
import type { Parameter } from '../common/launching.ts';
import type { Emitter, KernelName, Kernels, Operator, Value } from '../types.ts';
import { headsApart, headsTogether, rowAt, type Heads } from './heads.ts';

export interface Rotation {
  readonly batch: number;
  /** How many elements of each head are rotated, from the first on. */
  readonly turning: number;
  readonly interleaved: boolean;
  readonly cos: Value;
  readonly sin: Value;
  /** C expression over item b and row r of the row in the tables. */
  readonly position: string;
  readonly parameters: readonly Parameter[];
}

export function emitRotation(emitter: Emitter, rotation: Rotation, from: Heads, to: Heads): void {
  const { batch, turning, interleaved, cos, sin, position, parameters } = rotation;
  const { heads, rows, size } = from;
  const half = turning / 2;
  const [b = '0', h = '0', r = '0', c = '0'] = coordinates('i', [batch, heads, rows, size]);
  const tensors = { input: from, cosines: cos, sines: sin, output: written(to) };
  const body = ({ input, cosines, sines, output }: Record<keyof typeof tensors, Elements>): string[] => [
    `const i64 b = ${b}, h = ${h}, r = ${r}, c = ${c};`,
    `const ${input.stored} *own = input + (${rowAt(from)});`,
    `${input.computed} y = ${input.load('own[c]')};`,
    `if (c < ${turning}) {`,
    `  const bool second = ${interleaved ? 'c % 2 == 1' : `c >= ${half}`};`,
    `  const i64 pair = ${interleaved ? '(second ? c - 1 : c + 1)' : `(second ? c - ${half} : c + ${half})`};`,
    `  const i64 place = (i64)(${position}) * ${half} + ${interleaved ? 'c / 2' : `c % ${half}`};`,
    `  const ${input.computed} other = ${input.load('own[pair]')};`,
    `  const ${input.computed} turn = ${sines.at('place')} * other;`,
    `  y = ${cosines.at('place')} * y + (second ? turn : -turn);`,
    '}',
    output.set(`${rowAt(to)} + c`, 'y'),
  ];
  forEachElement(emitter, 'rotary_embedding', batch * heads * rows * size, tensors, body, { others: parameters });
}

/** Positions from ids [batch, rows], from one id for the first row of all items, or without ids the rows themselves. */
function positionOf(
  ids: Value | undefined,
  rows: number,
): { readonly position: string; readonly parameters: Parameter[] } {
  if (ids === undefined) return { position: `(b * ${rows} + r)`, parameters: [] };
  requireDatatype(ids, ['INT64']);
  const position =
    ids.elements === 1 && rows !== 1
      ? 'positions[0] + r'
      : ids.elements === 1
        ? 'positions[0]'
        : `positions[b * ${rows} + r]`;
  return { position, parameters: parametersOf({ positions: ids }) };
}

function rotary<Type extends KernelName>(
  type: Type,
  places: { readonly ids: number; readonly cos: number; readonly sin: number },
): Operator<Type> {
  return {
    type,
    emit(emitter) {
      const input = emitter.required(0, floats);
      const [cos, sin] = [emitter.required(places.cos), emitter.required(places.sin)];
      const output = requiredOutput(emitter);
      const named = emitter.attribute('num_heads', 0);
      const turned = emitter.attribute('rotary_embedding_dim', 0) || 2 * cos.shape.at(-1)!;
      if (emitter.attribute('is_packed_batching', 0) === 1) throw new Unsupported('its batch is packed');
      const { shape } = input;
      const apart = shape.length === 4;
      if (!apart && shape.length !== 3) throw new Unsupported(`'${input.name}' has ${shape.length} dimensions`);
      const heads = apart ? shape[1]! : named || shape[2]! / turned;
      const rows = apart ? shape[2]! : shape[1]!;
      const size = apart ? shape[3]! : shape[2]! / heads;
      const lie = apart ? headsApart : headsTogether;
      const rotation = {
        batch: shape[0]!,
        turning: turned,
        interleaved: emitter.attribute('interleaved', 0) === 1,
        cos,
        sin,
        ...positionOf(emitter.input(places.ids), rows),
      };
      const sizes = { heads, rows, size };
      emitRotation(emitter, rotation, lie(input, sizes), lie(output, sizes));
    },
  };
}

export const rotaryOperators = [
  rotary('RotaryEmbedding', { cos: 1, sin: 2, ids: 3 }),
  rotary('com.microsoft.RotaryEmbedding', { ids: 1, cos: 2, sin: 3 }),
] as const satisfies readonly Kernels[];
