/** What weights take on the link when they are coded without loss, and what coding and decoding cost. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { decodePack, encodePack, entropyBits, type PackedWeight } from '../src/coding/index.ts';
import { kernelFrom } from '../src/gpu/operators/common/kernel-file.ts';
import {
  buildArchitecture,
  ElementType,
  Graph,
  readModel,
  tensorBytes,
  type ModelProto,
  type Weight,
} from '../src/onnx/index.ts';
import { layers } from '../src/operators/index.ts';
import { mix32 } from '../src/tools/index.ts';
import { fp16ToNumber } from '../src/tensor/index.ts';
import { clang, ptxOf } from '../test/support/ptx.ts';
import { trainedLike, type TrainedLike } from '../test/support/trained-like.ts';
import {
  tableOf,
  type Benchmark,
  type BenchmarkOptions,
  type BenchmarkResult,
  type BenchmarkTable,
} from './benchmark.ts';

export const benchmark: Benchmark = {
  name: 'coding',
  description: 'how many bytes do coded weights take, and what do coding and decoding cost?',
  rowNames: () => architectures,
  run,
};

const architectures = [
  'bert-base',
  'roberta-base',
  'gpt2',
  'resnet50',
  'resnet101',
  'vgg16',
  'inception-v3',
  'mobilenet-v2',
  'lstm',
  'gru',
];
/** Trained by scripts beside them. */
const trained = ['accent-restorer', 'digit-reader', 'language-id'];
/** A larger weight is drawn in part: what its exponents take depends on how they are distributed alone. */
const drawnElementsMax = 2 ** 19;
const ratioMax = 0.85;
const checkShareMax = 0.1;

type Datatype = TrainedLike['datatype'];

/** Sums over layers, each counted with all of its bytes. */
class Sum {
  bytes = 0;
  coded = 0;

  /** @param scale of a layer that was drawn in part */
  add(pack: Uint8Array, coded: Uint8Array | undefined, scale: number): void {
    this.bytes += scale * pack.byteLength;
    this.coded += scale * (coded ?? pack).byteLength;
  }

  get ratio(): number {
    return this.coded / this.bytes;
  }
}

/** Milliseconds of a core, and the bytes of weights that were handled in them. */
class Rate {
  bytes = 0;
  ms = 0;

  of<Result>(bytes: number, work: () => Result): Result {
    const before = process.cpuUsage();
    const result = work();
    const { user, system } = process.cpuUsage(before);
    this.ms += (user + system) / 1000;
    this.bytes += bytes;
    return result;
  }

  get mbPerS(): number {
    return this.bytes / 1000 / this.ms;
  }
}

class Figures {
  readonly f32 = new Sum();
  /** Without tables of embeddings, which stay as they are where kernels read them in host memory. */
  readonly f32Moved = new Sum();
  readonly bf16 = new Sum();
  readonly f16 = new Sum();
  readonly f16In32 = new Sum();
  /** Bits of 32-bit weights under any code for their exponents, and under three bits with escapes. */
  entropy = 0;
  rival = 0;
  bits = 0;

  addCounts(values: Uint32Array, scale: number): void {
    const counts = new Float64Array(256);
    for (const value of values) counts[(value >>> 23) & 255]!++;
    const frequent = counts.toSorted().reverse().slice(0, 7);
    const escaped = values.length - frequent.reduce((sum, count) => sum + count, 0);
    this.entropy += scale * (24 * values.length + entropyBits(counts));
    this.rival += scale * (27 * values.length + 8 * escaped);
    this.bits += scale * 32 * values.length;
  }
}

interface Rates {
  readonly encoding: Rate;
  readonly decoding: Rate;
}

