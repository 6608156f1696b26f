import type { DataType } from '../../../src/tensor/index.ts';
import type { CaseInput } from '../../gpu/conformance/case.ts';
import type { Draw, Drawn } from './draw.ts';

const any: readonly DataType[] = ['FP32', 'FP32', 'FP16', 'FP64', 'INT32', 'INT64', 'UINT8', 'INT8', 'BOOL'];
const count = (shape: readonly number[]): number => shape.reduce((product, size) => product * size, 1);
const shuffled = (draw: Draw, length: number): number[] =>
  Array.from({ length }, (_, axis) => ({ axis, at: draw.int(0, 1e6) }))
    .sort((a, b) => a.at - b.at)
    .map(({ axis }) => axis);

const transpose: Drawn = (draw) => {
  const shape = draw.shape(0, 5, 4);
  return draw.case('Transpose', [draw.x(draw.pick(any), shape)], {
    attributes: draw.chance(0.25) ? {} : { perm: shuffled(draw, shape.length) },
    opset: draw.pick([9, 13, 17, 21]),
  });
};

const slice: Drawn = (draw) => {
  const shape = draw.shape(1, 4);
  const isOld = draw.chance(0.2);
  const axes = draw.axes(shape.length, 1);
  const wide = draw.chance(0.2);
  const starts = axes.map((axis) => draw.int(-shape.at(axis)! - 2, shape.at(axis)! + 2));
  const ends = axes.map((axis) =>
    wide ? draw.pick([2 ** 31 - 1, -(2 ** 31)]) : draw.int(-shape.at(axis)! - 2, shape.at(axis)! + 2),
  );
  const x = draw.x(draw.pick(any), shape);
  if (isOld) return draw.case('Slice', [x], { attributes: { starts, ends, axes }, opset: 9 });
  const datatype = draw.pick(['INT64', 'INT32'] as const);
  const all = axes.length === shape.length && axes.every((axis, place) => axis === place);
  const steps = draw.chance(0.5)
    ? [
        draw.ints(
          axes.map(() => draw.pick([1, 2, 3, -1, -2])),
          datatype,
        ),
      ]
    : [];
  const given: (CaseInput | undefined)[] = [x, draw.ints(starts, datatype), draw.ints(ends, datatype)];
  if (!all || steps.length > 0) given.push(draw.ints(axes, datatype), ...steps);
  return draw.case('Slice', given, { opset: draw.pick([10, 11, 13, 17]) });
};

const expand: Drawn = (draw) => {
  const whole = draw.shape(1, 4);
  const wanted = whole.map((size) => (draw.chance(0.2) ? 1 : size));
  const from = draw.narrowed(whole);
  return draw.case('Expand', [draw.x(draw.pick(any), from), draw.ints(draw.chance(0.8) ? whole : wanted)], {
    opset: draw.pick([8, 13, 17]),
  });
};

const tile: Drawn = (draw) => {
  const shape = draw.shape(1, 4, 4);
  return draw.case('Tile', [draw.x(draw.pick(any), shape), draw.ints(shape.map(() => draw.pick([1, 1, 2, 3, 0])))], {
    opset: draw.pick([9, 13, 17]),
  });
};

const depth =
  (operator: string): Drawn =>
  (draw) => {
    const block = draw.int(1, 3);
    const [n, c, h, w] = [draw.pick([1, 2, 0, 1]), draw.int(1, 3), draw.int(1, 3), draw.int(1, 3)];
    const shape = operator === 'DepthToSpace' ? [n, c * block * block, h, w] : [n, c, h * block, w * block];
    return draw.case(operator, [draw.x(draw.pick(['FP32', 'FP32', 'FP16', 'FP64', 'UINT8'] as const), shape)], {
      attributes: {
        blocksize: block,
        ...(operator === 'DepthToSpace' ? draw.some({ mode: draw.pick(['DCR', 'CRD']) }) : {}),
      },
      opset: draw.pick([11, 13, 17]),
    });
  };

const concat: Drawn = (draw) => {
  const shape = draw.shape(1, 4);
  const axis = draw.axis(shape.length);
  const datatype = draw.pick(any);
  const inputs = Array.from({ length: draw.int(1, 5) }, () =>
    draw.x(datatype, shape.with(axis, draw.chance(0.15) ? 0 : draw.int(1, 4))),
  );
  return draw.case('Concat', inputs, { attributes: { axis }, opset: draw.pick([4, 11, 13, 17]) });
};

