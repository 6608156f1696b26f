/** VGG-16 (Simonyan and Zisserman 2015, configuration D). */
import { defineArchitecture, refuse } from './architecture.ts';
import { imageInput, imageSettings, logitsOutput, maxPool } from './vision.ts';

/** Channels as multiples of the first stage's, by stage; every convolution is 3x3, and a pooling ends each stage. */
const stages = [
  [1, 1],
  [2, 2],
  [4, 4, 4],
  [8, 8, 8],
  [8, 8, 8],
] as const;
const reduction = 2 ** stages.length;

export const vgg16 = defineArchitecture({
  name: 'vgg16',
  description: 'VGG-16: an image to the logits of its class',
  settings: {
    ...imageSettings({ image: 224, imageMin: reduction }),
    width: { type: 'integer', default: 64, min: 1, meaning: 'channels of the first stage' },
    hidden: { type: 'integer', default: 4096, min: 1, meaning: 'width of the two hidden matrix layers' },
  },
  graph(graph, settings) {
    const { image, width, hidden, classes } = settings;
    // The matrix layers take every pixel of the last stage, so no adaptive pooling is needed.
    if (image % reduction !== 0) refuse(`image is ${image}, but vgg16 takes multiples of ${reduction}`);
    let x = imageInput(graph, settings);
    let channels = settings.channels;
    let index = 0;
    graph.scope('features', () => {
      for (const stage of stages) {
        for (const multiple of stage) {
          x = graph.conv(String(index), x, channels, width * multiple, { kernel: 3, padding: 1, bias: true });
          x = graph.node('Relu', [x]);
          channels = width * multiple;
          index += 2; // torchvision numbers the rectifiers and poolings too
        }
        x = maxPool(graph, x, 2, 2);
        index++;
      }
    });
    const pixels = (image / reduction) ** 2;
    x = graph.node('Flatten', [x], { axis: 1 });
    const logits = graph.scope('classifier', () => {
      const first = graph.node('Relu', [graph.gemm('0', x, channels * pixels, hidden, 2)]);
      const second = graph.node('Relu', [graph.gemm('3', first, hidden, hidden, 2)]);
      return graph.gemm('6', second, hidden, classes);
    });
    logitsOutput(graph, logits, settings);
  },
});
