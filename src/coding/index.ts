/** Weights coded without loss: fewer bytes on the link to a GPU. */
export { decodePack, describeCoded, type CodedPack } from './decode.ts';
export { encodePack, entropyBits, type PackedWeight } from './encode.ts';
export { CodingError } from './form.ts';