async function run({ small, seed, rows, progress }: BenchmarkOptions): Promise<BenchmarkResult> {
  const names = small ? ['mobilenet-v2'] : architectures.filter((name) => rows === undefined || rows.includes(name));
  const rates: Rates = { encoding: new Rate(), decoding: new Rate() };
  const found: { readonly name: string; readonly weights: string; readonly figures: Figures }[] = [];
  for (const name of names) {
    progress(name);
    const { model } = buildArchitecture(name);
    found.push({ name, weights: 'trained-like', figures: codeLayers(model, small, seed, rates) });
  }
  for (const name of small || rows !== undefined ? [] : trained) {
    const path = join(import.meta.dirname, `../functions/${name}/model.onnx`);
    const model = await readModel(path);
    found.push({ name, weights: 'trained', figures: codeTrained(model, rates) });
  }
  progress('the kernel');
  const kernel = clang === undefined ? [] : await kernelCosts();
  const drawn = found.filter(({ weights }) => weights === 'trained-like');
  const worst = Math.max(...drawn.map(({ figures }) => figures.f32Moved.ratio));
  const checkShare = Math.max(0, ...kernel.map(({ checkShare }) => checkShare));
  return {
    settings: { drawnElementsMax: small ? smallElements : drawnElementsMax, architectures: names.length },
    tables: [ratioTable(found), rateTable(rates), ...(kernel.length === 0 ? [] : [kernelTable(kernel)])],
    figures: {
      ...Object.fromEntries(
        found.map(({ name, figures }) => [`${name}: coded share of 32-bit weights`, figures.f32Moved.ratio]),
      ),
      'coding, MB of weights per CPU second': rates.encoding.mbPerS,
      'decoding by the reference, MB of weights per CPU second': rates.decoding.mbPerS,
      ...Object.fromEntries(
        kernel.map(({ form, perSymbol }) => [`kernel instructions per symbol, ${form}`, perSymbol]),
      ),
    },
    aims: small
      ? []
      : [
          {
            aim: `32-bit weights take at most ${ratioMax} of their bytes`,
            met: worst <= ratioMax,
            reached: worst.toFixed(3),
          },
          ...(kernel.length === 0
            ? []
            : [
                {
                  aim: `the check is at most ${100 * checkShareMax}% of the kernel's instructions`,
                  met: checkShare <= checkShareMax,
                  reached: `${(100 * checkShare).toFixed(1)}%`,
                },
              ]),
        ],
    limits: [
      'how fast a GPU decodes: no GPU was there. Rates are those of one core, by the reference in TypeScript; instructions are counted in PTX as clang makes it, with each branch of the loop taken, and the assembler of the GPU has the last word',
      'weights of trained networks at these sizes: they are drawn. Each row of a weight is normally distributed, with a standard deviation of its own that is log-normal around 1/sqrt(inputs) (0.3 of a natural logarithm); only the three small networks in functions/ are trained',
      `weights of more than ${drawnElementsMax} elements as a whole: so many elements of each are drawn, and count for all`,
    ],
  };
}

const smallElements = 2 ** 14;

function codeLayers(model: ModelProto, small: boolean, seed: number, rates: Rates): Figures {
  const figures = new Figures();
  const limit = small ? smallElements : drawnElementsMax;
  for (const layer of layers(new Graph(model))) {
    const weights = layer.weights.filter(({ elementType }) => elementType === ElementType.FLOAT);
    const elements = weights.reduce((sum, { elementCount }) => sum + elementCount, 0);
    if (elements === 0) continue;
    const drawn = weights.map((weight, index) => drawOf(weight, limit, mix32(seed ^ mix32(layer.index * 64 + index))));
    const packed = packOf(
      drawn.map((settings) => trainedLike(settings)),
      'FP32',
    );
    const scale = elements / drawn.reduce((sum, settings) => sum + settings.elements, 0);
    const coded = codeAndProve(packed, rates);
    figures.f32.add(packed.pack, coded, scale);
    if (layer.kind !== 'embedding') figures.f32Moved.add(packed.pack, coded, scale);
    for (const { byteOffset, bytes } of packed.weights)
      figures.addCounts(new Uint32Array(packed.pack.buffer, byteOffset, bytes / 4), scale);
    for (const [datatype, sum] of [
      ['BF16', figures.bf16],
      ['FP16', figures.f16],
    ] as const) {
      const narrow = packOf(
        drawn.map((settings) => trainedLike({ ...settings, datatype })),
        datatype,
      );
      sum.add(narrow.pack, encodePack(narrow.pack, narrow.weights), scale);
      if (datatype === 'BF16') continue;
      const wide = widened(narrow);
      figures.f16In32.add(wide.pack, encodePack(wide.pack, wide.weights), scale);
    }
  }
  return figures;
}

