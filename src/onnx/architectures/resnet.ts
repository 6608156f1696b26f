/** ResNet with bottlenecks (He et al. 2016); the stride is on the 3x3 convolution as in torchvision ("v1.5"). */
import { defineArchitecture, type Architecture } from './architecture.ts';
import type { SeededGraph } from './seeded-graph.ts';
import { imageInput, imageSettings, logitsOutput, maxPool } from './vision.ts';

const epsilon = 1e-5;
const expansion = 4;
/** Scale of a block's last normalisation: with 1, 33 blocks of random weights would double the signal 33 times. */
const branchScale = 0.25;

function bottleneck(graph: SeededGraph, x: string, inChannels: number, width: number, stride: number): string {
  const outChannels = width * expansion;
  let branch = graph.conv('conv1', x, inChannels, width, { kernel: 1 });
  branch = graph.node('Relu', [graph.batchNorm('bn1', branch, width, epsilon)]);
  branch = graph.conv('conv2', branch, width, width, { kernel: 3, stride, padding: 1 });
  branch = graph.node('Relu', [graph.batchNorm('bn2', branch, width, epsilon)]);
  branch = graph.conv('conv3', branch, width, outChannels, { kernel: 1 });
  branch = graph.batchNorm('bn3', branch, outChannels, epsilon, branchScale);
  const shortcut =
    stride === 1 && inChannels === outChannels
      ? x
      : graph.scope('downsample', () => {
          const projected = graph.conv('0', x, inChannels, outChannels, { kernel: 1, stride, gain: 1 });
          return graph.batchNorm('1', projected, outChannels, epsilon);
        });
  return graph.node('Relu', [graph.node('Add', [branch, shortcut])]);
}

function resnet(depth: number, blocks: readonly [number, number, number, number]): Architecture {
  return defineArchitecture({
    name: `resnet${depth}`,
    description: `ResNet-${depth}: an image to the logits of its class`,
    settings: {
      ...imageSettings({ image: 224, imageMin: 1 }),
      width: { type: 'integer', default: 64, min: 1, meaning: 'channels of the first stage' },
      blocks: {
        type: 'integers',
        default: blocks,
        min: 1,
        max: 1000,
        meaning: 'bottlenecks in each of the four stages',
      },
    },
    graph(graph, settings) {
      const { width, blocks: stages } = settings;
      let x = graph.conv('conv1', imageInput(graph, settings), settings.channels, width, {
        kernel: 7,
        stride: 2,
        padding: 3,
      });
      x = graph.node('Relu', [graph.batchNorm('bn1', x, width, epsilon)]);
      x = maxPool(graph, x, 3, 2, 1);
      let channels = width;
      stages.forEach((count, stage) => {
        const stageWidth = width * 2 ** stage;
        for (let block = 0; block < count; block++) {
          const stride = stage > 0 && block === 0 ? 2 : 1;
          x = graph.scope(`layer${stage + 1}.${block}`, () => bottleneck(graph, x, channels, stageWidth, stride));
          channels = stageWidth * expansion;
        }
      });
      logitsOutput(graph, graph.classifier('fc', x, channels, settings.classes), settings);
    },
  });
}

export const resnet50 = resnet(50, [3, 4, 6, 3]);
export const resnet101 = resnet(101, [3, 4, 23, 3]);