const split: Drawn = (draw) => {
  const shape = draw.shape(1, 4);
  const isDefault = draw.chance(0.3);
  const axis = isDefault ? 0 : draw.axis(shape.length);
  const parts = draw.int(1, 4);
  const datatype = draw.pick(any);
  const attributes = isDefault ? {} : { axis };
  const way = draw.pick(['input', 'input', 'attribute', 'equal', 'num_outputs'] as const);
  const each = draw.int(1, 3);
  const sizes = way === 'equal' ? Array.from({ length: parts }, () => each) : draw.list(parts, 0, 4);
  const whole = shape.with(
    axis,
    sizes.reduce((a, b) => a + b, 0),
  );
  const x = draw.x(datatype, whole);
  if (way === 'input')
    return draw.case('Split', [x, draw.ints(sizes)], { attributes, outputs: parts, opset: draw.pick([13, 18]) });
  if (way === 'attribute')
    return draw.case('Split', [x], {
      attributes: { ...attributes, split: sizes },
      outputs: parts,
      opset: draw.pick([2, 11]),
    });
  if (way === 'equal') return draw.case('Split', [x], { attributes, outputs: parts, opset: draw.pick([2, 11, 13]) });
  const uneven = draw.x(datatype, shape.with(axis, draw.int(parts, parts * 3)));
  return draw.case('Split', [uneven], { attributes: { ...attributes, num_outputs: parts }, outputs: parts, opset: 18 });
};

const indexTypes = ['INT64', 'INT64', 'INT32'] as const;

const gather: Drawn = (draw) => {
  const shape = draw.filledShape(1, 4);
  const isDefault = draw.chance(0.3);
  const axis = isDefault ? 0 : draw.axis(shape.length);
  const along = shape.at(axis)!;
  const indices = draw.shape(0, 3, 4);
  const values = draw.list(count(indices), -along, along - 1);
  return draw.case(
    'Gather',
    [draw.x(draw.pick(any), shape), draw.values(draw.pick(indexTypes), indices, values, draw.chance(0.4))],
    {
      attributes: isDefault ? {} : { axis },
      opset: draw.pick([9, 11, 13, 17]),
    },
  );
};

const gatherElements: Drawn = (draw) => {
  const shape = draw.filledShape(1, 4);
  const isDefault = draw.chance(0.3);
  const axis = isDefault ? 0 : draw.axis(shape.length);
  const along = shape.at(axis)!;
  const indices = shape.map((size) => draw.int(1, size)).with(axis, draw.size());
  const values = draw.list(count(indices), -along, along - 1);
  return draw.case(
    'GatherElements',
    [draw.x(draw.pick(any), shape), draw.values(draw.pick(indexTypes), indices, values, false)],
    {
      attributes: isDefault ? {} : { axis },
      opset: draw.pick([11, 13, 17]),
    },
  );
};

/** Indices of some leading axes: [..., depth], after `batch` axes of data and indices. */
function tuples(draw: Draw, shape: readonly number[], batch: number): { shape: number[]; values: number[] } {
  const depth = draw.int(1, shape.length - batch);
  const outer = [...shape.slice(0, batch), ...draw.filledShape(0, 2, 3)];
  const values = Array.from({ length: count(outer) }, () =>
    Array.from({ length: depth }, (_, place) => {
      const size = shape[batch + place]!;
      return draw.int(-size, size - 1);
    }),
  );
  return { shape: [...outer, depth], values: values.flat() };
}

const gatherNd: Drawn = (draw) => {
  const shape = draw.filledShape(1, 4, 4);
  const batch = draw.chance(0.6) ? 0 : draw.int(0, shape.length - 1);
  const indices = tuples(draw, shape, batch);
  return draw.case(
    'GatherND',
    [draw.x(draw.pick(any), shape), draw.values('INT64', indices.shape, indices.values, false)],
    {
      attributes: batch === 0 && draw.chance(0.5) ? {} : { batch_dims: batch },
      opset: draw.pick([12, 13, 17]),
    },
  );
};

