/**
 * Reads and scales pictures as PIL does, and so torchvision's transforms of a PIL image: turned as EXIF says
 * (`ImageOps.exif_transpose`), scaled by its bilinear filter, which averages where it makes smaller (antialias), with the
 * same rounding. examples/image-classification has the same file.
 */
import { decode } from 'jpeg-js';

/** Red, green, blue and alpha of each pixel, a byte each. */
export interface Picture {
  readonly width: number;
  readonly height: number;
  readonly data: Uint8Array;
}

/** @throws an error for the client, if the body is no JPEG */
export function decodePicture(body: Uint8Array): Picture {
  let decoded: Picture & { readonly exifBuffer?: Uint8Array };
  try {
    // A small file may claim to be a huge picture.
    decoded = decode(body, { useTArray: true, maxResolutionInMP: 50, maxMemoryUsageInMB: 512 });
  } catch (error) {
    throw Object.assign(new Error(`the body is not a JPEG: ${(error as Error).message}`), { status: 400 });
  }
  // A byte of 'Exif\0\0' comes first.
  return turned(decoded, orientationIn(decoded.exifBuffer?.subarray(1)));
}

/** As `transforms.Resize(size)`: the shorter side gets this size. */
export function resizeShorter(picture: Picture, size: number): Picture {
  const { width, height } = picture;
  const long = Math.trunc((size * Math.max(width, height)) / Math.min(width, height));
  return width <= height ? resize(picture, size, long) : resize(picture, long, size);
}

/** As `transforms.CenterCrop(size)` of a picture that is large enough. */
export function cropCentre({ width, height, data }: Picture, size: number): Picture {
  const [left, top] = [roundToEven((width - size) / 2), roundToEven((height - size) / 2)];
  const cropped = new Uint8Array(4 * size * size);
  for (let y = 0; y < size; y++) {
    const from = 4 * ((top + y) * width + left);
    cropped.set(data.subarray(from, from + 4 * size), 4 * y * size);
  }
  return { width: size, height: size, data: cropped };
}

/** As `image.resize((width, height), Image.BILINEAR)`: first the columns, then the rows, each rounded to bytes. */
export function resize(picture: Picture, width: number, height: number): Picture {
  const wide = width === picture.width ? picture : scaled(picture, width, 'x');
  return height === wide.height ? wide : scaled(wide, height, 'y');
}

/** PIL's weights are whole numbers of 1 / 2^22. */
const one = 2 ** 22;

function scaled({ width, height, data }: Picture, size: number, axis: 'x' | 'y'): Picture {
  const [own, across] = axis === 'x' ? [width, height] : [height, width];
  const [outWidth, outHeight] = axis === 'x' ? [size, height] : [width, size];
  const [step, stride] = axis === 'x' ? [4, 4 * width] : [4 * width, 4];
  const [outStep, outStride] = axis === 'x' ? [4, 4 * outWidth] : [4 * outWidth, 4];
  const out = new Uint8Array(4 * outWidth * outHeight).fill(255);
  for (let at = 0; at < size; at++) {
    const { first, weights } = weightsOf(at, own, size);
    for (let line = 0; line < across; line++) {
      for (let channel = 0; channel < 3; channel++) {
        let sum = one / 2;
        let from = first * step + line * stride + channel;
        for (const weight of weights) {
          sum += weight * data[from]!;
          from += step;
        }
        out[at * outStep + line * outStride + channel] = sum >> 22;
      }
    }
  }
  return { width: outWidth, height: outHeight, data: out };
}

/** Of the pixels under a triangle around the middle of an output pixel, two of those wide, or two input pixels. */
function weightsOf(at: number, own: number, size: number): { readonly first: number; readonly weights: number[] } {
  const scale = own / size;
  const reach = Math.max(1, scale);
  const middle = (at + 0.5) * scale;
  const first = Math.max(0, Math.trunc(middle - reach + 0.5));
  const end = Math.min(own, Math.trunc(middle + reach + 0.5));
  const heights = Array.from({ length: end - first }, (_, index) =>
    Math.max(0, 1 - Math.abs((first + index - middle + 0.5) / reach)),
  );
  const sum = heights.reduce((total, each) => total + each, 0);
  return { first, weights: heights.map((each) => Math.trunc((each / sum) * one + 0.5)) };
}

/** Python's `round`. */
function roundToEven(value: number): number {
  const floor = Math.floor(value);
  return value - floor === 0.5 ? floor + (floor % 2) : Math.round(value);
}

/** From 1, upright, to 8. */
function orientationIn(tiff: Uint8Array | undefined): number {
  if (tiff === undefined) return 1;
  const view = new DataView(tiff.buffer, tiff.byteOffset, tiff.byteLength);
  try {
    const isLittle = view.getUint16(0) === 0x4949;
    const entries = view.getUint32(4, isLittle);
    for (let at = entries + 2; at < entries + 2 + 12 * view.getUint16(entries, isLittle); at += 12) {
      if (view.getUint16(at, isLittle) === 0x0112) return view.getUint16(at + 8, isLittle);
    }
  } catch {
    // It ends too early.
  }
  return 1;
}

function turned(picture: Picture, orientation: number): Picture {
  const { width, height, data } = picture;
  const [right, bottom] = [width - 1, height - 1];
  /** Where the pixel at x, y comes from. */
  const sources: Readonly<Record<number, (x: number, y: number) => readonly [x: number, y: number]>> = {
    2: (x, y) => [right - x, y],
    3: (x, y) => [right - x, bottom - y],
    4: (x, y) => [x, bottom - y],
    5: (x, y) => [y, x],
    6: (x, y) => [y, bottom - x],
    7: (x, y) => [right - y, bottom - x],
    8: (x, y) => [right - y, x],
  };
  const source = sources[orientation];
  if (source === undefined) return picture;
  const [outWidth, outHeight] = orientation < 5 ? [width, height] : [height, width];
  const pixels = new Uint32Array(data.buffer, data.byteOffset, width * height);
  const out = new Uint32Array(outWidth * outHeight);
  for (let y = 0; y < outHeight; y++) {
    for (let x = 0; x < outWidth; x++) {
      const [fromX, fromY] = source(x, y);
      out[y * outWidth + x] = pixels[fromY * width + fromX]!;
    }
  }
  return { width: outWidth, height: outHeight, data: new Uint8Array(out.buffer) };
}