function drawOf({ dims, elementCount }: Weight, limit: number, seed: number): TrainedLike {
  const inputs = dims.length < 2 ? 1024 : Math.max(1, elementCount / dims[dims.length === 2 ? 1 : 0]!);
  const rowElements = dims.length < 2 ? elementCount : Math.max(1, elementCount / dims[0]!);
  const elements = Math.min(elementCount, limit);
  return { datatype: 'FP32', elements, deviation: 1 / Math.sqrt(inputs), rowElements, seed };
}

interface Packed {
  readonly pack: Uint8Array<ArrayBuffer>;
  readonly weights: readonly PackedWeight[];
}

/** As the engine lays a layer out: each weight at a multiple of 256 bytes. */
function packOf(parts: readonly Uint8Array[], datatype: Datatype): Packed {
  let at = 0;
  const weights = parts.map((part): PackedWeight => {
    const byteOffset = at;
    at += Math.ceil(part.byteLength / 256) * 256;
    return { datatype, byteOffset, bytes: part.byteLength };
  });
  const pack = new Uint8Array(at);
  for (const [index, part] of parts.entries()) pack.set(part, weights[index]!.byteOffset);
  return { pack, weights };
}

/** Weights in 32 bits that were made from 16. */
function widened({ pack, weights }: Packed): Packed {
  const wide = new Float32Array(pack.byteLength / 2);
  for (const [index, bits] of new Uint16Array(pack.buffer).entries()) wide[index] = fp16ToNumber(bits);
  const moved = weights.map((weight) => ({
    datatype: 'FP32',
    byteOffset: 2 * weight.byteOffset,
    bytes: 2 * weight.bytes,
  }));
  return { pack: new Uint8Array(wide.buffer), weights: moved };
}

function codeAndProve({ pack, weights }: Packed, { encoding, decoding }: Rates): Uint8Array | undefined {
  const coded = encoding.of(pack.byteLength, () => encodePack(pack, weights));
  if (coded === undefined) return undefined;
  const decoded = decoding.of(pack.byteLength, () => decodePack(coded));
  if (Buffer.compare(decoded, pack) !== 0) throw new Error('a decoded pack differs from what was coded');
  return coded;
}

/** The trained networks are small: all of one is one pack. */
function codeTrained(model: ModelProto, rates: Rates): Figures {
  const figures = new Figures();
  const weights = layers(new Graph(model))
    .flatMap((layer) => layer.weights)
    .filter(({ elementType, tensor }) => elementType === ElementType.FLOAT && tensor !== undefined);
  const parts = weights.map(({ tensor }) => tensorBytes(tensor!).slice());
  const packed = packOf(parts, 'FP32');
  const coded = codeAndProve(packed, rates);
  figures.f32.add(packed.pack, coded, 1);
  figures.f32Moved.add(packed.pack, coded, 1);
  for (const part of parts) figures.addCounts(new Uint32Array(part.buffer), 1);
  return figures;
}

interface KernelCost {
  readonly form: string;
  /** Instructions of a thread for each element, in the loop over a unit. */
  readonly perSymbol: number;
  readonly checkShare: number;
}

const kernelForms = {
  FP32: 'f32',
  BF16: 'bf16Form',
  FP16: 'f16Form',
  'FP32 of BF16': 'bf16In32',
  'FP32 of FP16': 'f16In32',
};
const checkedStep = 'check = check * checkFactor + word;';

