/** Draws digits as a hand would: strokes that are defined here, bent, slanted and inked at random. */
import type { SeededRandom } from '../_training/random.ts';
import type { GreyImage } from './image.ts';

type Point = readonly [x: number, y: number];
/** One stroke of the pen: a curve through its points, or straight lines between them. */
interface Stroke {
  readonly points: readonly Point[];
  readonly straight: boolean;
}

const curve = (...points: Point[]): Stroke => ({ points, straight: false });
const lines = (...points: Point[]): Stroke => ({ points, straight: true });
/** Part of an ellipse, in degrees clockwise from three o'clock. */
function arc(centreX: number, centreY: number, radiusX: number, radiusY: number, from: number, to: number): Stroke {
  const steps = 12;
  const points = Array.from({ length: steps + 1 }, (_, step): Point => {
    const angle = ((from + ((to - from) * step) / steps) * Math.PI) / 180;
    return [centreX + radiusX * Math.cos(angle), centreY + radiusY * Math.sin(angle)];
  });
  return { points, straight: false };
}

/** The ways in which each digit is written; x to the right and y down, a digit filling 0 to 1. */
const shapes: readonly (readonly (readonly Stroke[])[])[] = [
  [[arc(0.5, 0.5, 0.36, 0.5, -90, 270)], [arc(0.5, 0.5, 0.28, 0.5, -70, 300)], [arc(0.5, 0.5, 0.45, 0.5, -110, 245)]],
  [
    [lines([0.5, 0], [0.5, 1])],
    [lines([0.28, 0.24], [0.52, 0], [0.52, 1])],
    [lines([0.28, 0.22], [0.52, 0], [0.52, 1]), lines([0.26, 1], [0.78, 1])],
    [curve([0.55, 0], [0.51, 0.5], [0.48, 1])],
  ],
  [
    [
      curve([0.12, 0.25], [0.32, 0.03], [0.66, 0.02], [0.85, 0.25], [0.72, 0.5], [0.4, 0.78], [0.1, 1]),
      lines([0.1, 1], [0.92, 1]),
    ],
    [
      curve(
        ...([
          [0.15, 0.22],
          [0.42, 0],
          [0.8, 0.15],
          [0.75, 0.45],
          [0.48, 0.8],
          [0.2, 0.98],
          [0.08, 0.86],
          [0.28, 0.78],
          [0.6, 0.94],
          [0.95, 0.92],
        ] as const),
      ),
    ],
    [
      curve([0.1, 0.18], [0.45, 0], [0.82, 0.18], [0.62, 0.6], [0.12, 0.97]),
      curve([0.12, 0.97], [0.5, 0.93], [0.95, 1]),
    ],
  ],
  [
    [
      curve([0.15, 0.12], [0.45, 0], [0.8, 0.18], [0.7, 0.42], [0.4, 0.48]),
      curve([0.4, 0.48], [0.78, 0.56], [0.86, 0.8], [0.5, 1], [0.12, 0.88]),
    ],
    [lines([0.15, 0], [0.82, 0], [0.45, 0.4]), curve([0.45, 0.4], [0.84, 0.52], [0.85, 0.82], [0.5, 1], [0.12, 0.9])],
    [curve([0.18, 0.08], [0.6, 0], [0.8, 0.22], [0.5, 0.46], [0.82, 0.66], [0.7, 0.95], [0.12, 0.96])],
  ],
  [
    [lines([0.3, 0], [0.12, 0.55], [0.9, 0.55]), lines([0.7, 0.1], [0.68, 1])],
    [lines([0.64, 0], [0.08, 0.66], [0.95, 0.66]), lines([0.64, 0], [0.64, 1])],
    [curve([0.2, 0], [0.14, 0.38], [0.38, 0.52], [0.8, 0.44]), lines([0.84, 0], [0.74, 1])],
    [lines([0.2, 0.02], [0.15, 0.5], [0.85, 0.5]), lines([0.8, 0], [0.78, 1])],
  ],
  [
    [
      lines([0.85, 0], [0.25, 0], [0.2, 0.45]),
      curve([0.2, 0.45], [0.55, 0.36], [0.87, 0.62], [0.7, 0.93], [0.4, 1], [0.1, 0.9]),
    ],
    [
      lines([0.9, 0.02], [0.35, 0]),
      curve([0.35, 0], [0.22, 0.38], [0.6, 0.48], [0.78, 0.72], [0.55, 0.97], [0.1, 0.95]),
    ],
    [
      lines([0.3, 0], [0.24, 0.42]),
      curve([0.24, 0.42], [0.6, 0.38], [0.85, 0.65], [0.6, 0.98], [0.12, 0.92]),
      lines([0.3, 0.02], [0.88, 0]),
    ],
  ],
  [
    [
      curve(
        [0.7, 0],
        [0.36, 0.2],
        [0.15, 0.6],
        [0.3, 0.95],
        [0.65, 0.98],
        [0.83, 0.73],
        [0.6, 0.5],
        [0.3, 0.58],
        [0.18, 0.75],
      ),
    ],
    [curve([0.45, 0], [0.22, 0.35], [0.18, 0.75], [0.45, 1], [0.78, 0.82], [0.7, 0.56], [0.4, 0.56], [0.2, 0.74])],
    [curve([0.85, 0.05], [0.45, 0.12], [0.16, 0.55], [0.3, 0.96], [0.72, 0.95], [0.82, 0.68], [0.5, 0.55], [0.2, 0.7])],
  ],
  [
    [lines([0.1, 0.02], [0.9, 0], [0.42, 1])],
    [lines([0.1, 0.02], [0.9, 0], [0.42, 1]), lines([0.32, 0.5], [0.82, 0.5])],
    [lines([0.1, 0.05], [0.88, 0]), curve([0.88, 0], [0.58, 0.45], [0.45, 1])],
    [lines([0.12, 0.16], [0.12, 0.02], [0.88, 0], [0.5, 1])],
    [curve([0.08, 0.12], [0.45, 0.02], [0.85, 0.08], [0.7, 0.5], [0.6, 1])],
  ],
  [
    [arc(0.5, 0.25, 0.3, 0.25, 90, 450), arc(0.5, 0.75, 0.37, 0.25, -90, 270)],
    [
      curve(
        ...([
          [0.76, 0.12],
          [0.42, 0],
          [0.2, 0.2],
          [0.46, 0.45],
          [0.8, 0.72],
          [0.55, 1],
          [0.2, 0.85],
          [0.32, 0.6],
          [0.66, 0.38],
          [0.78, 0.16],
        ] as const),
      ),
    ],
    [
      curve(
        ...([
          [0.85, 0.05],
          [0.4, 0.02],
          [0.28, 0.28],
          [0.6, 0.5],
          [0.72, 0.8],
          [0.42, 1],
          [0.25, 0.8],
          [0.5, 0.5],
          [0.85, 0.05],
        ] as const),
      ),
    ],
  ],
  [
    [arc(0.48, 0.28, 0.33, 0.28, 0, 360), lines([0.81, 0.28], [0.76, 1])],
    [arc(0.48, 0.28, 0.33, 0.28, -20, 340), curve([0.81, 0.2], [0.83, 0.6], [0.65, 0.95], [0.35, 1], [0.16, 0.9])],
    [curve([0.8, 0.14], [0.5, 0], [0.2, 0.2], [0.26, 0.48], [0.6, 0.48], [0.8, 0.18], [0.76, 0.6], [0.6, 1])],
  ],
];

