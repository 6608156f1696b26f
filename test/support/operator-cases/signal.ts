/** Cases of Fourier transforms. */
import { filled, given, operatorCase, scalar, type Case, type CaseInput } from './case.ts';
import type { Attributes, Drawn, FamilyCases } from './draw.ts';

const dftOf = (
  name: string,
  shape: readonly number[],
  attributes: Attributes,
  more: readonly (CaseInput | undefined)[] = [],
): Case =>
  operatorCase('DFT', name, [given(filled('FP32', shape)), ...more], { attributes, opset: 20, tolerance: 1e-4 });

const dft: Drawn = (draw) => {
  const opset = draw.pick([17, 20, 20]);
  const complex = draw.chance(0.5);
  const shape = [draw.int(1, 3), draw.int(2, 12), ...(draw.chance(0.4) ? [draw.int(2, 9)] : []), complex ? 2 : 1];
  const axis = draw.int(0, shape.length - 2);
  const attributes: Attributes = complex ? draw.some({ inverse: 1 }) : draw.some({ onesided: 1 });
  const length = draw.chance(0.3) ? draw.values('INT64', [], [draw.int(2, 12)]) : undefined;
  const type = draw.pick(['FP32', 'FP32', 'FP64'] as const);
  return draw.case('DFT', [draw.x(type, shape), length, ...(opset === 20 ? [draw.values('INT64', [], [axis])] : [])], {
    attributes: { ...attributes, ...(opset === 17 ? { axis } : {}) },
    opset,
  });
};

/**
 * Real signals only: for complex ones ONNX Runtime 1.30 reads memory after the signal, and answers differently each
 * time.
 */
const stft: Drawn = (draw) => {
  const length = draw.int(4, 9);
  const window = draw.chance(0.6);
  return draw.case(
    'STFT',
    [
      draw.x('FP32', [draw.int(1, 2), draw.int(12, 30), 1]),
      draw.values('INT64', [], [draw.int(1, 5)]),
      window ? draw.w('FP32', [length]) : undefined,
      ...(window && draw.chance(0.5) ? [] : [draw.values('INT64', [], [length])]),
    ],
    { attributes: draw.some({ onesided: draw.int(0, 1) }) },
  );
};

export const signal: FamilyCases = {
  named: [
    dftOf('a power of two', [2, 16, 1], {}),
    dftOf('inverse of real', [2, 8, 1], { inverse: 1 }),
    dftOf('along -3', [2, 6, 4, 1], { onesided: 1 }, [undefined, scalar('INT64', -3)]),
    operatorCase(
      'STFT',
      'complex',
      [given(filled('FP32', [1, 20, 2])), scalar('INT64', 3), undefined, scalar('INT64', 8)],
      { attributes: { onesided: 0 }, tolerance: 1e-4 },
    ),
  ],
  drawn: { DFT: dft, STFT: stft },
};