const scatterElements: Drawn = (draw) => {
  const shape = draw.filledShape(1, 3);
  const isDefault = draw.chance(0.3);
  const axis = isDefault ? 0 : draw.axis(shape.length);
  const along = shape.at(axis)!;
  const indices = shape.map((size) => draw.int(1, size));
  // If two writes meet without a reduction, the order is undefined: so each row gets different places.
  const reduction = draw.pick([undefined, undefined, 'add', 'mul', 'min', 'max', 'none']);
  const isReduced = reduction !== undefined && reduction !== 'none';
  const values = isReduced
    ? draw.list(count(indices), -along, along - 1)
    : distinctAlong(indices, axis < 0 ? axis + shape.length : axis);
  const datatype = draw.pick(isReduced ? (['FP32', 'INT32', 'INT64'] as const) : any);
  return draw.case(
    'ScatterElements',
    [draw.x(datatype, shape), draw.values(draw.pick(indexTypes), indices, values, false), draw.x(datatype, indices)],
    {
      attributes: { ...(isDefault ? {} : { axis }), ...(reduction === undefined ? {} : { reduction }) },
      opset:
        reduction === undefined
          ? draw.pick([11, 13, 16, 18])
          : ['min', 'max'].includes(reduction)
            ? 18
            : draw.pick([16, 18]),
    },
  );
};

/** Each element's own place along the axis. */
function distinctAlong(shape: readonly number[], axis: number): number[] {
  const inner = count(shape.slice(axis + 1));
  return Array.from({ length: count(shape) }, (_, at) => Math.floor(at / inner) % shape[axis]!);
}

const scatterNd: Drawn = (draw) => {
  const shape = draw.filledShape(1, 3, 5);
  const reduction = draw.pick([undefined, 'add', 'mul', 'min', 'max']);
  const depth = draw.int(1, shape.length);
  const rows = reduction === undefined ? 1 : draw.int(1, 4);
  const values = Array.from({ length: rows }, () =>
    shape.slice(0, depth).map((size) => draw.int(-size, size - 1)),
  ).flat();
  const datatype = draw.pick(reduction === undefined ? any : (['FP32', 'INT32'] as const));
  return draw.case(
    'ScatterND',
    [
      draw.x(datatype, shape),
      draw.values('INT64', [rows, depth], values, false),
      draw.x(datatype, [rows, ...shape.slice(depth)]),
    ],
    {
      attributes: reduction === undefined ? {} : { reduction },
      opset: reduction === undefined ? draw.pick([11, 13, 16, 18]) : 18,
    },
  );
};

const pad: Drawn = (draw) => {
  const shape = draw.filledShape(1, 4);
  const mode = draw.pick(['constant', 'constant', 'reflect', 'edge', 'wrap']);
  const isOld = mode !== 'wrap' && draw.chance(0.2);
  const named = !isOld && draw.chance(0.25);
  const axes = named ? draw.axes(shape.length, 1) : shape.map((_, axis) => axis);
  const pads = [...axes, ...axes].map((axis) => {
    const size = shape.at(axis)!;
    if (mode === 'constant') return draw.int(-Math.floor(size / 2), 3);
    return draw.int(0, mode === 'edge' ? 3 : Math.max(0, Math.min(3, size - 1)));
  });
  const datatype = draw.pick(
    isOld ? (['FP32'] as const) : (['FP32', 'FP32', 'FP16', 'INT32', 'INT64', 'BOOL', 'UINT8'] as const),
  );
  const attributes = draw.chance(0.3) && mode === 'constant' ? {} : { mode };
  const x = draw.x(datatype, shape);
  if (isOld)
    return draw.case('Pad', [x], {
      attributes: { ...attributes, pads, ...draw.some({ value: { float: 1.5 } }) },
      opset: 2 + draw.int(0, 8),
    });
  const value = draw.chance(0.5) ? draw.values(datatype, [], [1], draw.chance(0.7)) : undefined;
  const inputs: (CaseInput | undefined)[] = [x, draw.ints(pads)];
  if (named) inputs.push(value, draw.ints(axes, draw.pick(indexTypes)));
  else if (value !== undefined) inputs.push(value);
  const opset = mode === 'wrap' ? 19 : named ? draw.pick([18, 19, 21]) : draw.pick([11, 13, 18, 21]);
  return draw.case('Pad', inputs, { attributes, opset });
};

