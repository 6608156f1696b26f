/** Each record has cases, and gives their outputs the element types that they have. */
import { expect, test } from 'vitest';
import { families as records, fused } from '../../../src/operators/index.ts';
import { describeCase } from '../../support/operator-cases/case.ts';
import { families, isFused, type Family } from '../../support/operator-cases/index.ts';
import { inferredTypes } from '../../support/operator-cases/output-types.ts';

/** A case is one node with tensors, whose result ONNX Runtime's CPU kernels repeat. */
const withoutCases: Readonly<Record<string, string>> = {
  'a body, or what only a body can be given':
    'If Loop Scan SequenceMap BeamSearch GreedySearch Sampling WhisperBeamSearch',
  'sequences and optional values':
    'SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength SplitToSequence ConcatFromSequence Optional OptionalGetElement OptionalHasElement',
  'texts and files': 'StringSplit Tokenizer ImageDecoder TfIdfVectorizer',
  'random results': 'Bernoulli RandomNormal RandomUniform RandomNormalLike RandomUniformLike Multinomial',
  'no inputs: it is a constant': 'Constant',
  'sizes that elements decide, so it has neither shapes nor a program': 'Compress NonZero NonMaxSuppression Unique',
  'nothing is known of their results': 'CropAndResize ExpandDims',
  'no kernel in ONNX Runtime for CPUs':
    'RemovePadding com.microsoft.NhwcConv com.microsoft.GroupNorm com.microsoft.SkipGroupNorm',
  'weights that are packed before they are multiplied': 'com.microsoft.DynamicQuantizeLSTM',
};

test('each record has named and random cases in the file of its family', () => {
  const excused = new Set(Object.values(withoutCases).flatMap((names) => names.split(' ')));
  const ofFused: Partial<Record<Family, object>> = fused;
  const lacking = (Object.keys(records) as Family[]).flatMap((family) => {
    const { named, drawn } = families[family];
    const known = new Set(named.map(({ operator }) => operator));
    return [...Object.keys(records[family]), ...Object.keys(ofFused[family] ?? {})]
      .filter((operator) => !known.has(operator) || !Object.hasOwn(drawn, operator))
      .filter((operator) => !excused.delete(operator));
  });
  expect(lacking).toEqual([]);
  // They have both, or no record.
  expect([...excused]).toEqual([]);
});

test('no case is of an operator without a record', () => {
  const known = new Set([...Object.values(records), ...Object.values(fused)].flatMap((family) => Object.keys(family)));
  const tried = Object.values(families).flatMap(({ named, drawn }) =>
    named.map(({ operator }) => operator).concat(Object.keys(drawn)),
  );
  expect(tried.filter((operator) => !known.has(operator))).toEqual([]);
});

test('the types inferred from the inputs of all named cases are those of their outputs', () => {
  const wrong = Object.values(families)
    .flatMap(({ named }) => named)
    // Our own fused operators are made once types are known.
    .filter(({ operator }) => !isFused(operator))
    .flatMap((one) => {
      const found = inferredTypes(
        one,
        one.outputs.map((datatype) => datatype !== undefined),
      );
      return found.join() === one.outputs.join()
        ? []
        : [`${describeCase(one)}: ${one.outputs.join()}, not ${found.join()}`];
    });
  expect(wrong).toEqual([]);
});
