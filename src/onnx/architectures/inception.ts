/**
 * Inception-v3 (Szegedy et al. 2016) as in torchvision, without the auxiliary classifier, which only training needs.
 */
import { defineArchitecture } from './architecture.ts';
import type { SeededGraph } from './seeded-graph.ts';
import { imageInput, imageSettings, logitsOutput, maxPool, scaled } from './vision.ts';

const epsilon = 1e-3;

/** A value and its channel count. */
interface Features {
  readonly value: string;
  readonly channels: number;
}

type Kernel = number | readonly [height: number, width: number];

/**
 * Adds Conv + BatchNormalization + Relu blocks under their names; channel counts are the paper's, scaled by `width`.
 */
class Inception {
  readonly #graph: SeededGraph;
  readonly #width: number;

  constructor(graph: SeededGraph, width: number) {
    this.#graph = graph;
    this.#width = width;
  }

  conv(
    name: string,
    x: Features,
    channels: number,
    kernel: Kernel,
    options: { stride?: number; padding?: Kernel } = {},
  ): Features {
    const outChannels = scaled(channels, this.#width);
    const value = this.#graph.scope(name, () => {
      const convolved = this.#graph.conv('conv', x.value, x.channels, outChannels, { kernel, ...options });
      return this.#graph.node('Relu', [this.#graph.batchNorm('bn', convolved, outChannels, epsilon)]);
    });
    return { value, channels: outChannels };
  }

  /** A 1xN or Nx1 kernel that keeps the size. */
  line(name: string, x: Features, channels: number, kernel: readonly [number, number]): Features {
    return this.conv(name, x, channels, kernel, { padding: [(kernel[0] - 1) / 2, (kernel[1] - 1) / 2] });
  }

  maxPool(x: Features): Features {
    return { value: maxPool(this.#graph, x.value, 3, 2), channels: x.channels };
  }

  /** A 3x3 mean that keeps the size and counts the padding, then a 1x1 convolution. */
  pooledConv(x: Features, channels: number): Features {
    const value = this.#graph.node('AveragePool', [x.value], {
      count_include_pad: 1,
      kernel_shape: [3, 3],
      pads: [1, 1, 1, 1],
      strides: [1, 1],
    });
    return this.conv('branch_pool', { value, channels: x.channels }, channels, 1);
  }

  concat(branches: readonly Features[]): Features {
    return {
      value: this.#graph.node(
        'Concat',
        branches.map(({ value }) => value),
        { axis: 1 },
      ),
      channels: branches.reduce((sum, { channels }) => sum + channels, 0),
    };
  }

  block(name: string, body: () => Features): Features {
    return this.#graph.scope(name, body);
  }
}

function blockA(net: Inception, name: string, x: Features, poolChannels: number): Features {
  return net.block(name, () => {
    const branch1x1 = net.conv('branch1x1', x, 64, 1);
    const branch5x5 = net.conv('branch5x5_2', net.conv('branch5x5_1', x, 48, 1), 64, 5, { padding: 2 });
    let branch3x3 = net.conv('branch3x3dbl_1', x, 64, 1);
    branch3x3 = net.conv('branch3x3dbl_2', branch3x3, 96, 3, { padding: 1 });
    branch3x3 = net.conv('branch3x3dbl_3', branch3x3, 96, 3, { padding: 1 });
    return net.concat([branch1x1, branch5x5, branch3x3, net.pooledConv(x, poolChannels)]);
  });
}

function blockB(net: Inception, name: string, x: Features): Features {
  return net.block(name, () => {
    const branch3x3 = net.conv('branch3x3', x, 384, 3, { stride: 2 });
    let double = net.conv('branch3x3dbl_1', x, 64, 1);
    double = net.conv('branch3x3dbl_2', double, 96, 3, { padding: 1 });
    double = net.conv('branch3x3dbl_3', double, 96, 3, { stride: 2 });
    return net.concat([branch3x3, double, net.maxPool(x)]);
  });
}

