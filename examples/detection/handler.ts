/** POST a JPEG and get `{"boxes": [{"x", "y", "width", "height", "score"}]}`; with `Accept: image/jpeg` the picture with the boxes. */
import type { HandlerCall, HandlerTensor } from 'turntable';
import { decode, encode } from 'jpeg-js';

/** What the model takes, and the pixels of it that one of its scores is for. */
const size = 128;
const cell = 8;
const scoreMin = 0.5;
const colour = [255, 0, 0] as const;

interface Picture {
  readonly width: number;
  readonly height: number;
  /** Four bytes a pixel. */
  readonly data: Uint8Array;
}

interface Box {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
  readonly score: number;
}

/** A call's picture, for as long as the call lasts. */
const pictures = new WeakMap<HandlerCall, Picture>();

export function preprocess(request: HandlerCall): HandlerTensor[] {
  const picture = pictureOf(request.body);
  pictures.set(request, picture);
  const data = new Float32Array(3 * size * size);
  for (let y = 0; y < size; y++) {
    for (let x = 0; x < size; x++) {
      const column = Math.floor(((x + 0.5) * picture.width) / size);
      const row = Math.floor(((y + 0.5) * picture.height) / size);
      for (let channel = 0; channel < 3; channel++) {
        data[(channel * size + y) * size + x] = picture.data[4 * (row * picture.width + column) + channel]! / 255;
      }
    }
  }
  return [{ name: 'pixels', datatype: 'FP32', shape: [1, 3, size, size], data }];
}

export function postprocess(tensors: readonly HandlerTensor[], request: HandlerCall): unknown {
  const picture = pictures.get(request);
  if (picture === undefined) throw new Error('preprocess has not seen this call');
  const boxes = boxesOf(tensors[0]?.data as Float32Array, picture);
  if (request.headers['accept'] !== 'image/jpeg') return { boxes };
  for (const box of boxes) draw(picture, box);
  const { data } = encode({ ...picture, data: picture.data as Buffer }, 90);
  return new Response(new Uint8Array(data), { headers: { 'content-type': 'image/jpeg' } });
}

function pictureOf(body: Uint8Array): Picture {
  try {
    // A small file may claim to be a huge picture.
    return decode(body, { useTArray: true, maxResolutionInMP: 50, maxMemoryUsageInMB: 512 });
  } catch (error) {
    throw Object.assign(new Error(`the body is not a JPEG: ${(error as Error).message}`), { status: 400 });
  }
}

/** One around each group of cells that touch, the surest first. */
function boxesOf(scores: Float32Array, { width, height }: Picture): Box[] {
  const side = size / cell;
  const seen = new Set<number>();
  const boxes: Box[] = [];
  for (let start = 0; start < scores.length; start++) {
    if (seen.has(start) || scores[start]! < scoreMin) continue;
    const group = groupOf(scores, side, start, seen);
    const columns = group.map((at) => at % side);
    const rows = group.map((at) => Math.floor(at / side));
    const left = Math.round((Math.min(...columns) * width) / side);
    const top = Math.round((Math.min(...rows) * height) / side);
    boxes.push({
      x: left,
      y: top,
      width: Math.round(((Math.max(...columns) + 1) * width) / side) - left,
      height: Math.round(((Math.max(...rows) + 1) * height) / side) - top,
      score: Math.round(Math.max(...group.map((at) => scores[at]!)) * 1000) / 1000,
    });
  }
  return boxes.sort((one, other) => other.score - one.score);
}

function groupOf(scores: Float32Array, side: number, start: number, seen: Set<number>): number[] {
  const group = [start];
  seen.add(start);
  for (const at of group) {
    const column = at % side;
    const beside = [column > 0 ? at - 1 : -1, column < side - 1 ? at + 1 : -1, at - side, at + side];
    for (const next of beside) {
      if (seen.has(next) || !((scores[next] ?? 0) >= scoreMin)) continue;
      seen.add(next);
      group.push(next);
    }
  }
  return group;
}

function draw(picture: Picture, box: Box): void {
  const line = Math.max(1, Math.round(Math.min(picture.width, picture.height) / 100));
  for (let y = box.y; y < box.y + box.height; y++) {
    for (let x = box.x; x < box.x + box.width; x++) {
      const edge = Math.min(x - box.x, y - box.y, box.x + box.width - 1 - x, box.y + box.height - 1 - y);
      if (edge < line) picture.data.set(colour, 4 * (y * picture.width + x));
    }
  }
}
