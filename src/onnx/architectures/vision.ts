/** Parts that the image networks share: FP32 [batch, channels, image, image] to logits [batch, classes]. */
import { ElementType } from '../types.ts';
import { dimension, type SeededGraph } from './seeded-graph.ts';
import type { SettingsOf } from './settings.ts';

export function imageSettings(sizes: { readonly image: number; readonly imageMin: number }) {
  return {
    image: { type: 'integer', default: sizes.image, min: sizes.imageMin, meaning: 'height and width of the image' },
    channels: { type: 'integer', default: 3, min: 1, meaning: 'channels of the image' },
    classes: { type: 'integer', default: 1000, min: 1, meaning: 'classes' },
    batch: { type: 'integer', default: 0, min: 0, meaning: 'a fixed batch size; 0 leaves it open' },
  } as const;
}

type ImageSettings = SettingsOf<ReturnType<typeof imageSettings>>;

export function imageInput(graph: SeededGraph, { image, channels, batch }: ImageSettings): string {
  return graph.input('input', ElementType.FLOAT, [dimension(batch, 'batch'), channels, image, image]);
}

export function logitsOutput(graph: SeededGraph, logits: string, { classes, batch }: ImageSettings): void {
  graph.output(logits, ElementType.FLOAT, [dimension(batch, 'batch'), classes], 'logits');
}

/** A square window in steps of `stride`, `padding` on each side. */
export function maxPool(graph: SeededGraph, x: string, kernel: number, stride: number, padding = 0): string {
  return graph.node('MaxPool', [x], {
    ceil_mode: 0,
    kernel_shape: [kernel, kernel],
    pads: [padding, padding, padding, padding],
    strides: [stride, stride],
  });
}

/** A channel count scaled by a width multiplier, never below one. */
export function scaled(channels: number, width: number): number {
  return Math.max(1, Math.round(channels * width));
}