function blockC(net: Inception, name: string, x: Features, middle: number): Features {
  return net.block(name, () => {
    const branch1x1 = net.conv('branch1x1', x, 192, 1);
    let branch7x7 = net.conv('branch7x7_1', x, middle, 1);
    branch7x7 = net.line('branch7x7_2', branch7x7, middle, [1, 7]);
    branch7x7 = net.line('branch7x7_3', branch7x7, 192, [7, 1]);
    let double = net.conv('branch7x7dbl_1', x, middle, 1);
    double = net.line('branch7x7dbl_2', double, middle, [7, 1]);
    double = net.line('branch7x7dbl_3', double, middle, [1, 7]);
    double = net.line('branch7x7dbl_4', double, middle, [7, 1]);
    double = net.line('branch7x7dbl_5', double, 192, [1, 7]);
    return net.concat([branch1x1, branch7x7, double, net.pooledConv(x, 192)]);
  });
}

function blockD(net: Inception, name: string, x: Features): Features {
  return net.block(name, () => {
    const branch3x3 = net.conv('branch3x3_2', net.conv('branch3x3_1', x, 192, 1), 320, 3, { stride: 2 });
    let branch7x7 = net.conv('branch7x7x3_1', x, 192, 1);
    branch7x7 = net.line('branch7x7x3_2', branch7x7, 192, [1, 7]);
    branch7x7 = net.line('branch7x7x3_3', branch7x7, 192, [7, 1]);
    branch7x7 = net.conv('branch7x7x3_4', branch7x7, 192, 3, { stride: 2 });
    return net.concat([branch3x3, branch7x7, net.maxPool(x)]);
  });
}

function blockE(net: Inception, name: string, x: Features): Features {
  return net.block(name, () => {
    const branch1x1 = net.conv('branch1x1', x, 320, 1);
    const middle = net.conv('branch3x3_1', x, 384, 1);
    const split = net.concat([
      net.line('branch3x3_2a', middle, 384, [1, 3]),
      net.line('branch3x3_2b', middle, 384, [3, 1]),
    ]);
    const wide = net.conv('branch3x3dbl_2', net.conv('branch3x3dbl_1', x, 448, 1), 384, 3, { padding: 1 });
    const double = net.concat([
      net.line('branch3x3dbl_3a', wide, 384, [1, 3]),
      net.line('branch3x3dbl_3b', wide, 384, [3, 1]),
    ]);
    return net.concat([branch1x1, split, double, net.pooledConv(x, 192)]);
  });
}

export const inceptionV3 = defineArchitecture({
  name: 'inception-v3',
  description: 'Inception-v3, without the auxiliary classifier: an image to the logits of its class',
  settings: {
    // Below 75 pixels nothing is left for the last reduction.
    ...imageSettings({ image: 299, imageMin: 75 }),
    width: { type: 'number', default: 1, min: 0.01, max: 100, meaning: 'multiplier of all channel counts' },
  },
  graph(graph, settings) {
    const net = new Inception(graph, settings.width);
    let x: Features = { value: imageInput(graph, settings), channels: settings.channels };
    x = net.conv('Conv2d_1a_3x3', x, 32, 3, { stride: 2 });
    x = net.conv('Conv2d_2a_3x3', x, 32, 3);
    x = net.conv('Conv2d_2b_3x3', x, 64, 3, { padding: 1 });
    x = net.maxPool(x);
    x = net.conv('Conv2d_3b_1x1', x, 80, 1);
    x = net.conv('Conv2d_4a_3x3', x, 192, 3);
    x = net.maxPool(x);
    x = blockA(net, 'Mixed_5b', x, 32);
    x = blockA(net, 'Mixed_5c', x, 64);
    x = blockA(net, 'Mixed_5d', x, 64);
    x = blockB(net, 'Mixed_6a', x);
    x = blockC(net, 'Mixed_6b', x, 128);
    x = blockC(net, 'Mixed_6c', x, 160);
    x = blockC(net, 'Mixed_6d', x, 160);
    x = blockC(net, 'Mixed_6e', x, 192);
    x = blockD(net, 'Mixed_7a', x);
    x = blockE(net, 'Mixed_7b', x);
    x = blockE(net, 'Mixed_7c', x);
    logitsOutput(graph, graph.classifier('fc', x.value, x.channels, settings.classes), settings);
  },
});
