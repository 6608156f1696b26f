/**
 * Where the files of a model are cut into chunks: at its tensors' boundaries, so that versions of a model have most
 * chunks in common wherever their bytes lie in the file. A large tensor is a chunk, and small neighbours share one.
 * Besides, a graph whose tensors are external data in the chunks: it is opened in place of the model.
 */
import { statSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { externalReference, isExternal, readPart } from './external-data.ts';
import { readStructure } from './read.ts';
import { allNodes } from './scope.ts';
import { asExternal, tensorByteLength, tensorsOfModel, withoutData } from './tensor-data.ts';
import { ElementType, type ModelProto, type TensorProto } from './types.ts';
import { denseWeight, isParameter } from './weight.ts';

/** Kernels load weights by instructions that fault at an address that is no multiple of the largest vector's bytes. */
const alignmentBytes = 64;

/** The next offset at which kernels can load weights. */
export const aligned = (offset: number): number => Math.ceil(offset / alignmentBytes) * alignmentBytes;

/** Chunks lie in this folder beside the graph that names them. */
export const chunksFolder = 'weights';
/** A tensor of so many bytes is a chunk of its own. */
const ownChunkBytes = 64 * 1024;
/** Each is a file: what would have more gets larger ones. */
const chunksMax = 512;
/** Models with less in their tensors are not cut. */
const cutBytesMin = 1024 * 1024;
/** Smaller tensors may be arguments of operators, which stay in the graph: shape arithmetic reads them there. */
const graphBytesMax = 1024;
/** An argument has at most so many elements, such as a scale for each axis. */
const argumentElementsMax = 8;

/** So many bytes from `offset` on of a file of the model, by its number; they stand at `at` of the chunk. */
export interface ChunkSlice {
  readonly file: number;
  readonly offset: number;
  readonly bytes: number;
  readonly at: number;
}

export interface ModelCut {
  /** The model first, then the files that it names, with their paths. */
  readonly files: readonly { readonly name: string; readonly path: string; readonly bytes: number }[];
  /** Its tensors are external data. */
  readonly graph: ModelProto;
  /** The chunks that the graph names, in this order. */
  readonly chunks: readonly (readonly ChunkSlice[])[];
  /** All bytes of the files that are in no chunk. */
  readonly rest: readonly ChunkSlice[];
}

type Place = Omit<ChunkSlice, 'at'>;

/**
 * @param name of the model among its files @param locationOf a chunk's location for the graph
 * @returns undefined for a model that stays whole: it is small, or its tensors lie where they cannot be cut
 * @throws OnnxError as `readModel`
 */
export function cutModel(modelPath: string, name: string, locationOf: (chunk: number) => string): ModelCut | undefined {
  const path = resolve(modelPath);
  const { model, skipped } = readStructure(path, 1);
  const files = [{ name, path, bytes: statSync(path).size }];
  const { initializer } = model.graph;
  const places = new Map<TensorProto, Place>();
  for (const [tensor, { offset, byteLength }] of skipped) {
    if (byteLength !== bytesOf(tensor)) return undefined;
    places.set(tensor, { file: 0, offset, bytes: byteLength });
  }
  const ofMainGraph = new Set(initializer);
  for (const tensor of tensorsOfModel(model)) {
    if (!isExternal(tensor)) continue;
    if (places.has(tensor) || !ofMainGraph.has(tensor)) return undefined;
    const { location, offset, length } = externalReference(tensor);
    let file = files.findIndex((each) => each.name === location);
    if (file === 0) return undefined;
    if (file < 0) {
      const beside = join(dirname(path), location);
      const found = statSync(beside, { throwIfNoEntry: false });
      if (found?.isFile() !== true) return undefined;
      file = files.push({ name: location, path: beside, bytes: found.size }) - 1;
    }
    const size = bytesOf(tensor);
    if (size === undefined || (length ?? size) !== size || offset + size > files[file]!.bytes) return undefined;
    places.set(tensor, { file, offset, bytes: size });
  }
  const isCut = cutTest(model);
  const cut = [...places].filter(([tensor, place]) => isCut(tensor, place.bytes));
  const distinct = new Map(cut.map(([, place]) => [keyOf(place), place]));
  const inOrder = [...distinct.values()].toSorted((one, other) => one.file - other.file || one.offset - other.offset);
  const isApart = inOrder.every(({ file, offset }, index) => {
    const before = inOrder[index - 1];
    return before === undefined || before.file < file || before.offset + before.bytes <= offset;
  });
  if (!isApart || inOrder.reduce((sum, place) => sum + place.bytes, 0) < cutBytesMin) return undefined;
  const chunks = chunked(inOrder, ({ bytes: size }) => size);
  const slices = new Map(
    chunks.flatMap((each, chunk) => each.map((slice) => [keyOf(slice), { chunk, at: slice.at }] as const)),
  );
  const tensors = initializer.map((tensor) => {
    const place = places.get(tensor);
    if (place === undefined) return tensor;
    const slice = isCut(tensor, place.bytes) ? slices.get(keyOf(place)) : undefined;
    return slice === undefined
      ? withRaw(tensor, readPart(files[place.file]!.path, place.offset, place.bytes, `tensor '${tensor.name}'`))
      : asExternal(tensor, locationOf(slice.chunk), slice.at, place.bytes);
  });
  return {
    files,
    graph: { ...model, graph: { ...model.graph, initializer: tensors } },
    chunks,
    rest: gaps(files, inOrder),
  };
}

/** Cuts a list of tensors into chunks: each of them {@link aligned} in its chunk. */
export function chunked<Item>(
  items: readonly Item[],
  bytesOfItem: (item: Item) => number,
): (readonly (Item & { readonly at: number })[])[] {
  for (let ownBytes = ownChunkBytes; ; ownBytes *= 2) {
    const chunks: (Item & { readonly at: number })[][] = [];
    let end = Infinity;
    for (const item of items) {
      const bytes = bytesOfItem(item);
      if (bytes >= ownBytes || end >= ownBytes) {
        chunks.push([]);
        end = 0;
      }
      const at = aligned(end);
      chunks.at(-1)!.push({ ...item, at });
      end = at + bytes;
    }
    if (chunks.length <= chunksMax) return chunks;
  }
}

const withRaw = (tensor: TensorProto, rawData: Uint8Array): TensorProto => ({ ...withoutData(tensor), rawData });

const keyOf = ({ file, offset, bytes }: Place): string => `${file} ${offset} ${bytes}`;

/** Undefined for a type without a width, and for text. */
function bytesOf(tensor: TensorProto): number | undefined {
  return tensor.dataType === ElementType.STRING ? undefined : tensorByteLength(tensor);
}

/** Whether a tensor of the main graph goes into a chunk: it is large, or a parameter like those that training changes. */
function cutTest({ graph, functions = [] }: ModelProto): (tensor: TensorProto, bytes: number) => boolean {
  const main = new Set(graph.node);
  const large = new Set(
    graph.initializer.flatMap((each) => ((bytesOf(each) ?? 0) >= graphBytesMax ? [each.name] : [])),
  );
  const inside = new Set(graph.output.map(({ name }) => name));
  const alone = new Set<string>();
  for (const node of [...allNodes(graph.node), ...functions.flatMap((each) => [...allNodes(each.node)])]) {
    if (!main.has(node)) for (const input of node.input) inside.add(input);
    // A bias beside its weights is no argument, however short.
    else if (!node.input.some((input) => large.has(input))) for (const input of node.input) alone.add(input);
  }
  const isSmallParameter = (tensor: TensorProto): boolean => {
    const weight = denseWeight(tensor.name, tensor, 'initializer');
    if (!isParameter(weight) || inside.has(tensor.name)) return false;
    return weight.elementCount > argumentElementsMax || !alone.has(tensor.name);
  };
  return (tensor, bytes) => bytes >= graphBytesMax || (bytes > 0 && isSmallParameter(tensor));
}

function gaps(files: ModelCut['files'], cut: readonly Place[]): ChunkSlice[] {
  const found: ChunkSlice[] = [];
  let end = 0;
  for (const [file, { bytes }] of files.entries()) {
    let from = 0;
    const ofFile = cut.filter((place) => place.file === file);
    for (const { offset, bytes: taken } of [...ofFile, { offset: bytes, bytes: 0 }]) {
      if (offset > from) found.push({ file, offset: from, bytes: offset - from, at: end });
      end += Math.max(0, offset - from);
      from = offset + taken;
    }
  }
  return found;
}