const resize: Drawn = (draw) => {
  const axes = draw.pick([1, 2, 2, 2, 3]);
  const shape = [draw.pick([1, 2]), draw.int(1, 2), ...draw.list(axes, 2, 6)];
  const mode = draw.pick(['nearest', 'nearest', 'linear', 'linear', 'cubic']);
  const opset = draw.pick([11, 13, 18, 19]);
  const bySizes = draw.chance(0.4);
  const scale = (): number => draw.pick([0.5, 0.75, 1, 1.5, 2, 2.5]);
  const x = draw.x(draw.pick(['FP32', 'FP32', 'FP16', 'UINT8'] as const), shape);
  const modes = [
    'half_pixel',
    'asymmetric',
    'align_corners',
    'pytorch_half_pixel',
    'tf_crop_and_resize',
    ...(opset >= 19 ? ['half_pixel_symmetric'] : []),
  ];
  const coordinate = draw.pick(modes);
  const roi =
    coordinate === 'tf_crop_and_resize'
      ? draw.values(
          'FP32',
          [2 * shape.length],
          [...shape.map((_, axis) => (axis < 2 ? 0 : 0.1)), ...shape.map((_, axis) => (axis < 2 ? 1 : 0.9))],
        )
      : undefined;
  const someAxes = opset >= 18 && draw.chance(0.3);
  const along = someAxes ? Array.from({ length: axes }, (_, axis) => axis + 2) : shape.map((_, axis) => axis);
  const amount = along.map((axis) => (axis < 2 ? 1 : scale()));
  const sizes = along.map((axis) => (axis < 2 ? shape[axis]! : draw.int(1, 9)));
  const inputs = bySizes
    ? [
        x,
        roi ?? (opset < 13 ? draw.values('FP32', [0], []) : undefined),
        opset < 13 ? draw.values('FP32', [0], []) : undefined,
        draw.ints(sizes),
      ]
    : [x, roi ?? (opset < 13 ? draw.values('FP32', [0], []) : undefined), draw.values('FP32', [amount.length], amount)];
  return draw.case('Resize', inputs, {
    attributes: {
      ...draw.some({ mode }, 0.9),
      ...(coordinate === 'half_pixel' && draw.chance(0.5) ? {} : { coordinate_transformation_mode: coordinate }),
      ...draw.some({ nearest_mode: draw.pick(['round_prefer_floor', 'round_prefer_ceil', 'floor', 'ceil']) }),
      ...(coordinate === 'tf_crop_and_resize' ? draw.some({ extrapolation_value: { float: 2 } }) : {}),
      ...(mode === 'cubic' ? draw.some({ cubic_coeff_a: { float: -0.5 }, exclude_outside: 1 }) : {}),
      ...(opset >= 18 && mode !== 'nearest' ? draw.some({ antialias: 1 }, 0.2) : {}),
      ...(opset >= 18 && bySizes
        ? draw.some({ keep_aspect_ratio_policy: draw.pick(['stretch', 'not_larger', 'not_smaller']) }, 0.4)
        : {}),
      ...(someAxes ? { axes: along } : {}),
    },
    opset,
  });
};

const upsample: Drawn = (draw) =>
  draw.case(
    'Upsample',
    [
      draw.x('FP32', [1, draw.int(1, 2), draw.int(1, 4), draw.int(1, 4)]),
      draw.values('FP32', [4], [1, 1, draw.pick([1, 2, 1.5]), draw.pick([2, 3])]),
    ],
    {
      attributes: draw.some({ mode: draw.pick(['nearest', 'linear']) }),
      opset: 9,
    },
  );

const reshape: Drawn = (draw) => {
  const shape = draw.shape(0, 4, 4);
  const all = count(shape);
  const wanted: number[] = [];
  let rest = all;
  for (const size of shape.toReversed()) {
    if (draw.chance(0.5) && rest !== 0 && size !== 0) {
      wanted.unshift(size);
      rest /= size;
    }
  }
  if (rest !== 1) wanted.unshift(rest);
  const open = wanted.length > 0 && all > 0 && draw.chance(0.4) ? draw.int(0, wanted.length - 1) : -1;
  const target = wanted.map((size, axis) => {
    if (axis === open) return -1;
    return size === shape[axis] && size !== 0 && draw.chance(0.3) ? 0 : size;
  });
  return draw.case('Reshape', [draw.x(draw.pick(any), shape), draw.ints(target)], {
    attributes: draw.some({ allowzero: all === 0 ? 1 : 0 }, all === 0 ? 1 : 0.2),
    opset: draw.pick(all === 0 ? [14, 19, 21] : [14, 19, 21]),
  });
};