/** Compiles the loop of each form alone, with the check and without it. */
async function kernelCosts(): Promise<KernelCost[]> {
  const folder = await mkdtemp(join(tmpdir(), 'turntable-coding-'));
  try {
    const source = kernelFrom('decode', {});
    if (!source.includes(checkedStep)) throw new Error(`decode.cu does not contain '${checkedStep}'`);
    const costs: KernelCost[] = [];
    for (const [form, name] of Object.entries(kernelForms)) {
      const only = `
KERNEL void only(const coding::Unit* unit, const u32* coded, const u32* table, u8* pack, u32* failed, u32 words) {
  if (!coding::decode<coding::${name}>(*unit, coded, words, table, pack, threadIdx.x)) *failed = 1;
}`;
      const whole = loopInstructions(await ptxOf(source + only, folder, '-O3'));
      const bare = loopInstructions(await ptxOf(source.replace(checkedStep, '') + only, folder, '-O3'));
      costs.push({ form, perSymbol: whole / 4, checkShare: (whole - bare) / whole });
    }
    return costs;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

const isInstruction = (line: string): boolean => /^(@!?%\w+\s+)?[a-z][\w.:]*\s.*;$/.test(line);

/** Instructions of the loop of kernel `only`: from its label to the branch back to it. A turn decodes four elements. */
function loopInstructions(ptx: string): number {
  const body = ptx.slice(ptx.indexOf('.entry only('));
  const lines = body
    .slice(0, body.indexOf('\n}'))
    .split('\n')
    .map((line) => line.trim());
  const labels = new Map(
    lines.flatMap((line, index) => (/^\$?\w+:$/.test(line) ? [[line.slice(0, -1), index] as const] : [])),
  );
  let most = 0;
  for (const [index, line] of lines.entries()) {
    const [, target] = /\bbra(?:\.uni)?\s+(\$?\w+);/.exec(line) ?? [];
    const begin = target === undefined ? undefined : labels.get(target);
    if (begin === undefined || begin > index) continue;
    const loop = lines.slice(begin, index + 1);
    if (loop.filter((each) => each.startsWith('vote.')).length === 2)
      most = Math.max(most, loop.filter(isInstruction).length);
  }
  if (most === 0) throw new Error('the loop that decodes was not found in the PTX');
  return most;
}

const share = (value: number): string => (Number.isNaN(value) ? '' : value.toFixed(3));

function ratioTable(
  found: readonly { readonly name: string; readonly weights: string; readonly figures: Figures }[],
): BenchmarkTable {
  return tableOf('Coded bytes as a share of the weights’', found, [
    ['MODEL', ({ name }) => name],
    ['WEIGHTS', ({ weights }) => weights],
    ['>MB', ({ figures: { f32 } }) => (f32.bytes / 1e6).toFixed(1)],
    ['>FP32', ({ figures: { f32 } }) => share(f32.ratio)],
    ['>WITHOUT TABLES', ({ figures: { f32Moved } }) => share(f32Moved.ratio)],
    ['>LEAST OF ANY CODE', ({ figures: { entropy, bits } }) => share(entropy / bits)],
    ['>3 BITS, ESCAPES', ({ figures: { rival, bits } }) => share(rival / bits)],
    ['>BF16', ({ figures: { bf16 } }) => share(bf16.ratio)],
    ['>FP16', ({ figures: { f16 } }) => share(f16.ratio)],
    ['>FP32 OF FP16', ({ figures: { f16In32 } }) => share(f16In32.ratio)],
  ]);
}

function rateTable({ encoding, decoding }: Rates): BenchmarkTable {
  return {
    title: 'Rates of one CPU core, FP32, by the reference in TypeScript: not those of a GPU',
    provenance: { kind: 'measured' },
    columns: ['STEP', '>MB OF WEIGHTS PER CPU SECOND'],
    rows: [
      ['coding', encoding.mbPerS.toFixed(0)],
      ['decoding', decoding.mbPerS.toFixed(0)],
    ],
  };
}

function kernelTable(costs: readonly KernelCost[]): BenchmarkTable {
  return tableOf(
    'The kernel that decodes: instructions of a thread for each element',
    costs,
    [
      ['WEIGHTS', ({ form }) => form],
      ['>INSTRUCTIONS', ({ perSymbol }) => perSymbol.toFixed(1)],
      ['>OF THEM FOR THE CHECK', ({ checkShare }) => `${(100 * checkShare).toFixed(1)}%`],
    ],
    { kind: 'estimated', from: `PTX of ${clang} -O3 for sm_75, counted` },
  );
}
