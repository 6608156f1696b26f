/**
 * Products and convolutions that ONNX Runtime's optimiser has fused with their neighbours: FusedMatMul, FusedGemm,
 * FusedConv.
 */
import { asDeclared, requiredOutput } from '../common/inputs.ts';
import { operatorOf, permuted } from '../common/derived.ts';
import { mathOf } from '../common/teams.ts';
import { type Emitter, type KernelName, type Kernels, type Operator, Unsupported, type Value } from '../types.ts';
import { convolutionOperators } from './convolution.ts';
import { activated } from './activations.ts';
import { emitMatmul, matmulOperators } from './matmul.ts';
import { forEachElement, changed } from '../common/elements.ts';

/** Adds `addend` to a result in place, and applies the activation that an attribute names. */
function emitAfter(emitter: Emitter, output: Value, addend: Value | undefined, parameters: readonly number[]): void {
  const name = emitter.attribute<string>('activation', '');
  if (name === '' && addend === undefined) return;
  if (addend !== undefined && addend.elements !== output.elements) {
    throw new Unsupported(`'${addend.name}' of shape [${addend.shape.join(',')}] is added to its result`);
  }
  forEachElement(
    emitter,
    'activation',
    output.elements,
    { addend, data: changed(output) },
    ({ addend: other, data }) => [
      `const ${data.computed} x = ${data.at('i')}${other === undefined ? '' : ` + ${other.at('i')}`};`,
      data.set('i', `(${data.computed})${name === '' ? 'x' : activated(name, 'x', mathOf(data.computed), parameters)}`),
    ],
  );
}

const fusedConv = {
  type: 'com.microsoft.FusedConv',
  emit(emitter) {
    const output = requiredOutput(emitter);
    operatorOf(convolutionOperators, 'Conv').emit(emitter);
    emitAfter(emitter, output, emitter.input(3), emitter.attribute<readonly number[]>('activation_params', []));
  },
} satisfies Kernels;

const fusedGemm = {
  type: 'com.microsoft.FusedGemm',
  emit(emitter) {
    const output = requiredOutput(emitter);
    operatorOf(matmulOperators, 'Gemm').emit(emitter);
    const given = ['alpha', 'beta', 'gamma'].map((name) => emitter.attribute(`activation_${name}`, Number.NaN));
    emitAfter(
      emitter,
      output,
      undefined,
      given.filter((value) => !Number.isNaN(value)),
    );
  },
} satisfies Kernels;

/** Permutes [rows, batch..., depth] to [batch..., rows, depth]. */
function batchFirst(emitter: Emitter, value: Value): Value {
  const rank = value.shape.length;
  const order = [...Array.from({ length: rank - 2 }, (_, axis) => axis + 1), 0, rank - 1];
  return permuted(emitter, 'batch_first', asDeclared(emitter, value), order);
}

const fusedMatmul = <Type extends KernelName>(type: Type): Operator<Type> => ({
  type,
  emit(emitter) {
    const factor = (index: 0 | 1, name: 'A' | 'B'): Value => {
      const value = emitter.required(index);
      return emitter.attribute(`transBatch${name}`, 0) === 1 && value.shape.length > 2
        ? batchFirst(emitter, value)
        : value;
    };
    emitMatmul(emitter, factor(0, 'A'), factor(1, 'B'), requiredOutput(emitter), {
      transA: emitter.attribute('transA', 0) === 1,
      transB: emitter.attribute('transB', 0) === 1,
      alpha: emitter.attribute('alpha', 1),
    });
  },
});

export const fusedOperators = [
  fusedConv,
  fusedGemm,
  fusedMatmul('com.microsoft.FusedMatMul'),
  fusedMatmul('com.microsoft.TransposeMatMul'),
] as const satisfies readonly Kernels[];