const squeezing =
  (operator: 'Squeeze' | 'Unsqueeze'): Drawn =>
  (draw) => {
    const shape = draw.shape(1, 4).map((size) => (draw.chance(0.4) ? 1 : size));
    const isOld = draw.chance(0.3);
    const ones = shape.flatMap((size, axis) => (size === 1 ? [axis] : []));
    const chosen = ones.filter(() => draw.chance(0.6)).map((axis) => (draw.chance(0.5) ? axis : axis - shape.length));
    const rank = shape.length + 2;
    const places = shuffled(draw, rank)
      .slice(0, 2)
      .map((axis) => (draw.chance(0.5) ? axis : axis - rank));
    const axes = operator === 'Squeeze' ? chosen : places;
    const none = operator === 'Squeeze' && (axes.length === 0 || draw.chance(0.2));
    const x = draw.x(draw.pick(any), shape);
    if (isOld) return draw.case(operator, [x], { attributes: none ? {} : { axes }, opset: 11 });
    return draw.case(operator, none ? [x] : [x, draw.ints(axes)], { opset: draw.pick([13, 17, 21]) });
  };

const trilu: Drawn = (draw) => {
  const shape = draw.shape(2, 4);
  const k = draw.chance(0.6) ? [draw.values('INT64', [], [draw.int(-4, 4)])] : [];
  return draw.case('Trilu', [draw.x(draw.pick(any), shape), ...k], {
    attributes: draw.some({ upper: draw.int(0, 1) }),
    opset: 14,
  });
};

const oneHot: Drawn = (draw) => {
  const shape = draw.filledShape(1, 3);
  const size = draw.int(1, 5);
  // ONNX Runtime supports few combinations of types.
  const [index, depth, datatype] = draw.pick([
    ['INT64', 'INT64', 'FP32'],
    ['INT64', 'INT64', 'INT64'],
    ['INT32', 'INT32', 'FP32'],
    ['FP32', 'FP32', 'FP32'],
    ['INT64', 'INT32', 'FP32'],
  ] as const);
  const axis = draw.int(-shape.length - 1, shape.length);
  return draw.case(
    'OneHot',
    [
      draw.values(index, shape, draw.list(count(shape), -size - 1, size), false),
      draw.values(depth, draw.pick([[], [1]]), [size]),
      draw.values(datatype, [2], [1, 5], draw.chance(0.5)),
    ],
    { attributes: draw.some({ axis }), opset: draw.pick([9, 11, 17]) },
  );
};

export const movement: Readonly<Record<string, Drawn>> = {
  Identity: (draw) =>
    draw.case('Identity', [draw.x(draw.pick(any), draw.shape(0, 4))], { opset: draw.pick([13, 16, 21]) }),
  Reshape: reshape,
  Flatten: (draw) => {
    const shape = draw.shape(1, 4);
    return draw.case('Flatten', [draw.x(draw.pick(any), shape)], {
      attributes: draw.some({ axis: draw.int(-shape.length, shape.length) }),
      opset: draw.pick([11, 13, 21]),
    });
  },
  Squeeze: squeezing('Squeeze'),
  Unsqueeze: squeezing('Unsqueeze'),
  Dropout: (draw) =>
    draw.case(
      'Dropout',
      [draw.x('FP32', draw.shape(1, 3)), ...(draw.chance(0.3) ? [draw.values('FP32', [], [0.3])] : [])],
      {
        opset: draw.pick([12, 13, 22]),
        outputs: draw.pick([1, 1, 2]),
      },
    ),
  Transpose: transpose,
  Slice: slice,
  Expand: expand,
  Tile: tile,
  DepthToSpace: depth('DepthToSpace'),
  SpaceToDepth: depth('SpaceToDepth'),
  Concat: concat,
  Split: split,
  Gather: gather,
  GatherElements: gatherElements,
  GatherND: gatherNd,
  ScatterElements: scatterElements,
  ScatterND: scatterNd,
  Pad: pad,
  Resize: resize,
  Upsample: upsample,
  Trilu: trilu,
  Range: (draw) => {
    const datatype = draw.pick(['FP32', 'INT64', 'INT32', 'FP64'] as const);
    const values = [draw.int(-3, 3), draw.int(-3, 9), draw.pick([1, 2, -1])];
    return draw.case(
      'Range',
      values.map((value) => draw.values(datatype, [], [value])),
      { opset: draw.pick([11, 17]) },
    );
  },
  ConstantOfShape: (draw) => draw.case('ConstantOfShape', [draw.ints(draw.shape(0, 3))], { opset: draw.pick([9, 20]) }),
  OneHot: oneHot,
  Shape: (draw) =>
    draw.case('Shape', [draw.x('FP32', draw.shape(0, 4))], {
      attributes: draw.some({ start: draw.int(-3, 2), end: draw.int(-2, 4) }),
      opset: 15,
    }),
  Size: (draw) => draw.case('Size', [draw.x('FP32', draw.shape(0, 4))]),
};
