/** Compiles a model with given input shapes to a program. */
export * from './types.ts';
export type { ProgramPrecision, ProgramSettings } from '../types.ts';
export { defaultSettings } from './compile.ts';
export { compileModel, type CompileModelOptions } from './compile-model.ts';
export { ProgramError } from './error.ts';
