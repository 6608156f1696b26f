/** Softmax and the normalizations. */
import { always, each, ordinary, type OperatorFacts } from '../facts.ts';
import * as rows from '../row-rules/rules.ts';
import * as shapes from '../shapes/rules.ts';

const softmax: OperatorFacts = {
  ...ordinary,
  shapes: shapes.sameAsFirst,
  rows: rows.softmax,
};
const ofRows: OperatorFacts = {
  ...ordinary,
  shapes: shapes.rowNormalization,
  rows: rows.alongAxis(rows.axisAttribute(-1), rows.always),
  layer: 'norm',
  mixesPrecisions: true,
  narrow: 'row',
};
const skipping: OperatorFacts = {
  ...ordinary,
  shapes: shapes.skipNormalization,
  rows: rows.alongAxis(() => -1, rows.always),
  layer: 'norm',
};
const ofChannels: OperatorFacts = {
  ...ordinary,
  shapes: shapes.sameAsFirst,
  rows: rows.alongFirst(0),
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
    cost: 'channel-normalization',
    layer: 'norm',
    mixesPrecisions: true,
  },
  LRN: ofChannels,
  LpNormalization: {
    ...ofChannels,
    rows: rows.alongAxis(rows.axisAttribute(-1), rows.never),
  },
  // It takes the mean of all rows, unless axes are named.
  MeanVarianceNormalization: { ...ofChannels, rows: 'unknown' },
} satisfies Record<string, OperatorFacts>;