/** How differently people write: the deviations of the random changes. */
const jitter = 0.05;
const rotationRadians = 0.17;
const shear = 0.28;
const bend = 0.05;
const noise = 0.02;

/** A drawn `digit`, white paper and dark ink, `size` pixels wide and high. */
export function drawDigit(digit: number, random: SeededRandom, size: number): GreyImage {
  const strokes = random.pick(shapes[digit] ?? []);
  const scaleX = size * random.between(0.32, 0.78);
  const scaleY = size * random.between(0.6, 0.74);
  const angle = rotationRadians * random.normal();
  const slant = shear * random.normal();
  const phase = random.between(0, 2 * Math.PI);
  const bendX = bend * random.normal();
  const bendY = bend * random.normal();
  const shiftX = size * (0.5 + random.between(-0.06, 0.06));
  const shiftY = size * (0.5 + random.between(-0.06, 0.06));
  const place = ([x, y]: Point): Point => {
    const bentX = x - 0.5 + bendX * Math.sin(2 * Math.PI * y + phase);
    const bentY = y - 0.5 + bendY * Math.sin(2 * Math.PI * x + phase);
    const flatX = scaleX * bentX - slant * scaleY * bentY;
    const flatY = scaleY * bentY;
    return [
      shiftX + flatX * Math.cos(angle) - flatY * Math.sin(angle),
      shiftY + flatX * Math.sin(angle) + flatY * Math.cos(angle),
    ];
  };
  const paths = strokes.map(({ points, straight }) => {
    const moved = points.map(([x, y]): Point => [x + jitter * random.normal(), y + jitter * random.normal()]);
    return (straight ? moved : smooth(moved)).map(place);
  });
  return ink(paths, size, random);
}

