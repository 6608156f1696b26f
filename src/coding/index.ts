/** Weights coded without loss: fewer bytes on the link to a GPU. */
export { canBeCoded, leastGain } from './choice.ts';
export { decodePack, describeCoded, directoryBytes, type CodedPack } from './decode.ts';
export { encodePack, entropyBits, type PackedWeight } from './encode.ts';
export { CodingError, headerBytes } from './form.ts';
