/** Softmax and the normalizations. */
import * as chunks from '../chunks/rules.ts';
import { always, each, ordinary, type OperatorFacts } from '../facts.ts';
import * as rows from '../row-rules/rules.ts';
import * as shapes from '../shapes/rules.ts';

const softmax: OperatorFacts = {
  ...ordinary,
  shapes: shapes.sameAsFirst,
  rows: rows.softmax,
  chunks: chunks.softmax,
};
const ofRows: OperatorFacts = {
  ...ordinary,
  shapes: shapes.rowNormalization,
  rows: rows.alongAxis(rows.axisAttribute(-1), rows.always),
  chunks: chunks.fromAxis(-1),
  layer: 'norm',
  mixesPrecisions: true,
  narrow: 'row',
};
const skipping: OperatorFacts = {
  ...ordinary,
  shapes: shapes.skipNormalization,
  rows: rows.alongAxis(() => -1, rows.always),
  chunks: 'whole',
  layer: 'norm',
};
const ofChannels: OperatorFacts = {
  ...ordinary,
  shapes: shapes.sameAsFirst,
  rows: rows.alongFirst(0),
  chunks: 'whole',
};

export const normalization = {
  Softmax: { ...softmax, narrow: 'row' },
  LogSoftmax: softmax,
  Hardmax: { ...softmax, jumps: always },
  ...each('LayerNormalization RMSNormalization SimplifiedLayerNormalization', ofRows),
  ...each('com.microsoft.SkipLayerNormalization com.microsoft.SkipSimplifiedLayerNormalization', skipping),
  ...each('InstanceNormalization GroupNormalization', { ...ofChannels, layer: 'norm' }),
  BatchNormalization: {
    ...ofChannels,
    rows: rows.batchNormalization,
    chunks: chunks.batchNormalization,
    cost: 'channel-normalization',
    layer: 'norm',
    mixesPrecisions: true,
  },
  LRN: ofChannels,
  LpNormalization: {
    ...ofChannels,
    rows: rows.alongAxis(rows.axisAttribute(-1), rows.never),
    chunks: chunks.alongAxis(-1),
  },
  // It takes the mean of all rows, unless axes are named.
  MeanVarianceNormalization: { ...ofChannels, rows: 'unknown' },
} satisfies Record<string, OperatorFacts>;
