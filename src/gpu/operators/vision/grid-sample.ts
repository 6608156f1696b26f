/** GridSample samples an image at the coordinates of a grid, along any number of axes. */
import { elementCount } from '../../../tensor/index.ts';
import { floats, Unsupported, floatLiteral } from '../../../operators/index.ts';
import { forEachElement, written } from '../common/elements.ts';
import { coordinates, stridesOf, weightedSum } from '../common/indexing.ts';
import { requiredOutput } from '../common/inputs.ts';
import type { Emitter, KernelName, Kernels, Operator } from '../types.ts';

type Padding = 'zeros' | 'border' | 'reflection';

function paddingOf(emitter: Emitter): Padding {
  const padding = emitter.attribute<string>('padding_mode', 'zeros');
  if (padding === 'zeros' || padding === 'border' || padding === 'reflection') return padding;
  throw new Unsupported(`its padding_mode '${padding}' is not covered`);
}

type Mode = 'linear' | 'nearest' | 'cubic';

function modeOf(emitter: Emitter): Mode {
  const mode = emitter.attribute<string>('mode', 'linear').replace('bilinear', 'linear').replace('bicubic', 'cubic');
  if (mode === 'linear' || mode === 'nearest' || mode === 'cubic') return mode;
  throw new Unsupported(`its mode '${mode}' is not covered`);
}

/** C statements that reflect x at the ends of an axis until it is inside. */
function reflected(x: string, low: string, high: string): string {
  return [
    '{',
    `  const float span = ${high} - ${low};`,
    `  float beyond = ${x} < ${low} ? ${low} - ${x} : ${x} > ${high} ? ${x} - ${high} : 0.0f;`,
    '  if (beyond > 0.0f) {',
    `    const bool below = ${x} < ${low};`,
    '    const float times = span > 0.0f ? floorf(beyond / span) : 0.0f;',
    '    beyond -= times * span;',
    '    const bool even = fmodf(times, 2.0f) == 0.0f;',
    `    ${x} = (below == even) ? ${low} + beyond : ${high} - beyond;`,
    '  }',
    '}',
  ].join('\n');
}

/** C statements for one axis that declare `first${axis}`, the first of `count` elements to read, and their weights. */
function reachOf(mode: Mode, axis: number): { readonly lines: string[]; readonly count: number } {
  const [x, first, weights] = [`x${axis}`, `first${axis}`, `weights${axis}`];
  if (mode === 'nearest')
    return { count: 1, lines: [`const i64 ${first} = (i64)rintf(${x});`, `const float ${weights}[1] = {1.0f};`] };
  if (mode === 'linear') {
    return {
      count: 2,
      lines: [
        `const i64 ${first} = (i64)floorf(${x});`,
        `const float share${axis} = ${x} - (float)${first};`,
        `const float ${weights}[2] = {1.0f - share${axis}, share${axis}};`,
      ],
    };
  }
  const d = `share${axis}`;
  return {
    count: 4,
    lines: [
      `const i64 ${first} = (i64)floorf(${x}) - 1;`,
      `const float ${d} = ${x} - (float)(${first} + 1);`,
      `const float ${weights}[4] = {`,
      `  ((-0.75f * (${d} + 1.0f) + 3.75f) * (${d} + 1.0f) - 6.0f) * (${d} + 1.0f) + 3.0f,`,
      `  (1.25f * ${d} - 2.25f) * ${d} * ${d} + 1.0f,`,
      `  (1.25f * (1.0f - ${d}) - 2.25f) * (1.0f - ${d}) * (1.0f - ${d}) + 1.0f,`,
      `  ((-0.75f * (2.0f - ${d}) + 3.75f) * (2.0f - ${d}) - 6.0f) * (2.0f - ${d}) + 3.0f};`,
    ],
  };
}

const gridSample = <Type extends KernelName>(type: Type): Operator<Type> => ({
  type,
  emit(emitter) {
    const [given, grid] = [emitter.required(0, floats), emitter.required(1, floats)];
    const output = requiredOutput(emitter);
    const [mode, padding] = [modeOf(emitter), paddingOf(emitter)];
    const aligned = emitter.attribute('align_corners', 0) === 1;
    const sizes = given.shape.slice(2);
    const axes = sizes.length;
    forEachElement(emitter, 'grid_sample', output.elements, { input: given, grid, output: written(output) }, (of) => {
      const [image, channel] = coordinates('i', output.shape);
      const places = elementCount(output.shape.slice(2));
      const lines = [
        `const i64 image = ${image}, channel = ${channel};`,
        `const auto *place = grid + ((u64)image * ${places} + i % ${places}u) * ${axes};`,
      ];
      const opened: string[] = [];
      const factors: string[] = [];
      const inside: string[] = [];
      for (const [axis, size] of sizes.entries()) {
        // A grid's coordinates begin with the innermost axis.
        const g = of.grid.load(`place[${axes - 1 - axis}]`);
        const [low, high] = aligned ? ['0.0f', floatLiteral(size - 1)] : ['-0.5f', floatLiteral(size - 0.5)];
        lines.push(
          `float x${axis} = ${aligned ? `(${g} + 1.0f) / 2.0f * ${size - 1}` : `((${g} + 1.0f) * ${size} - 1.0f) / 2.0f`};`,
        );
        if (padding === 'border' && mode !== 'cubic')
          lines.push(`x${axis} = x${axis} < 0.0f ? 0.0f : x${axis} > ${size - 1} ? (float)${size - 1} : x${axis};`);
        if (padding === 'reflection') lines.push(reflected(`x${axis}`, low, high));
        const reach = reachOf(mode, axis);
        lines.push(...reach.lines);
        opened.push(`for (int t${axis} = 0; t${axis} < ${reach.count}; t${axis}++) {`);
        if (padding === 'reflection') {
          opened.push(
            `float f${axis} = (float)(first${axis} + t${axis});`,
            reflected(`f${axis}`, low, high),
            `i64 p${axis} = (i64)f${axis};`,
          );
        } else opened.push(`i64 p${axis} = first${axis} + t${axis};`);
        if (padding !== 'zeros')
          opened.push(`p${axis} = p${axis} < 0 ? 0 : p${axis} >= ${size} ? ${size - 1} : p${axis};`);
        inside.push(`p${axis} >= 0 && p${axis} < ${size}`);
        factors.push(`weights${axis}[t${axis}]`);
      }
      const at = weightedSum(['image', 'channel', ...sizes.map((_, axis) => `p${axis}`)], stridesOf(given.shape));
      const sum = given.datatype === 'FP64' ? 'double' : 'float';
      return [
        ...lines,
        `${sum} sum = 0;`,
        ...opened,
        `if (${inside.join(' && ')}) sum += ${[...factors, of.input.at(at)].join(' * ')};`,
        ...sizes.map(() => '}'),
        of.output.set('i', 'sum'),
      ];
    });
  },
});

export const gridOperators = [
  gridSample('GridSample'),
  gridSample('com.microsoft.GridSample'),
] as const satisfies readonly Kernels[];
