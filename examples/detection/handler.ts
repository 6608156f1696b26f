/** POST a JPEG and get `{"boxes": [{"x", "y", "width", "height", "score"}]}`; with `Accept: image/jpeg` the picture with the boxes. */
import type { HandlerCall, HandlerTensor } from 'turntable';
import { encode } from 'jpeg-js';
import { decodePicture, resize, type Picture } from './picture.ts';

/** What the model takes: this many pixels a side, channels last, from -1 to 1. */
const size = 128;
/** Of the anchors: one of each size (width, height) around the middle of each cell of a grid. */
const cells = 16;
const anchorSizes = [
  [32, 32],
  [16, 32],
] as const;
const scoreMin = 0.5;
/** Of two boxes that overlap by more, intersection over union, the surer one stays. */
const overlapMax = 0.5;
const colour = [255, 0, 0] as const;

export interface Box {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
  readonly score: number;
}

/** A call's picture, for as long as the call lasts. */
const pictures = new WeakMap<HandlerCall, Picture>();

export function preprocess(request: HandlerCall): HandlerTensor[] {
  const picture = decodePicture(request.body);
  pictures.set(request, picture);
  const { data: pixels } = resize(picture, size, size);
  const data = Float32Array.from({ length: size * size * 3 }, (_, at) => {
    const [pixel, channel] = [Math.floor(at / 3), at % 3];
    return pixels[4 * pixel + channel]! / 127.5 - 1;
  });
  return [{ name: 'image', datatype: 'FP32', shape: [1, size, size, 3], data }];
}

export function postprocess(tensors: readonly HandlerTensor[], request: HandlerCall): unknown {
  const picture = pictures.get(request);
  if (picture === undefined) throw new Error('preprocess has not seen this call');
  const [offsets, scores] = ['boxes', 'scores'].map((name) => tensors.find((each) => each.name === name)?.data);
  const found = suppressed(boxesOf(offsets as Float32Array, scores as Float32Array));
  const boxes = found.map((box) => inPicture(box, picture));
  if (request.headers['accept'] !== 'image/jpeg') return { boxes };
  for (const box of boxes) draw(picture, box);
  const { data } = encode({ ...picture, data: picture.data as Buffer }, 90);
  return new Response(new Uint8Array(data), { headers: { 'content-type': 'image/jpeg' } });
}

/** In pixels of the model, by torchvision's BoxCoder with the weights of its SSD: 10 for the middle, 5 for the size. */
export function boxesOf(offsets: ArrayLike<number>, scores: ArrayLike<number>): Box[] {
  const boxes: Box[] = [];
  for (let at = 0; at < scores.length; at++) {
    const score = scores[at]!;
    if (score < scoreMin) continue;
    const [anchorWidth, anchorHeight] = anchorSizes[at % anchorSizes.length]!;
    const cell = Math.floor(at / anchorSizes.length);
    const middle = (index: number): number => ((index + 0.5) * size) / cells;
    const [dx = 0, dy = 0, dw = 0, dh = 0] = Array.from({ length: 4 }, (_, part) => offsets[4 * at + part]!);
    const [width, height] = [anchorWidth * Math.exp(dw / 5), anchorHeight * Math.exp(dh / 5)];
    const x = middle(cell % cells) + (dx / 10) * anchorWidth - width / 2;
    const y = middle(Math.floor(cell / cells)) + (dy / 10) * anchorHeight - height / 2;
    boxes.push({ x, y, width, height, score });
  }
  return boxes;
}

/** As torchvision's `nms`: the surest first, without what overlaps a surer one. */
export function suppressed(boxes: readonly Box[]): Box[] {
  const kept: Box[] = [];
  for (const box of boxes.toSorted((one, other) => other.score - one.score)) {
    if (kept.every((surer) => overlap(surer, box) <= overlapMax)) kept.push(box);
  }
  return kept;
}

function overlap(one: Box, other: Box): number {
  const wide = Math.min(one.x + one.width, other.x + other.width) - Math.max(one.x, other.x);
  const high = Math.min(one.y + one.height, other.y + other.height) - Math.max(one.y, other.y);
  const both = Math.max(0, wide) * Math.max(0, high);
  return both / (one.width * one.height + other.width * other.height - both);
}

/** In whole pixels of the picture, and inside it. */
function inPicture(box: Box, { width, height }: Picture): Box {
  const [left, right] = [box.x, box.x + box.width].map((at) => pixelOf(at, width)) as [number, number];
  const [top, bottom] = [box.y, box.y + box.height].map((at) => pixelOf(at, height)) as [number, number];
  const score = Math.round(box.score * 1000) / 1000;
  return { x: left, y: top, width: right - left, height: bottom - top, score };
}

const pixelOf = (at: number, length: number): number => Math.round(Math.min(length, Math.max(0, (at * length) / size)));

function draw(picture: Picture, box: Box): void {
  const line = Math.max(1, Math.round(Math.min(picture.width, picture.height) / 100));
  for (let y = box.y; y < box.y + box.height; y++) {
    for (let x = box.x; x < box.x + box.width; x++) {
      const edge = Math.min(x - box.x, y - box.y, box.x + box.width - 1 - x, box.y + box.height - 1 - y);
      if (edge < line) picture.data.set(colour, 4 * (y * picture.width + x));
    }
  }
}
