/**
 * Pooling of regions of interest: RoiAlign and MaxRoiPool. Regions are known only at run time, so each thread finds the
 * elements of its bin.
 */
import { floats, Unsupported, floatLiteral } from '../../../operators/index.ts';
import { forEachElement, written } from '../common/elements.ts';
import { coordinates } from '../common/indexing.ts';
import { requiredOutput } from '../common/inputs.ts';
import type { Kernels } from '../types.ts';

const roiAlign = {
  type: 'RoiAlign',
  emit(emitter) {
    const given = emitter.required(0, floats);
    const [rois, items] = [emitter.required(1), emitter.required(2, ['INT64', 'INT32'])];
    const output = requiredOutput(emitter);
    const mode = emitter.attribute<string>('mode', 'avg');
    if (mode !== 'avg' && mode !== 'max') throw new Unsupported(`its mode '${mode}' is not covered`);
    const [, channels, height, width] = given.shape as [number, number, number, number];
    const [, , rows, columns] = output.shape as [number, number, number, number];
    const [r, c, row, column] = coordinates('i', output.shape);
    const scale = floatLiteral(emitter.attribute('spatial_scale', 1));
    const ratio = emitter.attribute('sampling_ratio', 0);
    const transformation = emitter.attribute<string>(
      'coordinate_transformation_mode',
      emitter.opset < 16 ? 'output_half_pixel' : 'half_pixel',
    );
    const half = transformation === 'half_pixel';
    const shift = half ? '0.5f' : '0.0f';
    const least = half ? '' : 'if (high < 1.0f) high = 1.0f; if (wide < 1.0f) wide = 1.0f;';
    const tensors = { input: given, rois, items, output: written(output) };
    forEachElement(emitter, 'roi_align', output.elements, tensors, (of) => {
      const corner = (name: string, place: number): string =>
        `const float ${name} = (float)${of.rois.at(`4 * (u64)(${r}) + ${place}`)} * ${scale} - ${shift};`;
      return [
        corner('x0', 0),
        corner('y0', 1),
        corner('x1', 2),
        corner('y1', 3),
        'float wide = x1 - x0, high = y1 - y0;',
        least,
        `const float binHigh = high / ${rows}, binWide = wide / ${columns};`,
        ratio > 0
          ? `const int down = ${ratio}, across = ${ratio};`
          : `const int down = (int)ceilf(high / ${rows}), across = (int)ceilf(wide / ${columns});`,
        `const auto *plane = input + ((u64)items[${r}] * ${channels} + ${c}) * ${height * width};`,
        'float sum = 0;',
        'bool any = false;',
        'for (int v = 0; v < down; v++) {',
        `  float y = y0 + (float)(${row}) * binHigh + (v + 0.5f) * binHigh / down;`,
        '  for (int u = 0; u < across; u++) {',
        `    float x = x0 + (float)(${column}) * binWide + (u + 0.5f) * binWide / across;`,
        '    float py = y;',
        `    const bool outside = py < -1.0f || py > ${height} || x < -1.0f || x > ${width};`,
        '    if (py <= 0.0f) py = 0.0f;',
        '    if (x <= 0.0f) x = 0.0f;',
        '    int top = (int)py, left = (int)x, bottom, right;',
        `    if (top >= ${height - 1}) { bottom = top = ${height - 1}; py = (float)top; } else bottom = top + 1;`,
        `    if (left >= ${width - 1}) { right = left = ${width - 1}; x = (float)left; } else right = left + 1;`,
        '    const float fy = py - top, fx = x - left;',
        `    const float a = outside ? 0.0f : (1.0f - fy) * (1.0f - fx) * ${of.input.load(`plane[top * ${width} + left]`)};`,
        `    const float b = outside ? 0.0f : (1.0f - fy) * fx * ${of.input.load(`plane[top * ${width} + right]`)};`,
        `    const float c = outside ? 0.0f : fy * (1.0f - fx) * ${of.input.load(`plane[bottom * ${width} + left]`)};`,
        `    const float d = outside ? 0.0f : fy * fx * ${of.input.load(`plane[bottom * ${width} + right]`)};`,
        mode === 'avg'
          ? '    sum += a + b + c + d;'
          : '    const float most = fmaxf(fmaxf(a, b), fmaxf(c, d)); sum = any ? fmaxf(sum, most) : most; any = true;',
        '  }',
        '}',
        mode === 'avg' ? 'const int count = down * across; if (count > 1) sum /= count;' : '',
        '(void)any;',
        of.output.set('i', 'sum'),
      ];
    });
  },
} satisfies Kernels;

const range = (low: string, high: string, at: string, bin: string, start: string, size: number): string[] => [
  `int ${low} = (int)floorf((float)(${at}) * ${bin}) + ${start};`,
  `int ${high} = (int)ceilf((float)(${at} + 1) * ${bin}) + ${start};`,
  `${low} = ${low} < 0 ? 0 : ${low} > ${size} ? ${size} : ${low};`,
  `${high} = ${high} < 0 ? 0 : ${high} > ${size} ? ${size} : ${high};`,
];

const maxRoiPool = {
  type: 'MaxRoiPool',
  emit(emitter) {
    const given = emitter.required(0, floats);
    const rois = emitter.required(1);
    const output = requiredOutput(emitter);
    const [, channels, height, width] = given.shape as [number, number, number, number];
    const [, , rows, columns] = output.shape as [number, number, number, number];
    const [r, c, row, column] = coordinates('i', output.shape);
    const scale = floatLiteral(emitter.attribute('spatial_scale', 1));
    const tensors = { input: given, rois, output: written(output) };
    forEachElement(emitter, 'max_roi_pool', output.elements, tensors, (of) => {
      const corner = (name: string, place: number): string =>
        `const int ${name} = (int)roundf((float)${of.rois.at(`5 * (u64)(${r}) + ${place}`)} * ${scale});`;
      return [
        corner('x0', 1),
        corner('y0', 2),
        corner('x1', 3),
        corner('y1', 4),
        'const int high = y1 - y0 + 1 > 1 ? y1 - y0 + 1 : 1, wide = x1 - x0 + 1 > 1 ? x1 - x0 + 1 : 1;',
        `const float binHigh = (float)high / ${rows}, binWide = (float)wide / ${columns};`,
        ...range('top', 'bottom', String(row), 'binHigh', 'y0', height),
        ...range('left', 'right', String(column), 'binWide', 'x0', width),
        `const auto *plane = input + ((u64)${of.rois.at(`5 * (u64)(${r})`)} * ${channels} + ${c}) * ${height * width};`,
        `${of.input.computed} most = 0;`,
        'bool any = false;',
        'for (int y = top; y < bottom; y++) {',
        '  for (int x = left; x < right; x++) {',
        `    const ${of.input.computed} value = ${of.input.load(`plane[y * ${width} + x]`)};`,
        '    if (!any || value > most) most = value;',
        '    any = true;',
        '  }',
        '}',
        of.output.set('i', 'most'),
      ];
    });
  },
} satisfies Kernels;

export const regionOperators = [roiAlign, maxRoiPool] as const satisfies readonly Kernels[];