function ink(paths: readonly (readonly Point[])[], size: number, random: SeededRandom): GreyImage {
  const radius = size * random.between(0.016, 0.07);
  const softness = size * random.between(0.012, 0.03);
  const paper = random.between(0.85, 1);
  const darkness = random.between(0.6, 1) * paper;
  const pixels = new Float32Array(size * size);
  for (let y = 0; y < size; y++) {
    for (let x = 0; x < size; x++) {
      const distance = Math.sqrt(squaredDistance(paths, x + 0.5, y + 0.5));
      const covered = Math.max(0, Math.min(1, 0.5 + (radius - distance) / (2 * softness)));
      const value = paper - darkness * covered + noise * random.normal();
      pixels[y * size + x] = Math.max(0, Math.min(1, value));
    }
  }
  return { width: size, height: size, pixels };
}

/** To the nearest of all segments. */
function squaredDistance(paths: readonly (readonly Point[])[], x: number, y: number): number {
  let nearest = Number.POSITIVE_INFINITY;
  for (const path of paths) {
    for (let index = 1; index < path.length; index++) {
      const [fromX, fromY] = path[index - 1] ?? [0, 0];
      const [toX, toY] = path[index] ?? [0, 0];
      const alongX = toX - fromX;
      const alongY = toY - fromY;
      const length = alongX * alongX + alongY * alongY || 1e-12;
      const share = Math.max(0, Math.min(1, ((x - fromX) * alongX + (y - fromY) * alongY) / length));
      const offX = x - fromX - share * alongX;
      const offY = y - fromY - share * alongY;
      nearest = Math.min(nearest, offX * offX + offY * offY);
    }
  }
  return nearest;
}

/** A Catmull-Rom spline through the points, as short straight lines. */
function smooth(points: readonly Point[]): Point[] {
  const steps = 5;
  const path: Point[] = [];
  const at = (index: number): Point => points[Math.max(0, Math.min(points.length - 1, index))] ?? [0, 0];
  for (let index = 0; index < points.length - 1; index++) {
    const [before, from, to, after] = [at(index - 1), at(index), at(index + 1), at(index + 2)];
    for (let step = 0; step < steps; step++) {
      const t = step / steps;
      path.push([spline(before[0], from[0], to[0], after[0], t), spline(before[1], from[1], to[1], after[1], t)]);
    }
  }
  path.push(at(points.length - 1));
  return path;
}

function spline(before: number, from: number, to: number, after: number, t: number): number {
  return (
    0.5 *
    (2 * from +
      (to - before) * t +
      (2 * before - 5 * from + 4 * to - after) * t * t +
      (3 * from - before - 3 * to + after) * t * t * t)
  );
}
