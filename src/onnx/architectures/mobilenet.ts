/** MobileNetV2 (Sandler et al. 2018): inverted residuals with linear bottlenecks. */
import { defineArchitecture } from './architecture.ts';
import type { SeededGraph } from './seeded-graph.ts';
import { imageInput, imageSettings, logitsOutput } from './vision.ts';

const epsilon = 1e-5;
const branchScale = 0.25;
const stemChannels = 32;
const lastChannels = 1280;

/** The paper's Table 2: expansion, channels, repeats, first stride. */
const stages = [
  [1, 16, 1, 1],
  [6, 24, 2, 2],
  [6, 32, 3, 2],
  [6, 64, 4, 2],
  [6, 96, 3, 1],
  [6, 160, 3, 2],
  [6, 320, 1, 1],
] as const;

/** Channels scaled to a multiple of 8, never more than 10% below the request, as in the paper's code. */
function divisible(channels: number): number {
  const rounded = Math.max(8, Math.floor((channels + 4) / 8) * 8);
  return rounded < 0.9 * channels ? rounded + 8 : rounded;
}

function relu6(graph: SeededGraph, x: string): string {
  return graph.node('Clip', [x, graph.constant({ floats: 0 }), graph.constant({ floats: 6 })]);
}

function normalised(
  graph: SeededGraph,
  x: string,
  inChannels: number,
  channels: number,
  options: Parameters<SeededGraph['conv']>[4],
) {
  const convolved = graph.conv('0', x, inChannels, channels, options);
  return relu6(graph, graph.batchNorm('1', convolved, channels, epsilon));
}

function invertedResidual(
  graph: SeededGraph,
  x: string,
  inChannels: number,
  outChannels: number,
  expansion: number,
  stride: number,
) {
  const wide = inChannels * expansion;
  const residual = stride === 1 && inChannels === outChannels;
  return graph.scope('conv', () => {
    let branch = x;
    let index = 0;
    if (expansion > 1) {
      branch = graph.scope(String(index++), () => normalised(graph, x, inChannels, wide, { kernel: 1 }));
    }
    branch = graph.scope(String(index++), () =>
      normalised(graph, branch, wide, wide, { kernel: 3, stride, padding: 1, groups: wide }),
    );
    branch = graph.conv(String(index++), branch, wide, outChannels, { kernel: 1, gain: 1 });
    branch = graph.batchNorm(String(index), branch, outChannels, epsilon, residual ? branchScale : 1);
    return residual ? graph.node('Add', [x, branch]) : branch;
  });
}

export const mobilenetV2 = defineArchitecture({
  name: 'mobilenet-v2',
  description: 'MobileNetV2: an image to the logits of its class',
  settings: {
    ...imageSettings({ image: 224, imageMin: 1 }),
    width: { type: 'number', default: 1, min: 0.01, max: 100, meaning: 'multiplier of all channel counts' },
  },
  graph(graph, settings) {
    const { width } = settings;
    const [x, channels] = graph.scope('features', () => {
      let inChannels = divisible(stemChannels * width);
      let index = 0;
      let state = graph.scope(String(index++), () =>
        normalised(graph, imageInput(graph, settings), settings.channels, inChannels, {
          kernel: 3,
          stride: 2,
          padding: 1,
        }),
      );
      for (const [expansion, base, repeats, firstStride] of stages) {
        const outChannels = divisible(base * width);
        for (let repeat = 0; repeat < repeats; repeat++) {
          const stride = repeat === 0 ? firstStride : 1;
          state = graph.scope(String(index++), () =>
            invertedResidual(graph, state, inChannels, outChannels, expansion, stride),
          );
          inChannels = outChannels;
        }
      }
      const last = divisible(lastChannels * Math.max(1, width));
      return [
        graph.scope(String(index), () => normalised(graph, state, inChannels, last, { kernel: 1 })),
        last,
      ] as const;
    });
    logitsOutput(graph, graph.classifier('classifier.1', x, channels, settings.classes), settings);
  },
});
